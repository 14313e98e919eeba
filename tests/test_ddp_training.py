"""A model trained on two devices is the one that is trained on one with batches of both."""

from pathlib import Path

import pytest
import torch

from tests.commands import on_ranks
from tests.trainings import TRAININGS, prepare, train_on_two, trained

pytestmark = pytest.mark.ddp


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trainings")
    prepare(place)
    on_ranks(2, train_on_two, [str(place), *TRAININGS], cwd=place)
    return place


def compare(name: str, folder: Path) -> None:
    """Both ranks have the weights of one device."""
    one = trained(name, folder, devices=1)
    for rank in range(2):
        two = torch.load(folder / f"rank{rank}.pt")[name]
        assert two.keys() == one.keys()
        for key, value in two.items():
            torch.testing.assert_close(value, one[key], rtol=0, atol=1e-5, msg=key)


def test_two_devices_train_a_model_of_one(tmp_path: Path) -> None:
    on_ranks(2, train_on_two, [str(tmp_path), "adam_mean"], cwd=tmp_path)
    compare("adam_mean", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_two_devices_train_the_model_of_one(name: str, folder: Path) -> None:
    compare(name, folder)

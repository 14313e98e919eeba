"""A model trained on two devices is the one that is trained on one with batches of both."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands import on_ranks
from tests.trainings import TRAININGS, prepare, train_all_on_two, trained

pytestmark = [pytest.mark.ddp, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trainings")
    prepare(place)
    on_ranks(2, train_all_on_two, [str(place)], cwd=place)
    return place


@pytest.fixture(scope="module")
def of_ranks(folder: Path) -> list[dict[str, dict[str, Any]]]:
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", TRAININGS)
def test_two_devices_train_the_model_of_one(
    name: str, folder: Path, of_ranks: list[dict[str, dict[str, Any]]]
) -> None:
    one = trained(name, folder, devices=1)
    for rank in of_ranks:
        assert rank[name].keys() == one.keys()
        for key, value in rank[name].items():
            torch.testing.assert_close(value, one[key], rtol=0, atol=1e-5, msg=key)

"""Where a run lives."""

from pathlib import Path
from typing import Any

import pytest

from attnlight.errors import InputError
from attnlight.storage.run_folder import Run

GIVEN: dict[str, Any] = {"root": "checkpoints", "experiment": "e", "run": "r"}
GIVEN |= {"config": [Path("configs/trainer.yaml"), Path("my.yaml")], "seed_everything": 3}
NAMES = ["../../esc", "/abs", "..", ".", "", "a/b", "a\\b", "a\0b", ".x", "a\nb", "ü" * 128]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["run", "experiment"])
@pytest.mark.parametrize("verb", ["fit", "test"])
def test_a_name_is_that_of_one_folder(verb: str, option: str, name: str) -> None:
    given = GIVEN | {option: name, "ckpt_path": "best"}
    with pytest.raises(InputError, match=f"--{option} is "):
        Run.of_fit(given, "") if verb == "fit" else Run.of_checkpoint(given)


@pytest.mark.parametrize("name", ["ü ☃", "a.b", "2019", "x" * 255, "\u202eabc", "a.."])
def test_any_other_name_will_do(name: str) -> None:
    assert Run.of_fit(GIVEN | {"run": name}, "").folder == Path("checkpoints/e") / name


@pytest.mark.parametrize("root", ["a\0b", "\udc80"])
def test_a_root_that_no_folder_can_be_called(root: str) -> None:
    with pytest.raises(InputError, match="--root is "):
        Run.of_fit(GIVEN | {"root": root}, "")


def test_names_that_are_not_given() -> None:
    run = Run.of_fit(GIVEN | {"experiment": None, "run": None}, "content")
    assert run.experiment == "my"
    assert run.name == "seed3-ed7002b4"  # the first of SHA-256 of "content"


def test_a_configuration_whose_stem_leads_elsewhere() -> None:
    with pytest.raises(InputError, match=r"--experiment is '\.\.'"):
        Run.of_fit(GIVEN | {"experiment": None, "config": [Path("...yaml")]}, "")

"""The package keeps to the bars of its structure, by the measures of `tests.structure`."""

from pathlib import Path

import pytest

from tests import structure

# Their arguments are what a corpus's YAML says, flat, as users' files have them.
DATAMODULES = {"ChunkingDataModule", "PlantedEvidence", "TextDataModule"}


@pytest.fixture(scope="module")
def classes() -> list[type]:
    return structure.classes()


def test_functions_are_full() -> None:
    assert structure.functions_per_thousand_lines("attnlight", "docs") <= 40


def test_nothing_else_branches_on_the_problem() -> None:
    assert structure.branches_on_the_problem() == []


def test_classes_have_at_most_two_ancestors_of_the_package(classes: list[type]) -> None:
    assert [cls for cls in classes if structure.ancestors(cls) > 3] == []


def test_constructors_take_at_most_twelve_arguments(classes: list[type]) -> None:
    assert {cls.__name__ for cls in classes if structure.arguments(cls) > 12} == DATAMODULES


def test_a_branch_on_the_problem_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "PACKAGE", tmp_path)
    for folder in ("problems", "tasks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("x = 1 if name == 'tagging' else 2\n")
    assert structure.branches_on_the_problem() == ["tasks/a.py:1 name == 'tagging'"]

"""The package keeps to the bars of its structure, by the measures of `tests.structure`."""

import re
from pathlib import Path

import pytest

from attnlight import batch
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


def test_the_guide_names_what_a_model_may_have() -> None:
    guide = (structure.ROOT / "docs/guide.md").read_text(encoding="utf-8")
    rows = [
        line for line in guide.splitlines() if re.search(r"\| .*`(Has|Layered)\w+`.* \|$", line)
    ]
    named = {name: row for row in rows for name in re.findall(r"`(Has\w+|LayeredModel)`", row)}
    protocols = {name for name in vars(batch) if name.startswith("Has")} | {"LayeredModel"}
    assert named.keys() == protocols - {"HasWords"}  # of datasets
    for name, row in named.items():
        kind = getattr(batch, name)
        own = (
            {*vars(kind), *kind.__annotations__} if name != "LayeredModel" else {"attention_layers"}
        )
        for member in own:
            assert member.startswith("_") or f"`{member}" in row, (name, member)

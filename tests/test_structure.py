"""The package keeps to the bars of its structure, by the measures of `tests.structure`."""

import re
from pathlib import Path

import pytest

from attnlight import batch
from tests import structure


@pytest.fixture(scope="module")
def classes() -> list[type]:
    return structure.classes()


def test_functions_are_full() -> None:
    assert structure.functions_per_thousand_lines("attnlight", "docs") <= 50


def test_nothing_lies_loose() -> None:
    assert structure.files_at_the_root() == ["__init__.py", "__main__.py", "batch.py", "errors.py"]


def test_no_files_import_each_other() -> None:
    assert structure.circles() == []


def test_few_attributes_are_asked_for_by_name() -> None:
    assert len(structure.attributes_by_name()) <= 20


def test_classes_have_at_most_two_ancestors_of_the_package(classes: list[type]) -> None:
    assert [cls for cls in classes if structure.ancestors(cls) > 3] == []


def test_constructors_take_at_most_twelve_arguments() -> None:
    assert {name: count for name, count in structure.arguments().items() if count > 12} == {}


def test_importance_correlation_walks_little() -> None:
    assert structure.importance().moves <= 177


def test_a_circle_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "attnlight"
    files = {
        "a.py": "from attnlight.b import deep\n",
        "b/__init__.py": "from .. import d\n",
        "b/deep.py": "def f():\n    from attnlight.c import g\n",
        "c.py": "if TYPE_CHECKING:\n    import attnlight.a\nx = getattr(y, 'z')\n",
        "d.py": "from .a import x\nhasattr(x, name)\n",
        "e.py": "class E:\n    def __init__(self, a, *b, c=1, **d): ...\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(structure, "PACKAGE", package)
    assert structure.circles() == [["a.py", "b/deep.py", "c.py"]]
    assert structure.attributes_by_name() == ["c.py:3 z"]
    assert structure.files_at_the_root() == ["a.py", "c.py", "d.py", "e.py"]
    assert set(structure.imported(package / "d.py")) == {package / "a.py"}
    assert set(structure.imported(package / "b/__init__.py")) == {package / "d.py"}
    assert structure.arguments() == {"E": 4}


def test_the_page_names_what_a_model_may_have() -> None:
    guide = (structure.ROOT / "docs/your_own.md").read_text(encoding="utf-8")
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


@pytest.mark.slow
def test_a_study_page_walks_little() -> None:
    assert structure.study_page().moves <= 7_326

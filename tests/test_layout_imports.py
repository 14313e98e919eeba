"""Imports run downward only (docs/architecture.md)."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from attnlight.figures import descriptions

PACKAGE = Path(__file__).parents[1] / "attnlight"
PAGE = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
LEVELS = [
    set(line.split())
    for line in PAGE.split("Imports run downward only")[1].split("\n\n")[1].splitlines()
]
STORAGE_BEFORE_TORCH = (
    "files",
    "foreign_classes",
    "locking",
    "migration",
    "model_folder",
    "shipped",
)
WITHOUT_TORCH = {
    *("cli/arguments", "cli/shorthand", "errors", "figures", "records", "report"),
    *(f"storage/{name}" for name in STORAGE_BEFORE_TORCH),
}
WITHOUT_LIGHTNING = WITHOUT_TORCH | {
    *("api/check", "api/explain", "attribution", "batch", "data", "functional", "huggingface"),
    *("models", "probing", "problems", "statistics", "storage/checkpoint_file"),
}
IMPORTED_AT_USE = {"datasets", "gensim", "jinja2", "matplotlib", "pandas"}
IMPORTED_AT_USE |= {"scipy", "tabulate", "wandb"}
# Modules of figures, which `attnlight.figures` imports to draw them.
DRAWN = {PACKAGE / f"figures/{name}.py" for name in (*descriptions(), "layers")}
# Modules that write pages, which verbs import when they write one.
_PAGES = (
    "agreement",
    "citations",
    "compare",
    "curves",
    "differences",
    "first_text",
    "page",
    "texts",
)
_PAGES += ("what_if",)
WRITERS = {PACKAGE / f"report/{name}.py" for name in _PAGES}
WRITERS |= {*PACKAGE.glob("report/study/*.py")}
MODULES = sorted(PACKAGE.rglob("*.py"))


def unit(module: Path) -> str:
    """What a module belongs to: its package under attnlight, or itself."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def names(node: ast.AST) -> Iterator[str]:
    """Dotted names that a statement imports; a `from` import also as `module.name`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        assert node.module
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported(module: Path, *, at_start: bool = False) -> set[str]:
    """Names imported as soon as a module is, or also within functions and for annotations."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {name for node in (tree.body if at_start else ast.walk(tree)) for name in names(node)}


def units(module: Path) -> set[str]:
    """The other units of attnlight that a module imports."""
    dotted = [name.split(".") for name in imported(module)]
    found = {parts[1] for parts in dotted if parts[0] == "attnlight" and len(parts) > 1}
    known = {entry.name.removesuffix(".py") for entry in PACKAGE.iterdir()}
    return (found & known) - {unit(module)}


def level(name: str) -> int:
    return next(number for number, level in enumerate(LEVELS) if name in level)


def outside(module: Path) -> set[str]:
    """First parts of the names that a module imports anywhere."""
    return {name.split(".")[0] for name in imported(module)}


def test_every_unit_has_one_level_of_the_page() -> None:
    assert {unit(module) for module in MODULES} == {"__init__"}.union(*LEVELS)
    assert len(LEVELS) == 14
    assert sum(map(len, LEVELS)) == len(set().union(*LEVELS))


def upward(module: Path) -> set[str]:
    """The units that a module may not know: those above it, and packages beside it."""
    if (own := unit(module)) == "__init__":
        return units(module)
    others = {other: level(other) - level(own) for other in units(module)}
    return {x for x, below in others.items() if below < 0 or (not below and (PACKAGE / x).is_dir())}


def test_imports_run_downward() -> None:
    assert {module: found for module in MODULES if (found := upward(module))} == {}


@pytest.mark.parametrize(
    ("library", "without"), [("lightning", WITHOUT_LIGHTNING), ("torch", WITHOUT_TORCH)]
)
def test_units_that_do_not_know_a_library(library: str, without: set[str]) -> None:
    knowing = {module for module in MODULES if library in outside(module)}
    named = {str(module.relative_to(PACKAGE)).removesuffix(".py") for module in knowing}
    assert not without & {*named, *map(unit, knowing)}


def test_slow_libraries_are_imported_at_use() -> None:
    early = {module: imported(module, at_start=True) for module in set(MODULES) - DRAWN - WRITERS}
    of_libraries = {m: {n.split(".")[0] for n in names} for m, names in early.items()}
    assert not [m for m, libraries in of_libraries.items() if libraries & IMPORTED_AT_USE]


def test_modules_that_draw_are_imported_at_use() -> None:
    at_use = {
        ".".join(("attnlight", *module.relative_to(PACKAGE).with_suffix("").parts))
        for module in DRAWN | WRITERS
    }
    others = set(MODULES) - DRAWN - WRITERS
    assert not [m for m in others if at_use & imported(m, at_start=True)]


def test_transformers_is_imported_with_its_models_alone() -> None:
    knowing = {unit(module) for module in MODULES if "transformers" in outside(module)}
    assert knowing == {"huggingface"}
    early = {
        unit(module)
        for module in MODULES
        if any(n.startswith("attnlight.huggingface") for n in imported(module, at_start=True))
    }
    assert early <= {"huggingface"}


def test_a_wrong_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "tasks").mkdir()
    wrong = tmp_path / "functional" / "wrong.py"
    wrong.parent.mkdir()
    wrong.write_text(
        "def late() -> None:\n    from attnlight import tasks\n    import scipy.stats\n"
    )
    assert units(wrong) == {"tasks"}
    assert level("tasks") < level(unit(wrong))
    assert upward(wrong) == {"tasks"}
    assert not imported(wrong, at_start=True)
    relative = wrong.with_name("relative.py")
    relative.write_text("from . import masking\n")
    with pytest.raises(AssertionError, match="absolute"):
        imported(relative)

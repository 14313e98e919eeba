"""Imports run downward only (docs/architecture.md)."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from attnlight.figures import descriptions

PACKAGE = Path(__file__).parents[1] / "attnlight"
LEVELS = (
    {"__main__", "studies"},
    {"cli"},
    {"api"},
    {"callbacks", "tasks"},
    {"attribution", "reference"},
    {"huggingface"},
    {"report"},
    {"figures", "datamodules", "models"},
    {"problems", "statistics"},
    {"probing", "data"},
    {"functional"},
    {"records"},
    {"storage"},
    {"batch", "errors"},
)
BEFORE_TORCH = (
    "cli/arguments",
    "cli/shorthand",
    "storage/migration",
    "storage/files",
    "storage/foreign_classes",
    "storage/locking",
    "storage/model_folder",
    "storage/shipped",
)
WITHOUT_LIGHTNING = (
    *BEFORE_TORCH,
    "api/check",
    "api/explain",
    "storage/checkpoint_file",
    "attribution",
    "batch",
    "data",
    "errors",
    "figures",
    "functional",
    "huggingface",
    "models",
    "probing",
    "problems",
    "records",
    "report",
    "statistics",
)
WITHOUT_TORCH = (*BEFORE_TORCH, "errors", "figures", "records", "report")
IMPORTED_AT_USE = (
    "datasets",
    "gensim",
    "jinja2",
    "markupsafe",
    "matplotlib",
    "pandas",
    "scipy",
    "tabulate",
    "wandb",
)
# Modules of figures, which `attnlight.figures` imports to draw them.
DRAWN = {PACKAGE / f"figures/{name}.py" for name in (*descriptions(), "layers")}
PAGE = PACKAGE.parent / "docs/architecture.md"
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


def imported(module: Path) -> set[str]:
    """Names imported anywhere in a module, within functions and for annotations too."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {name for node in ast.walk(tree) for name in names(node)}


def imported_at_start(module: Path) -> set[str]:
    """Names imported as soon as a module is."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {name for node in tree.body for name in names(node)}


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


def test_every_unit_has_a_level() -> None:
    assert {unit(module) for module in MODULES} <= {"__init__"}.union(*LEVELS)


def test_the_page_draws_these_levels() -> None:
    page = PAGE.read_text(encoding="utf-8")
    block = page.split("Imports run downward only")[1].split("\n\n")[1]
    assert [set(line.split()) for line in block.splitlines()] == list(LEVELS)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_imports_run_downward(module: Path) -> None:
    own = unit(module)
    if own == "__init__":
        assert not units(module)
        return
    above = {other for other in units(module) if level(other) < level(own)}
    assert not above, f"{own} imports what stands above it"
    beside = {other for other in units(module) if level(other) == level(own)}
    assert not any((PACKAGE / other).is_dir() for other in beside), f"{own} knows {beside}"


def test_there_is_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        graph.setdefault(unit(module), set()).update(units(module))
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("errors") < order.index("callbacks") < order.index("cli")


@pytest.mark.parametrize(
    ("library", "without"), [("lightning", WITHOUT_LIGHTNING), ("torch", WITHOUT_TORCH)]
)
def test_units_that_do_not_know_a_library(library: str, without: tuple[str, ...]) -> None:
    knowing = {
        str(module.relative_to(PACKAGE))
        for module in MODULES
        if not {unit(module), str(module.relative_to(PACKAGE)).removesuffix(".py")}.isdisjoint(
            without
        )
        and library in outside(module)
    }
    assert not knowing


@pytest.mark.parametrize("library", IMPORTED_AT_USE)
def test_slow_libraries_are_imported_at_use(library: str) -> None:
    early = {
        str(module.relative_to(PACKAGE))
        for module in set(MODULES) - DRAWN
        if library in {name.split(".")[0] for name in imported_at_start(module)}
    }
    assert not early


def test_modules_that_draw_are_imported_at_use() -> None:
    drawing = {f"attnlight.figures.{module.stem}" for module in DRAWN}
    early = {module for module in set(MODULES) - DRAWN if drawing & imported_at_start(module)}
    assert not early


def test_transformers_is_imported_with_its_models_alone() -> None:
    knowing = {unit(module) for module in MODULES if "transformers" in outside(module)}
    assert knowing == {"huggingface"}
    early = {
        unit(module)
        for module in MODULES
        if any(name.startswith("attnlight.huggingface") for name in imported_at_start(module))
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
    assert not imported_at_start(wrong)
    wrong.write_text("from . import masking\n")
    with pytest.raises(AssertionError, match="absolute"):
        imported(wrong)

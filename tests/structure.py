"""Measure the structure of the package: `python -m tests.structure` prints one line per measure.

`python -m tests.structure FOLDER` prints those of another package that need only its source.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import networkx

import attnlight

PACKAGE = Path(attnlight.__file__).parent
ROOT = PACKAGE.parent
UPPER = ("attnlight/report", "attnlight/studies", "attnlight/tasks", "docs")


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def lines(*folders: str) -> int:
    """Lines of Python in some folders of the repository."""
    files = [path for folder in folders for path in sources(ROOT / folder)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def functions_per_thousand_lines(*folders: str) -> float:
    """Functions and methods that do something per 1,000 lines beside docstrings, nested ones included.

    A member of a Protocol, of which there is a name and a docstring alone, is a declaration.
    """
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for folder in folders for path in sources(ROOT / folder) for node in walk(path)]
    own = [node for node in nodes if isinstance(node, documented)]
    texts = [node.body[0] for node in own if ast.get_docstring(node, clean=False) is not None]
    described = sum((text.end_lineno or 0) - text.lineno + 1 for text in texts)
    count = sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not all(
            isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            for each in node.body
        )
        for node in own
    )
    return 1000 * count / (lines(*folders) - described)


def walk(path: Path) -> Iterator[ast.AST]:
    """The nodes of a file's syntax tree."""
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def files_at_the_root() -> list[str]:
    """The modules of the package that lie in none of its folders."""
    return sorted(path.name for path in PACKAGE.glob("*.py"))


def circles() -> list[list[str]]:
    """Groups of files that import each other; a name counts as the module that defines it."""
    edges = [(path, other) for path in sources(PACKAGE) for other in imported(path)]
    graph = networkx.DiGraph(edges)  # which comes with torch
    groups = networkx.strongly_connected_components(graph)
    found = [group for group in groups if len(group) > 1 or graph.has_edge(*group, *group)]
    return sorted(sorted(str(path.relative_to(PACKAGE)) for path in group) for group in found)


def imported(path: Path) -> Iterator[Path]:
    """The files of the package that a file imports."""
    for node in walk(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            place = [PACKAGE.name, *path.relative_to(PACKAGE).parts][: -node.level or None]
            module = [*(place if node.level else ()), *filter(None, [node.module])]
            names = [".".join([*module, alias.name]) for alias in node.names]
        else:
            continue
        yield from filter(None, map(_file, names))


def _file(name: str) -> Path | None:
    """The file of the package that defines a dotted name, if one does."""
    root, *parts = name.split(".")
    while root == PACKAGE.name and parts:
        module = PACKAGE.joinpath(*parts)
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file():
                return file
        parts.pop()
    return None


def attributes_by_name() -> list[str]:
    """Uses of `hasattr` and `getattr` with a literal name, as `file:line name`."""
    return [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.args[1].value}"
        for path in sources(PACKAGE)
        for node in walk(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
    ]


def classes() -> list[type]:
    """The classes that the package defines."""
    found = {}
    for module in pkgutil.walk_packages([str(PACKAGE)], "attnlight."):
        if module.name != "attnlight.__main__":
            loaded = importlib.import_module(module.name)
            own = inspect.getmembers(loaded, inspect.isclass)
            found |= {cls: None for _, cls in own if cls.__module__ == module.name}
    return list(found)


def ancestors(cls: type) -> int:
    """Classes of the package in a class's method resolution order, itself included."""
    return sum(parent.__module__.startswith("attnlight") for parent in cls.__mro__)


def arguments() -> dict[str, int]:
    """Arguments of each written constructor by class; a dataclass counts as one."""
    return {
        node.name: len([*own.args, *own.kwonlyargs, *filter(None, [own.vararg, own.kwarg])]) - 1
        for path in sources(PACKAGE)
        for node in walk(path)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for own in [method.args]
    }


class Trace:
    """While a function runs, `moves` counts calls and returns to another file of the package."""

    def __init__(self) -> None:
        self.moves = 0
        self._files: list[str] = []

    def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns, called under the trace."""
        sys.setprofile(self._event)
        try:
            return function()
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename  # of a template its own
        if event not in ("call", "return") or not file.startswith(str(PACKAGE)):
            return
        if event == "return":
            if self._files:
                self._files.pop()
                self.moves += bool(self._files) and self._files[-1] != file
            return
        self.moves += bool(self._files) and self._files[-1] != file
        self._files.append(file)


def study_page() -> Trace:
    """The trace of writing the page of a kept study."""
    from attnlight.report.study import write_study
    from tests.kept import archived

    study = archived() / "studies/wiegreffe_pinter_sst"
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        trace.run(lambda: write_study(study, Path(folder)))
    return trace


def importance() -> Trace:
    """The trace of one batch of `ImportanceCorrelation` on a classifier."""
    from attnlight.callbacks import ImportanceCorrelation
    from attnlight.tasks import AttentionClassifier
    from tests.bases import Planted, trainer

    trace, corpus = Trace(), Planted()
    task = AttentionClassifier(corpus.spec)
    test = ImportanceCorrelation(figures=False)
    measure = test.measure
    test.measure = lambda *batch: trace.run(lambda: measure(*batch))  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        trainer(Path(folder), test, limit_test_batches=1).test(task, corpus, verbose=False)
    return trace


def adversarial_step() -> Trace:
    """The trace of one training step of an adversarial classifier."""
    from attnlight.tasks import AdversarialVariant
    from tests.bases import Planted, save_base, trainer

    trace, corpus = Trace(), Planted()
    with tempfile.TemporaryDirectory() as folder:
        base = save_base(Path(folder, "base.ckpt"), corpus)
        task = AdversarialVariant(corpus.spec, str(base), lambda_=1.0)
        step = task.training_step
        task.training_step = lambda *batch: trace.run(lambda: step(*batch))  # type: ignore[assignment]
        trainer(Path(folder), max_steps=1, limit_val_batches=0).fit(task, corpus)
    return trace


def main() -> None:
    """Print every measure, or those of the source of another package."""
    if folder := sys.argv[1:]:
        global PACKAGE
        PACKAGE = Path(folder[0]).resolve()
        print_source()
        return
    print(f"lines of report, studies, tasks and docs: {lines(*UPPER):,}")
    print_source()
    rates = [functions_per_thousand_lines(*where) for where in (("attnlight", "docs"), UPPER)]
    print(f"functions per 1,000 lines with docs {rates[0]:.0f}, of these folders {rates[1]:.0f}")
    print(f"lines of tests per line of attnlight: {lines('tests') / lines('attnlight'):.2f}")
    print(f"most classes of the package in an MRO: {max(map(ancestors, classes()))}")
    print(f"moves between files for an adversarial step: {adversarial_step().moves:,}")
    print(f"moves between files for ImportanceCorrelation.measure: {importance().moves:,}")
    print(f"moves between files for a study page: {study_page().moves:,}")


def print_source() -> None:
    """Print what the source of the package shows."""
    size, files = lines(str(PACKAGE)), len(sources(PACKAGE))
    print(f"lines of {PACKAGE.name}: {size:,} in {files} files, {size / files:.0f} a file")
    print(f"functions per 1,000 lines: {functions_per_thousand_lines(str(PACKAGE)):.0f}")
    print(f"files at the package's root: {len(files_at_the_root())}")
    found = circles()
    print(f"circles of imports by file: {len(found)}, with {sum(map(len, found))} files")
    names = attributes_by_name()
    rate = 1000 * len(names) / size
    print(f"hasattr and getattr with a literal: {len(names)}, {rate:.2f} per 1,000 lines")
    most = sorted(arguments().items(), key=lambda each: -each[1])[:8]
    print(f"most arguments: {', '.join(f'{name} {number}' for name, number in most)}")


if __name__ == "__main__":
    main()

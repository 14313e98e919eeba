"""Measure the structure of the package: `python -m tests.structure` prints one line per measure."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import attnlight

PACKAGE = Path(attnlight.__file__).parent
ROOT = PACKAGE.parent
UPPER = ("attnlight/report", "attnlight/studies", "attnlight/tasks", "docs")
_PROBLEM = re.compile(r"tagg|of_tokens|classification|Classifier|ChunkTagger", re.IGNORECASE)
_KNOWS_PROBLEMS = ("problems", "models")


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def lines(*folders: str) -> int:
    """Lines of Python in some folders of the repository."""
    files = [path for folder in folders for path in sources(ROOT / folder)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def functions_per_thousand_lines(*folders: str) -> float:
    """Functions and methods per 1,000 lines, nested ones included."""
    nodes = (node for folder in folders for path in sources(ROOT / folder) for node in walk(path))
    count = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    return 1000 * count / lines(*folders)


def walk(path: Path) -> Iterator[ast.AST]:
    """The nodes of a file's syntax tree."""
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def branches_on_the_problem() -> list[str]:
    """Conditions outside problems/ and models/ that name a problem, as `file:line condition`."""
    found = []
    for path in sources(PACKAGE):
        name = path.relative_to(PACKAGE)
        if name.parts[0] in _KNOWS_PROBLEMS:
            continue
        for node in walk(path):
            condition = getattr(node, "test", None)
            if condition is not None and _PROBLEM.search(ast.unparse(condition)):
                found.append(f"{name}:{condition.lineno} {ast.unparse(condition)}")
    return found


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


def arguments(cls: type) -> int:
    """Arguments of a constructor that the package wrote; those of a dataclass are its fields."""
    own = vars(cls).get("__init__")
    return len(inspect.signature(own).parameters) - 1 if inspect.isfunction(own) else 0


class Trace:
    """Calls within the package while a function runs.

    Attributes:
        depth: The most frames of the package on top of each other, below the first one.
        moves: How often a call or return goes from one file of the package to another.
    """

    def __init__(self) -> None:
        self.depth, self.moves = 0, 0
        self._files: list[str] = []

    def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns, called under the trace."""
        sys.setprofile(self._event)
        try:
            return function()
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        ours = file.startswith(str(PACKAGE)) and file.endswith(".py")  # no template's code
        if event not in ("call", "return") or not ours:
            return
        if event == "return":
            if self._files:
                self._files.pop()
            return
        if self._files and self._files[-1] != file:
            self.moves += 1
        self._files.append(file)
        self.depth = max(self.depth, len(self._files) - 1)


def study_page() -> Trace:
    """The trace of writing the page of a kept study."""
    from attnlight.report.study import write_study
    from tests.kept import archived

    study = archived() / "studies/wiegreffe_pinter_sst"
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        trace.run(lambda: write_study(study, Path(folder)))
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
    """Print every measure."""
    print(f"lines of report, studies, tasks and docs: {lines(*UPPER):,}")
    print(f"lines of attnlight: {lines('attnlight'):,} in {len(sources(PACKAGE))} files")
    rates = [functions_per_thousand_lines(*where) for where in (("attnlight", "docs"), UPPER)]
    print(f"functions per 1,000 lines: {rates[0]:.0f}, of these folders {rates[1]:.0f}")
    branches = branches_on_the_problem()
    print("\n  ".join([f"branches on the problem: {len(branches)}", *branches]))
    found = classes()
    for what, count in (("classes of the package in an MRO", ancestors), ("arguments", arguments)):
        most = sorted(((count(cls), cls.__name__) for cls in found), reverse=True)[:8]
        print(f"most {what}: {', '.join(f'{name} {number}' for number, name in most)}")
    print(f"moves between files for an adversarial step: {adversarial_step().moves:,}")
    print(f"moves between files for a study page: {study_page().moves:,}")


if __name__ == "__main__":
    main()

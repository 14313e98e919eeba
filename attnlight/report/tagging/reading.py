"""The study of a tagger as the report reads it: its runs, and their sums over test sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from attnlight.errors import InputError
from attnlight.report.study.plan import FILE, Plan, StudyRun, read_head, read_plan
from attnlight.report.study.reading import is_tagging
from attnlight.report.study.rows import FILE as ROWS
from attnlight.report.study.rows import Columns, read_rows

TOKENS = "tokens"
FULL, ALONE = "full", "tokens"  # contexts of a probe
TEXT = "text"
OF_TEXT = "With the text readout a token reaches its own tag only through its attention to itself."
TARGETS = (TOKENS, "marked", "sentence")


@dataclass(frozen=True)
class TaggingStudy(Plan):
    """What a study of a tagger planned and what came of it.

    Attributes:
        target: What the corpus asks for: `tokens`, the tag of every token; `marked`, that of one
            token a sentence; `sentence`, a class of the sentence.
        condition: Which condition of its study file this is; None where that has none.
        readout: The base's readout, where the study says.
        pos: Whether part-of-speech tags are read, where the study says.
        columns: For each finished run its counts and sums over the rows of each test sentence, each
            (n,), NaN where undefined.
    """

    target: str
    condition: str | None
    readout: str | None
    pos: bool | None
    columns: Mapping[str, Columns]

    @property
    @override
    def f1(self) -> str:
        """What is called F1: of chunks where every token is tagged, else accuracy in its place."""
        return "chunk F1" if self.chunks else "accuracy"

    @property
    @override
    def criterion(self) -> str:
        """What validation chooses by: of classes that are no chunks' tags the mean of their F1."""
        return self.f1 if self.chunks else "macro F1"

    @property
    def chunks(self) -> bool:
        """Whether there are chunks to be found."""
        return self.target == TOKENS

    @property
    def sentences(self) -> int:
        """How many test sentences there are."""
        return len(next(iter(self.columns.values()))["index"])

    @property
    def heads(self) -> int:
        """Of how many heads there is a divergence from the base's."""
        names = {name for columns in self.columns.values() for name in columns}
        return sum(name.startswith("attention_js_heads_") for name in names)


def read_tagging_study(folder: Path) -> TaggingStudy:
    """Read `study.json` and `study.parquet` of the folder of a tagger's study.

    Raises:
        InputError: A file is missing or damaged, of another schema or of a classifier, the two do
            not belong together, or no run is finished yet.
    """
    path = folder / FILE
    if not is_tagging(folder):
        raise InputError(f"{path} is of a classifier; this reads studies of taggers.")
    head, plan = read_head(folder), read_plan(folder)
    target = head.get("target")
    if target not in TARGETS:
        raise InputError(f"{path} has the target {target!r}, not one of {', '.join(TARGETS)}.")
    plan["runs"] = [_with_context(run) for run in plan["runs"]]
    columns = read_rows(folder / ROWS, plan["runs"], ("index",), ("index",))
    _require(folder / ROWS, columns)
    known: dict[str, Any] = {"condition": head.get("options"), "readout": head.get("readout")}
    return TaggingStudy(**plan, **known, target=target, pos=head.get("pos"), columns=columns)


def _with_context(run: StudyRun) -> StudyRun:
    """A guided run with what it reads: the base's encoder where the study does not say."""
    return replace(run, context=run.context or FULL) if run.role == "guide" else run


def _require(path: Path, columns: Mapping[str, Columns]) -> None:
    for name in ("tokens", "correct", "nll_gold"):
        if name not in next(iter(columns.values())):
            raise InputError(f"{path} has no column {name}: collect the study again.")

"""A study as the report reads it: what its runs are, and what each says of every test text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.errors import InputError
from attnlight.report.study.plan import FILE, ROLES, Plan, StudyRun, read_head, read_plan
from attnlight.report.study.rows import FILE as ROWS
from attnlight.report.study.rows import Column, read_rows

__all__ = ["ROLES", "Study", "StudyRun", "is_tagging", "read_study"]
TAGGING = "tagging"
_KEYS = ("index", "label")


@dataclass(frozen=True)
class Study(Plan):
    """What a study of a classifier planned and what came of it.

    Attributes:
        label: True class of each test text, (n,), -1 where it has none.
        columns: For each finished run its columns over these texts, each (n,), NaN where undefined.
    """

    label: NDArray[np.int64]
    columns: Mapping[str, Mapping[str, Column]]

    @property
    @override
    def f1(self) -> str:
        """What is called F1: of the second of two classes, else the mean over classes."""
        return f"F1 of {self.classes[1]}" if len(self.classes) == 2 else "macro F1"

    def values(self, runs: Sequence[StudyRun], column: str) -> Column:
        """A column of some finished runs, (S, n); NaN where a run does not have it."""
        empty = np.full(len(self.label), np.nan)
        held = [self.columns[run.name].get(column, empty) for run in runs]
        return np.stack(held) if held else np.empty((0, len(self.label)))


def is_tagging(folder: Path) -> bool:
    """Whether a study's folder holds that of a tagger.

    Raises:
        InputError: Its `study.json` is missing, no JSON, or of another schema.
    """
    return read_head(folder).get("task") == TAGGING


def read_study(folder: Path) -> Study:
    """Read `study.json` and `study.parquet` of the folder of a classifier's study.

    Raises:
        InputError: A file is missing or damaged, of another schema or of a tagger, the two do not
            belong together, or no run is finished yet.
    """
    if is_tagging(folder):
        raise InputError(f"{folder / FILE} is of a tagger; this reads studies of classifiers.")
    plan = read_plan(folder)
    columns = read_rows(folder / ROWS, plan["runs"], (*_KEYS, "prediction"), _KEYS)
    label = next(iter(columns.values()))["label"]
    return Study(**plan, label=label, columns=columns)

"""Worst-case attention where many classes compete: linear programs beside the candidates before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import bootstrap_means
from results_page import serrano
from results_page.posthoc import shown
from results_page.tables import table

# What `python -m tests.benchmarks.several_classes RUN` writes into a run folder, and what of it counts.
FILE = "worst_case.parquet"
CORPORA = ("20_newsgroups", "ag_news")
MODELS = [model for model in serrano.MODELS if model.corpus in CORPORA]
# JS in nats that counts as nothing found; the least gain that is no rounding.
_NOTHING, _GAIN = 0.01, 1e-6

Rows = Mapping[str, NDArray[Any]]


def several_classes_table(records: Path) -> str:
    """The models that were compared: JS before and now, who gains, and what it takes."""
    rows = [
        [*model.words, *_cells(_read(records / model.experiment / "seed0" / FILE))]
        for model in MODELS
        if (records / model.experiment / "seed0" / FILE).is_file()
    ]
    head = ["corpus", "model", "texts", "items", "JS before", "JS now", "upper bound"]
    head += ["texts improved", "mean gain", "below 0.01 before", "now", "ms a text before", "now"]
    return table(head, rows, words=2)


def _read(path: Path) -> Rows:
    columns = pq.read_table(path)
    return {name: columns[name].to_numpy() for name in columns.column_names}


def _cells(rows: Rows) -> list[str]:
    # Attention on one item has no choice.
    free = rows["items"] > 1
    rows = {name: values[free] for name, values in rows.items()}
    before, now = rows["before"], rows["now"]
    return [
        f"{len(now):,}",
        f"{np.median(rows['items']):.0f}",
        *(_mean(column) for column in (before, now, rows["upper"])),
        f"{(now > before + _GAIN).mean():.2f}",
        _mean(now - before),
        f"{(before < _NOTHING).mean():.2f}",
        f"{(now < _NOTHING).mean():.2f}",
        f"{rows['before_ms'].mean():.0f}",
        f"{rows['now_ms'].mean():.0f}",
    ]


def _mean(values: NDArray[np.float64]) -> str:
    (found,) = bootstrap_means(values[:, None], np.arange(len(values)))
    return shown(found, 3)

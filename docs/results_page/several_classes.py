"""Worst-case attention where many classes compete: linear programs beside the candidates before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from attnlight.report.tables import markdown_table as table
from attnlight.statistics.bootstrap import bootstrap_means
from results_page import serrano
from results_page.tables import shown

# What `python -m tests.benchmarks.several_classes RUN` writes into a run folder, and what of it counts.
FILE = "worst_case.parquet"
CORPORA = ("20_newsgroups", "ag_news")
MODELS = [model for model in serrano.MODELS if model.corpus in CORPORA]
# JS in nats that counts as nothing found; the least gain that is no rounding.
_NOTHING, _GAIN = 0.01, 1e-6


def several_classes_table(records: Path) -> str:
    """The models that were compared: JS before and now, who gains, and what it takes."""
    rows = []
    for model in MODELS:
        path = records / model.experiment / "seed0" / FILE
        if not path.is_file():
            continue
        texts = pd.read_parquet(path).query("items > 1")  # attention on one item has no choice
        texts["gain"] = texts.now - texts.before
        js = texts[["before", "now", "upper", "gain"]]
        before, now, upper, gain = (
            shown(found, 3) for found in bootstrap_means(js.to_numpy(), np.arange(len(js)))
        )
        shares = [texts.now > texts.before + _GAIN, texts.before < _NOTHING, texts.now < _NOTHING]
        improved, nothing, nothing_now = (f"{share.mean():.2f}" for share in shares)
        sizes = [f"{len(texts):,}", f"{texts['items'].median():.0f}"]
        taken = [f"{texts[name].mean():.0f}" for name in ("before_ms", "now_ms")]
        cells = [before, now, upper, improved, gain, nothing, nothing_now, *taken]
        rows.append([*model.words, *sizes, *cells])
    head = ["corpus", "model", "texts", "items", "JS before", "JS now", "upper bound"]
    head += ["texts improved", "mean gain", "below 0.01 before", "now", "ms a text before", "now"]
    return table(head, rows, 2)

"""Numbers of a verdict card with their bootstrap replicates, and its rules."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import divide, percentile_interval, resampled_rows
from attnlight.storage.files import read_yaml

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@cache
def rules(name: str = "verdict") -> dict[str, Any]:
    """The content of verdict.yaml, or of another file beside it."""
    return read_yaml(Path(__file__).with_name(f"{name}.yaml"))


def of_items(text: str, items: str) -> str:
    """The text with `word` replaced by the singular of `items`, which attention weighs."""
    return re.sub(r"\bword\b", items.removesuffix("s"), text)


def digest() -> str:
    """A hash of the rules that decide, which verdict.yaml and licences.yaml name."""
    deciding = ("version", "level", "least_texts", "ranks", "finds", "words", "decisions", "kinds")
    text = json.dumps({name: rules()[name] for name in deciding}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Estimate(NamedTuple):
    """A mean over rows, or a ratio of means.

    Attributes:
        value: Its value; NaN if no row counts.
        replicates: Its values in bootstrap resamples of the texts, (B,), NaN where undefined.
        texts: Number of texts that count.
    """

    value: float
    replicates: Floats
    texts: int

    @classmethod
    def of(cls, texts: Rows, values: Floats, over: Floats | None = None) -> Estimate:
        """The mean of rows (R,), or its ratio to the largest mean of the columns `over` (R, K).

        `texts` (R,) are the dataset indices. The largest is taken in each resample by itself, so that
        choosing it is part of the interval. Rows with a NaN do not count.
        """
        columns = values[:, None] if over is None else np.column_stack([values, over])
        defined = ~np.isnan(columns).any(axis=1)
        if not defined.any():
            return cls(np.nan, np.empty(0), 0)
        size, found = columns.shape[1], []
        for sums in resampled_rows(columns[defined], texts[defined]):
            means = divide(sums[..., :size], sums[..., size:])
            largest = 1.0 if over is None else means[..., 1:].max(axis=-1)
            found.append(divide(means[..., 0], np.broadcast_to(largest, means.shape[:-1])))
        return cls(float(found[1]), found[0], len(np.unique(texts[defined])))

    def interval(self, confidence: float | None = None) -> tuple[float, float]:
        """The percentile interval, by default of the confidence that the rules name."""
        return percentile_interval(self.replicates, confidence or 1 - rules()["level"])

"""What a study comes to, by loops over the fake's own rows in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.report.study.fake import FakeStudy, Rows

# Numerator and denominator of each measure.
PARTS = {
    "accuracy": ("correct", "tokens"),
    "agreement": ("agree", "tokens"),
    "nll_gold": ("nll_gold", "tokens"),
    "nll_base": ("nll_base", "tokens"),
    "attention_js": ("attention_js", "tokens"),
    "attention_js_mean": ("attention_js_mean", "tokens"),
    "prediction_tvd": ("prediction_tvd", "tokens"),
    "attention_js_share": ("attention_js_share", "choices"),
    "attention_tau": ("attention_tau", "tau_rows"),
}


def measure(fake: FakeStudy, run: str, name: str, clusters: Sequence[int] | None = None) -> float:
    """A measure of a run over some clusters, all of them by default."""
    rows = fake.rows[run]
    part = of_text if "label" in rows else of_sentence
    top = bottom = 0.0
    for k in range(len(fake.index)) if clusters is None else clusters:
        up, down = part(rows, k, name)
        if not (math.isnan(up) or math.isnan(down)):
            top, bottom = top + up, bottom + down
    return top / bottom if bottom > 0 else math.nan


def of_sentence(rows: Rows, k: int, name: str) -> tuple[float, float]:
    """What a sentence adds to numerator and denominator."""
    if name == "f1":
        return 2.0 * rows["matched"][k], float(rows["gold"][k] + rows["found"][k])
    if name.startswith("attention_js_heads"):
        head = int(name.rpartition("_")[2])
        return float(np.float32(rows["attention_js_heads"][k][head])), float(rows["tokens"][k])
    above, below = PARTS[name]
    return float(np.float32(rows[above][k])), float(rows[below][k])


def of_text(rows: Rows, k: int, name: str) -> tuple[float, float]:
    """The same of a text; F1 is that of class 1."""
    label, prediction = rows["label"][k], rows["prediction"][k]
    if name == "f1":
        return 2.0 * (label == prediction == 1), float(label == 1) + float(prediction == 1)
    return float(label == prediction) if name == "accuracy" else float(np.float32(rows[name][k])), 1


def mean(values: Sequence[float]) -> float:
    """Mean of what is defined."""
    held = [value for value in values if not math.isnan(value)]
    return sum(held) / len(held) if held else math.nan


def drawn_means(
    fake: FakeStudy, groups: Sequence[Sequence[str]], name: str, resamples: int
) -> list[list[float]]:
    """Mean over drawn seeds on drawn clusters of each group in each resample, (groups, B)."""
    n = len(fake.index)
    clusters, seeds = np.random.default_rng(0), np.random.default_rng([0, 1])
    chosen = [clusters.integers(0, n, n).tolist() for _ in range(resamples)]
    found = []
    for runs in groups:
        picked = seeds.integers(0, len(runs), (resamples, len(runs)))
        found.append(
            [
                mean([measure(fake, runs[s], name, rows) for s in row])
                for rows, row in zip(chosen, picked.tolist(), strict=True)
            ]
        )
    return found


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The 2.5 and 97.5 percentiles, by linear interpolation between order statistics."""
    held = sorted(value for value in values if not math.isnan(value))
    found = []
    for share in (0.025, 0.975):
        place = share * (len(held) - 1)
        low = math.floor(place)
        high = min(low + 1, len(held) - 1)
        found.append(held[low] + (place - low) * (held[high] - held[low]))
    return found[0], found[1]

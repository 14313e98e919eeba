"""What a study comes to, by loops over the fake's own rows in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.report.study.fake_tagging import FakeTagging

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


def measure(
    fake: FakeTagging, run: str, name: str, sentences: Sequence[int] | None = None
) -> float:
    """A measure of a run over some sentences, all of them by default."""
    rows = fake.rows[run]
    chosen = range(len(fake.index)) if sentences is None else sentences
    top = bottom = 0.0
    for k in chosen:
        if name == "f1":
            up, down = 2.0 * rows["matched"][k], float(rows["gold"][k] + rows["found"][k])
        elif name.startswith("attention_js_heads"):
            head = int(name.rpartition("_")[2])
            up = float(np.float32(rows["attention_js_heads"][k][head]))
            down = float(rows["tokens"][k])
        else:
            above, below = PARTS[name]
            up, down = float(np.float32(rows[above][k])), float(rows[below][k])
        if not (math.isnan(up) or math.isnan(down)):
            top, bottom = top + up, bottom + down
    return top / bottom if bottom > 0 else math.nan


def mean(values: Sequence[float]) -> float:
    """Mean of what is defined."""
    held = [value for value in values if not math.isnan(value)]
    return sum(held) / len(held) if held else math.nan


def drawn_means(
    fake: FakeTagging, groups: Sequence[Sequence[str]], name: str, resamples: int
) -> list[list[float]]:
    """Mean over drawn seeds on drawn sentences of each group in each resample, (groups, B)."""
    n = len(fake.index)
    sentences, seeds = np.random.default_rng(0), np.random.default_rng([0, 1])
    chosen = [sentences.integers(0, n, n).tolist() for _ in range(resamples)]
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

"""What a study comes to, by loops over the fake's own rows in plain Python."""

import math
from collections.abc import Sequence

import numpy as np

from tests.report.study.fake import FakeStudy, Rows
from tests.statistics.naive_seeds import Group

# Numerator and denominator of each measure.
PARTS = {
    "accuracy": ("correct", "tokens"),
    "agreement": ("agree", "tokens"),
    "nll_gold": ("nll_gold", "tokens"),
    "nll_base": ("nll_base", "tokens"),
    "attention_js": ("attention_js", "tokens"),
    "attention_js_mean": ("attention_js_mean", "tokens"),
    "prediction_tvd": ("prediction_tvd", "tokens"),
    "attention_kl": ("attention_kl", "tokens"),
    "attention_kl_elements": ("attention_kl_elements", "tokens"),
    "attention_js_share": ("attention_js_share", "choices"),
    "attention_tau": ("attention_tau", "tau_rows"),
}


def measure(fake: FakeStudy, run: str, name: str, clusters: Sequence[int] | None = None) -> float:
    """A measure of a run over some clusters, all by default, without those where it is infinite."""
    rows = fake.rows[run]
    part = of_text if "label" in rows else of_sentence
    top = bottom = 0.0
    for k in range(len(fake.index)) if clusters is None else clusters:
        up, down = part(rows, k, name)
        if math.isfinite(up) and math.isfinite(down):
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
    label, prediction = rows["label"][k], rows["prediction"][k]
    if name == "f1":
        return 2.0 * (label == prediction == 1), float(label == 1) + float(prediction == 1)
    return float(label == prediction) if name == "accuracy" else float(np.float32(rows[name][k])), 1


def each(fake: FakeStudy, stem: str, name: str) -> list[float]:
    """The measure of each run whose name starts so, in the order of the runs."""
    return [measure(fake, run, name) for run in fake.rows if run.startswith(stem)]


def mean(values: Sequence[float]) -> float:
    held = [value for value in values if not math.isnan(value)]
    return sum(held) / len(held) if held else math.nan


def drawn(fake: FakeStudy, runs: Sequence[str], name: str, resamples: int) -> Group:
    """The measure of each run, and in each resample of the clusters."""
    n, random = len(fake.index), np.random.default_rng(0)
    chosen = [random.integers(0, n, n).tolist() for _ in range(resamples)]
    return [measure(fake, run, name) for run in runs], [
        [measure(fake, run, name, rows) for run in runs] for rows in chosen
    ]

"""Serrano & Smith's six architectures on four corpora, and the erasures of each ranking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pandas as pd

from attnlight.errors import InputError
from attnlight.figures import erasure
from attnlight.figures.erasure import ALL, ORDERS, SCORES
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means, percentile_interval
from attnlight.statistics.paired import ratio_of_shares
from results_page import NAMES
from results_page.archive import Archive
from results_page.measures import resampled_quantile
from results_page.tables import Row, interval, number

_NEXT = {"rnn": "conv", "conv": "none"}  # the encoder that a step leads to
# Names on the page of how texts count that a ranking never flips.
NEVER: dict[erasure.NeverFlipPolicy, str] = {"listwise": "left out", "one": "as 1"}
_DRAWN = ("flip_other_drawn_attention", "delta_js_drawn_attention")
# The file that `python -m tests.benchmarks.several_classes RUN` writes into a run folder.
WORST_CASE = "worst_case.parquet"
# JS in nats below which no divergence was found; smallest gain above rounding error.
_NEAR_ZERO, _GAIN = 0.01, 1e-6
# Names of each experiment's corpus and architecture, as in the paper.
MODELS = {
    f"{c}_{k}_{e}": {"corpus": corpus, "model": f"{kind}{encoder}"}
    for c, corpus in NAMES["serrano"]["corpora"].items()
    for k, kind in NAMES["serrano"]["kinds"].items()
    for e, encoder in NAMES["serrano"]["encoders"].items()
}


class Case:
    """The subject of a claim: a model, or the step from one encoder to the next.

    Args:
        words: The corpus and the model or models.
        values: Values by text: a column for each measure, named with its ranking and the policy for
            texts that never flip, where these apply; NaN where a text does not count.

    Attributes:
        encoder: Whether the model, or the second model of the step, has an encoder.
        estimates: Mean of each column, all on the same resamples of the texts. For a model also
            `ratio`: frequency of a ranking needing fewer items than attention over the reverse;
            `shift`: median mass removed by attention minus that of another ranking; `box`: median
            fraction removed by attention minus the upper quartile of the gradient's.
    """

    def __init__(self, words: list[str], values: pd.DataFrame) -> None:
        self.words, self.values, self.encoder = words, values, not words[1].endswith("noenc")
        means = bootstrap_means(values.to_numpy(), values.index.to_numpy())
        self.estimates = dict(zip(values, means, strict=True))
        compared = [score for score in SCORES if f"sooner {score}" in values]  # with attention
        for score in compared:
            both = values[f"sooner {score}"], values[f"later {score}"]
            self.estimates[f"ratio {score}"] = ratio_of_shares(*both, values.index.to_numpy())
        quantiles = [("shift", "mass", score, 0.5) for score in compared]
        if compared and not self.encoder:
            quantiles.append(("box", "fraction", "gradient", 0.75))
        for (measure, part, score, level), never in product(quantiles, NEVER):
            both = values[[f"{part} attention {never}", f"{part} {score} {never}"]].dropna()
            estimate = MeanInterval(np.nan, np.nan, np.nan, 0)
            if len(both):
                levels = np.array([0.5, level])
                (attention, other), resampled = resampled_quantile(both.to_numpy().T, levels)
                ends = percentile_interval(resampled[:, 0] - resampled[:, 1])
                estimate = MeanInterval(float(attention - other), *ends, len(both))
            self.estimates[f"{measure} {score} {never}"] = estimate


def read_models(archive: Archive) -> dict[str, Case]:
    """The archived models, by experiment."""
    models = {}
    for name in (name for name in MODELS if name in archive):
        columns = archive[name].test("single_erasure") | archive[name].test("decision_flip")
        rows = {x: v if v.ndim == 1 else v[0].astype(float) for x, v in columns.items()}
        top, other, js = (rows[column] for column in ("flip_top_attention", *_DRAWN))
        values = {
            "of one item": np.where(rows["length"] == 1, 1.0, np.nan),
            "other flips": other,
            "both": top * other,
            "top alone": top * (1 - other),
            "other alone": (1 - top) * other,
            "neither": (1 - top) * (1 - other),
            "closer": np.where(np.isnan(js), np.nan, js < 0),
            "further": np.where(np.isnan(js), np.nan, js > 0),
            "stands": 1 - top,
            "excess minimal": np.where(erasure.flipped_by_all(rows), rows["minimal_count"], np.nan),
        }
        for score in SCORES:
            values[f"flips {score}"] = rows[f"flip_top_{score}"]
            values[f"more flips {score}"] = rows[f"flip_top_{score}"] - top
        for score in SCORES[1:]:
            speeds = (f"{word} {score}" for word in ("sooner", "as soon", "later"))
            values |= zip(speeds, erasure.sooner(rows, score, "attention").T, strict=True)
        for order in ORDERS:
            values[f"excess {order}"] = erasure.beyond_minimum(rows, order)
        for ranking in ALL:
            count = "minimal_count" if ranking == "minimal" else f"removed_count_{ranking}"
            rows[f"removed_fraction_{ranking}"] = rows[count] / rows["length"]
            values[f"never {ranking}"] = erasure.removed(rows, "never_flips", ranking, "column")
            values[f"needs all {ranking}"] = erasure.removed(rows, "needs_all", ranking)
            for never, part in product(NEVER, ("fraction", "mass")):
                left = erasure.removed(rows, f"removed_{part}", ranking, never)
                values[f"{part} {ranking} {never}"] = left
        frame = pd.DataFrame(values, index=rows["index"])
        models[name] = Case([*MODELS[name].values()], frame)
    return models


def cases(models: Mapping[str, Case]) -> dict[str, dict[str, Case]]:
    """Cases by set: all models, with an encoder, without, and steps from rnn to conv to no encoder.

    A step is the paired decrease, over texts, of the fraction that a ranking removes.

    Raises:
        InputError: The two models of a step were tested on different texts.
    """
    groups: dict[str, dict[str, Case]] = {"models": {}, "encoder": {}, "none": {}, "steps": {}}
    for name, first in models.items():
        groups["models"][name] = groups["encoder" if first.encoder else "none"][name] = first
        stem, _, encoder = name.rpartition("_")
        second = models.get(f"{stem}_{_NEXT.get(encoder)}")
        if second is None:
            continue
        words = f"{first.words[1]} − {second.words[1]}"  # noqa: RUF001
        if not first.values.index.equals(second.values.index):
            raise InputError(f"{words}: the runs were tested on different texts.")
        before, after = (case.values.filter(like="fraction ") for case in (first, second))
        falls = (before - after).rename(columns=lambda key: key.replace("fraction", "fall"))
        groups["steps"][name] = Case([first.words[0], words], falls)
    return groups


def several_classes(archive: Archive) -> Iterator[Row]:
    """Worst-case attention of the compared models: by linear programs and by the former solver."""
    for name, words in MODELS.items():
        path = archive.root / name / "seed0" / WORST_CASE
        if not path.is_file():
            continue
        texts = pd.read_parquet(path).query("items > 1")  # attention on one item has no choice
        texts = texts.assign(gain=texts.now - texts.before)
        js = bootstrap_means(texts[["before", "now", "upper", "gain"]].to_numpy(), texts.index)
        before, now, upper, gain = (interval(mean, 3) for mean in js)
        yield words | {
            "texts": len(texts),
            "items": f"{texts['items'].median():.0f}",
            "JS before": before,
            "JS now": now,
            "upper bound": upper,
            "texts improved": number((texts.gain > _GAIN).mean(), 2),
            "mean gain": gain,
            "below 0.01 before": number((texts.before < _NEAR_ZERO).mean(), 2),
            "now": number((texts.now < _NEAR_ZERO).mean(), 2),
            "ms a text before": f"{texts.before_ms.mean():.0f}",
            "now#ms": f"{texts.now_ms.mean():.0f}",
        }

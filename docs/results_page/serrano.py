"""Serrano & Smith's six architectures on three corpora, and what each ranking of items removes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report import erasure
from attnlight.report.erasure import ALL, ORDERS, SCORES
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means, percentile_interval
from attnlight.statistics.paired import ratio_of_shares
from results_page.kept import Kept
from results_page.measures import resampled_quantile
from results_page.predictions import measured
from results_page.tables import Row, interval, number, over_seeds

Values = NDArray[np.float64]
Key = tuple[str, ...]  # a measure, and where it has them a ranking and what never flips counts as
_NEXT = {"rnn": "conv", "conv": "none"}  # the encoder that a step leads to
# What becomes of texts that a ranking never flips, as the page says it.
NEVER: dict[erasure.Never, str] = {"listwise": "left out", "one": "as 1"}
# Columns of their records, beside the keys.
_DRAWN = ("flip_other_drawn_attention", "delta_js_drawn_attention")
ERASURE = (*(f"flip_top_{score}" for score in SCORES), *_DRAWN)
REMOVAL = (
    "length",
    "minimal_count",
    *(f"removed_count_{name}" for name in ORDERS),
    *(f"{part}_{name}" for part in ("removed_mass", "needs_all", "never_flips") for name in ALL),
)
# What `python -m tests.benchmarks.several_classes RUN` writes into a run folder.
WORST_CASE = "worst_case.parquet"
# JS in nats that counts as nothing found; the least gain that is no rounding.
_NOTHING, _GAIN = 0.01, 1e-6
# What the page, like the paper, calls each experiment's corpus and architecture.
_CORPORA = {"yelp": "Yelp", "20_newsgroups": "20 Newsgroups", "ag_news": "AG News"}
MODELS = {
    f"{c}_{k}_{e}": {"corpus": corpus, "model": f"{kind}{encoder}"}
    for c, corpus in _CORPORA.items()
    for k, kind in {"han": "HAN", "flan": "FLAN"}.items()
    for e, encoder in {"rnn": "rnn", "conv": "conv", "none": "noenc"}.items()
}


@dataclass(frozen=True, eq=False)
class Case:
    """What a claim may be made of: a model, or the step from one encoder to the next.

    Attributes:
        words: The corpus and the models.
        rows: Columns of `single_erasure` and `decision_flip`, (n,), of a model; `index` of a step.
        values: What is averaged over texts, (n,), NaN where a text does not count.
        encoder: Whether the model has one.
    """

    words: list[str]
    rows: Mapping[str, NDArray[Any]]
    values: Mapping[Key, Values]
    encoder: bool

    @cached_property
    def means(self) -> dict[Key, MeanInterval]:
        """Mean of each of `values`, all on the same resamples of the texts."""
        columns = np.stack([*self.values.values()], axis=1)
        found = bootstrap_means(columns, self.rows["index"])
        return dict(zip(self.values, found, strict=True))

    def defined(self, *key: str) -> Values:
        """One of `values` of the texts that count."""
        found = self.values[key]
        return found[~np.isnan(found)]

    def estimate(self, measure: str, *key: str) -> MeanInterval:
        """One of `means`, or one of three more.

        `ratio`: how many times as often a ranking needs fewer items than attention as the reverse;
        `box`: median fraction that attention removes less the upper quartile of another ranking's;
        `shift`: median of the attention that attention removes less another ranking's.
        """
        if (measure, *key) in self.means:
            return self.means[measure, *key]
        if measure == "ratio":
            first, _, second = erasure.sooner(self.rows, *key, "attention").T
            found = ratio_of_shares(first, second, self.rows["index"])
        else:
            part, level = {"box": ("fraction", 0.75), "shift": ("mass", 0.5)}[measure]
            ranking, never = key
            own, other = (self.defined(part, name, never) for name in ("attention", ranking))
            if not len(own):
                return MeanInterval(*[float("nan")] * 3, 0)
            (a, drawn), (b, theirs) = (
                resampled_quantile(own[None]),
                resampled_quantile(other[None], level),
            )
            ends = percentile_interval((drawn - theirs)[:, 0])
            found = MeanInterval(float(a[0] - b[0]), *ends, len(own))
        self.means[measure, *key] = found
        return found


def model_case(name: str, rows: Mapping[str, NDArray[Any]]) -> Case:
    """What a model's tests recorded, text by text, as a case.

    Args:
        name: Its experiment, one of `MODELS`.
        rows: The columns `index`, `ERASURE`, `REMOVAL` and `removed_fraction_<ranking>`, (n,).
    """
    top, other, drawn = (rows[column] for column in ("flip_top_attention", *_DRAWN))
    first, same, second = erasure.sooner(rows, "gradient", "attention").T
    least = np.where(erasure.flipped_by_all(rows), rows["minimal_count"], np.nan)
    values = {
        ("both",): top * other,
        ("top alone",): top * (1 - other),
        ("other alone",): (1 - top) * other,
        ("neither",): (1 - top) * (1 - other),
        ("closer",): np.where(np.isnan(drawn), np.nan, drawn < 0),
        ("stands",): 1 - top,
        ("further",): np.where(np.isnan(drawn), np.nan, drawn > 0),
        ("sooner",): first,
        ("as soon",): same,
        ("later",): second,
        ("excess", "minimal"): least,
    }
    for score in SCORES:
        values["flips", score] = rows[f"flip_top_{score}"]
        values["more flips", score] = rows[f"flip_top_{score}"] - top
    for order in ORDERS:
        values["excess", order] = erasure.beyond_minimum(rows, order)
    for ranking in ALL:
        values["never", ranking] = erasure.removed(rows, "never_flips", ranking, "column")
        values["needs all", ranking] = erasure.removed(rows, "needs_all", ranking)
        for never, part in product(NEVER, ("fraction", "mass")):
            left = erasure.removed(rows, f"removed_{part}", ranking, never)
            values[part, ranking, never] = left
    return Case([*MODELS[name].values()], rows, values, not name.endswith("_none"))


def step_case(first: Case, second: Case) -> Case:
    """How much less of a text a ranking removes under the second model's encoder, texts paired.

    Raises:
        InputError: The two models were tested on different texts.
    """
    words = [first.words[0], f"{first.words[1]} − {second.words[1]}"]  # noqa: RUF001
    index = first.rows["index"]
    if not np.array_equal(index, second.rows["index"]):
        raise InputError(f"{words[1]}: the runs were tested on different texts.")
    values = {
        ("fall", *key): first.values["fraction", *key] - second.values["fraction", *key]
        for key in product(SCORES, NEVER)
    }
    return Case(words, {"index": index}, values, True)


def read_models(kept: Kept) -> dict[str, Case]:
    """The models that were kept, by experiment."""
    found = {}
    for name in (name for name in MODELS if name in kept):
        columns = kept[name].test("single_erasure") | kept[name].test("decision_flip")
        rows = {
            column: values if values.ndim == 1 else values[0].astype(float)
            for column, values in columns.items()
        }
        for ranking in ALL:
            count = "minimal_count" if ranking == "minimal" else f"removed_count_{ranking}"
            rows[f"removed_fraction_{ranking}"] = rows[count] / rows["length"]
        found[name] = model_case(name, rows)
    return found


def cases(models: Mapping[str, Case]) -> dict[str, list[Case]]:
    """All models; those with an encoder and without; steps from rnn to conv and to no encoder."""
    steps = []
    for name, first in models.items():
        stem, _, encoder = name.rpartition("_")
        second = models.get(f"{stem}_{_NEXT.get(encoder)}")
        steps += [step_case(first, second)] if second else []
    return {
        "models": [*models.values()],
        "encoder": [case for case in models.values() if case.encoder],
        "none": [case for case in models.values() if not case.encoder],
        "steps": steps,
    }


def accuracy(kept: Kept) -> Iterator[Row]:
    """Accuracy beside the published, macro F1 and epochs."""
    for name in (name for name in MODELS if name in kept):
        (curves,), (epoch,) = kept[name].validation, kept[name].chosen
        yield MODELS[name] | {
            "test texts": len(kept[name].test("predictions")["label"]),
            "epoch chosen": f"{epoch + 1} of {len(curves['accuracy'])}",
            "accuracy": over_seeds(measured(kept[name], "accuracy")),
            "published": kept.published["serrano_accuracy"].get(name),
            "macro F1": over_seeds(measured(kept[name], "f1")),
        }


def several_classes(kept: Kept) -> Iterator[Row]:
    """Worst-case attention of models that were compared: linear programs beside what was before."""
    for name, words in MODELS.items():
        path = kept.root / name / "seed0" / WORST_CASE
        if not path.is_file():
            continue
        texts = pd.read_parquet(path).query("items > 1")  # attention on one item has no choice
        texts = texts.assign(gain=texts.now - texts.before)
        means = texts.mean()
        js = bootstrap_means(texts[["before", "now", "upper", "gain"]].to_numpy(), texts.index)
        before, now, upper, gain = (interval(found, 3) for found in js)
        yield words | {
            "texts": len(texts),
            "items": f"{texts['items'].median():.0f}",
            "JS before": before,
            "JS now": now,
            "upper bound": upper,
            "texts improved": number((texts.gain > _GAIN).mean(), 2),
            "mean gain": gain,
            "below 0.01 before": number((texts.before < _NOTHING).mean(), 2),
            "now": number((texts.now < _NOTHING).mean(), 2),
            "ms a text before": f"{means.before_ms:.0f}",
            "now#ms": f"{means.now_ms:.0f}",
        }

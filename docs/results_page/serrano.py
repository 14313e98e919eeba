"""Serrano & Smith's six architectures on three corpora, and what each ranking of items removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.erasure import (
    ALL,
    ORDERS,
    SCORES,
    Never,
    flipped_by_all,
    never_flips,
    removed,
    sooner,
    steps,
)
from attnlight.report.tables import markdown_table as table
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means, percentile_interval
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.paired import ratio_of_shares
from attnlight.statistics.seed_bootstrap import resampled_means
from results_page.kept import Experiment
from results_page.measures import resampled_quantile
from results_page.tables import DASH, over_seeds

Values = NDArray[np.float64]
Key = tuple[str, ...]  # a measure, and where it has them a ranking and what never flips counts as
CORPORA = {"yelp": "Yelp", "20_newsgroups": "20 Newsgroups", "ag_news": "AG News"}
KINDS = {"han": "HAN", "flan": "FLAN"}
ENCODERS = {"rnn": "rnn", "conv": "conv", "none": "noenc"}  # as the paper calls them
# What becomes of texts that a ranking never flips, as the page says it.
NEVER: dict[Never, str] = {"listwise": "left out", "one": "as 1"}
NOT_RUN = "not run"
# What the runs were given beside their files in configs/experiments.
LEARNING_RATE = 1e-3
EPOCHS = {"rnn": 8, "conv": 8, "none": 15}
OTHER_EPOCHS = {"yelp_flan_conv": 15, "20_newsgroups_flan_rnn": 5, "20_newsgroups_han_rnn": 5}
# Columns of their records, beside the keys.
ERASURE = (
    *(f"flip_top_{score}" for score in SCORES),
    "flip_other_drawn_attention",
    "delta_js_drawn_attention",
)
REMOVAL = (
    "length",
    "minimal_count",
    *(f"removed_count_{name}" for name in ORDERS),
    *(f"{part}_{name}" for part in ("removed_mass", "needs_all", "never_flips") for name in ALL),
)


class Model(NamedTuple):
    """One architecture on one corpus."""

    corpus: str
    kind: str
    encoder: str

    @property
    def experiment(self) -> str:
        """Stem of its file in configs/experiments."""
        return f"{self.corpus}_{self.kind}_{self.encoder}"

    @property
    def epochs(self) -> int:
        """Epochs that its run was given at most."""
        return OTHER_EPOCHS.get(self.experiment, EPOCHS[self.encoder])

    @property
    def words(self) -> list[str]:
        """Corpus and architecture as the page calls them."""
        return [CORPORA[self.corpus], f"{KINDS[self.kind]}{ENCODERS[self.encoder]}"]


MODELS = [Model(c, k, e) for c in CORPORA for k in KINDS for e in ENCODERS]


@dataclass(frozen=True, eq=False)
class Tested:
    """A model's run and what its tests recorded, read once; equal to itself alone.

    Attributes:
        model: The model.
        experiment: Its kept run, of one seed.
    """

    model: Model
    experiment: Experiment

    @property
    def words(self) -> list[str]:
        """Corpus and architecture."""
        return self.model.words

    def _rows(self, test: str) -> dict[str, NDArray[Any]]:
        columns = self.experiment.test(test)
        found = {name: c if c.ndim == 1 else c[0] for name, c in columns.items()}
        return {name: c if name == "index" else c.astype(float) for name, c in found.items()}

    @cached_property
    def erasure(self) -> dict[str, NDArray[Any]]:
        """Columns of `single_erasure`, (n,)."""
        return self._rows("single_erasure")

    @cached_property
    def removal(self) -> dict[str, NDArray[Any]]:
        """Columns of `decision_flip`, (n,), with the fraction that each ranking removes."""
        rows = self._rows("decision_flip")
        for name in ALL:
            count = "minimal_count" if name == "minimal" else f"removed_count_{name}"
            rows[f"removed_fraction_{name}"] = rows[count] / rows["length"]
        return rows

    @cached_property
    def values(self) -> dict[Key, Values]:
        """What is averaged over texts, (n,), NaN where a text does not count."""
        rows, erased = self.removal, self.erasure
        top, other, drawn = (erased[name] for name in (ERASURE[0], *ERASURE[3:]))
        least = np.where(flipped_by_all(rows), rows["minimal_count"], np.nan)
        first, same, second = sooner(rows, "gradient", "attention").T
        found = {
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
        for name in SCORES:
            found["flips", name] = erased[f"flip_top_{name}"]
            found["more flips", name] = erased[f"flip_top_{name}"] - top
        for name in ORDERS:
            found["excess", name] = steps(rows, name) - least
        for name in ALL:
            found["never", name] = never_flips(rows, name)
            found["needs all", name] = removed(rows, "needs_all", name)
            for never, part in product(NEVER, ("fraction", "mass")):
                found[part, name, never] = removed(rows, f"removed_{part}", name, never)
        return found

    def both(self, part: str, name: str, never: str) -> Values:
        """What attention and another ranking remove of each text that counts for both, (2, n)."""
        found = np.stack([self.values[part, x, never] for x in (SCORES[0], name)])
        return found[:, ~np.isnan(found).any(axis=0)]

    @cached_property
    def means(self) -> dict[Key, MeanInterval]:
        """Mean of each of `values`, all on the same resamples of the texts."""
        columns = np.stack([*self.values.values()], axis=1)
        found = bootstrap_means(columns, self.removal["index"])
        return dict(zip(self.values, found, strict=True))

    def estimate(self, measure: str, *key: str) -> MeanInterval:
        """One of `means`, or one of three more.

        `ratio`: how many times as often a ranking needs fewer items than attention as the reverse;
        `box`: median fraction that attention removes less the upper quartile of another ranking's;
        `shift`: median of the attention that attention removes less another ranking's.
        """
        if (measure, *key) not in self.means:
            if measure == "ratio":
                found = sooner(self.removal, *key, "attention")
                ratio = ratio_of_shares(found[:, 0], found[:, 2], self.removal["index"])
                self.means[measure, *key] = ratio
            else:
                part, level = {"box": ("fraction", 0.75), "shift": ("mass", 0.5)}[measure]
                self.means[measure, *key] = _shift(*self.both(part, *key), level)
        return self.means[measure, *key]


def _shift(own: Values, other: Values, level: float) -> MeanInterval:
    """Median of some values less a quantile of others, on the same resamples."""
    if not len(own):
        return MeanInterval(*[float("nan")] * 3, 0)
    (a, drawn), (b, theirs) = resampled_quantile(own[None]), resampled_quantile(other[None], level)
    return MeanInterval(float(a[0] - b[0]), *percentile_interval((drawn - theirs)[:, 0]), len(own))


@dataclass(frozen=True, eq=False)
class Step:
    """Two models of one corpus that differ in their encoder."""

    first: Tested
    second: Tested

    @property
    def words(self) -> list[str]:
        """Corpus, and the two architectures."""
        corpus, first = self.first.words
        return [corpus, f"{first} − {self.second.words[1]}"]  # noqa: RUF001

    @cached_property
    def _falls(self) -> dict[Key, MeanInterval]:
        both = (self.first, self.second)
        index, other = (tested.removal["index"] for tested in both)
        if not np.array_equal(index, other):
            raise InputError(f"{self.words[1]}: the runs were tested on different texts.")
        keys = list(product(SCORES, NEVER))
        columns = [np.subtract(*(t.values["fraction", *key] for t in both)) for key in keys]
        return dict(zip(keys, bootstrap_means(np.stack(columns, axis=1), index), strict=True))

    def estimate(self, measure: str, *key: str) -> MeanInterval:
        """How much less of a text a ranking removes under the second encoder, texts paired.

        Raises:
            InputError: The two models were tested on different texts.
        """
        return self._falls[key]


def read_models(root: Path) -> list[Tested]:
    """The models whose runs were kept; some may not have been run."""
    there = [model for model in MODELS if (root / model.experiment).is_dir()]
    return [Tested(model, Experiment.read(root, model.experiment)) for model in there]


def cases(found: Sequence[Tested]) -> dict[str, list[Any]]:
    """All models; those with an encoder and without; steps from rnn to conv and to no encoder."""
    runs = {tested.model: tested for tested in found}
    pairs = product(CORPORA, KINDS, (("rnn", "conv"), ("conv", "none")))
    steps = [
        [runs.get(Model(corpus, kind, encoder)) for encoder in two] for corpus, kind, two in pairs
    ]
    return {
        "models": list(found),
        "encoder": [tested for tested in found if tested.model.encoder != "none"],
        "none": [tested for tested in found if tested.model.encoder == "none"],
        "steps": [Step(first, second) for first, second in steps if first and second],
    }


def accuracy_table(found: Sequence[Tested], published: Mapping[str, Any]) -> str:
    """Accuracy beside the published, macro F1 and epochs; says which models were not run."""
    runs = {tested.model: tested.experiment for tested in found}
    rows = []
    for model in MODELS:
        theirs = published["serrano_accuracy"].get(model.corpus, {})
        figure = theirs.get(f"{model.kind}_{model.encoder}", DASH)
        if model not in runs:
            rows.append([*model.words, NOT_RUN, DASH, DASH, figure, DASH])
            continue
        columns, curves = runs[model].test("predictions"), runs[model].validation[0]
        label, prediction = columns["label"], columns["prediction"]
        classes = int(max(label.max(), prediction.max())) + 1
        epochs = f"{runs[model].chosen[0] + 1} of {len(curves['accuracy'])}"
        right = over_seeds(resampled_means((prediction == label).astype(float)))
        f1 = over_seeds(resampled_f1(prediction, label, classes))
        rows.append([*model.words, f"{len(label):,}", epochs, right, figure, f1])
    head = ["corpus", "model", "test texts", "epoch chosen", "accuracy", "published", "macro F1"]
    return table(head, rows, 2)

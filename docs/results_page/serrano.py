"""Serrano & Smith's six architectures on three corpora: how well they classify, erasing one item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.erasure import ALL, ORDERS, SCORES
from attnlight.report.tables import percent, probability, shares
from attnlight.statistics.paired import holm, mcnemar
from results_page.kept import Experiment
from results_page.measures import accuracy, macro_f1
from results_page.tables import DASH, summary, table

Rows = Mapping[str, NDArray[Any]]
CORPORA = {"yelp": "Yelp", "20_newsgroups": "20 Newsgroups", "ag_news": "AG News"}
KINDS = {"han": "HAN", "flan": "FLAN"}
ENCODERS = {"rnn": "rnn", "conv": "conv", "none": "noenc"}  # as the paper calls them
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

    @cached_property
    def erasure(self) -> Rows:
        """Columns of `single_erasure`, (n,)."""
        return self.experiment.first("single_erasure")

    @cached_property
    def removal(self) -> Rows:
        """Columns of `decision_flip`, (n,), with the fraction that each ranking removes."""
        rows = self.experiment.first("decision_flip")
        for name in ALL:
            count = "minimal_count" if name == "minimal" else f"removed_count_{name}"
            rows[f"removed_fraction_{name}"] = rows[count] / rows["length"]
        return rows


def read_models(root: Path) -> list[Tested]:
    """The models whose runs were kept; some may not have been run."""
    there = [model for model in MODELS if (root / model.experiment).is_dir()]
    return [Tested(model, Experiment.read(root, model.experiment)) for model in there]


def accuracy_table(found: Sequence[Tested], published: Mapping[str, Any]) -> str:
    """Accuracy beside the published, macro F1 and epochs; says which models were not run."""
    runs = {tested.model: tested.experiment for tested in found}
    rows = []
    for model in MODELS:
        theirs = published["serrano_accuracy"].get(model.corpus, {})
        cells = _accuracy(runs[model]) if model in runs else [NOT_RUN, *[DASH] * 3]
        shown = theirs.get(f"{model.kind}_{model.encoder}", DASH)
        rows.append([*model.words, *cells[:3], shown, cells[3]])
    head = ["corpus", "model", "test texts", "epoch chosen", "accuracy", "published", "macro F1"]
    return table(head, rows, words=2)


def _accuracy(experiment: Experiment) -> list[str]:
    columns = experiment.test("predictions")
    epoch, curves = experiment.chosen[0], experiment.validation[0]
    return [
        f"{len(columns['label']):,}",
        f"{epoch + 1} of {len(curves['accuracy'])}",
        _over_seeds(accuracy, columns),
        _over_seeds(macro_f1, columns),
    ]


def _over_seeds(measure: Callable[..., float], columns: Rows) -> str:
    label, runs = columns["label"], columns["prediction"]
    return summary(lambda rows: [measure(label[rows], run[rows]) for run in runs], len(label))


def contingency_table(found: Sequence[Tested], published: Mapping[str, Any]) -> str:
    """Decisions that change without attention's top item, or without another one drawn."""
    pairs = [_flips(tested.erasure) for tested in found]
    p_values = holm([mcnemar(top, other).p_value for top, other in pairs])
    recalled = published["serrano_contingency"]
    rows = []
    for tested, (top, other), p in zip(found, pairs, p_values, strict=True):
        cells = [top * other, top * (1 - other), (1 - top) * other, (1 - top) * (1 - other)]
        drawn = tested.erasure["delta_js_drawn_attention"]
        cells.append(np.where(np.isnan(drawn), np.nan, drawn < 0))
        alone = int((tested.removal["length"] == 1).sum())
        counts = [f"{(~np.isnan(top)).sum():,}", f"{alone:,}"]
        found_shares = map(percent, shares(cells, tested.erasure))
        rows.append([*tested.model.words, *counts, *found_shares, probability(p)])
        theirs = recalled.get(tested.model.experiment)
        if theirs:
            rows.append(["", "as recalled, not verified", DASH, DASH, *theirs, DASH, DASH])
    head = ["corpus", "model", "texts", "of one item", "both", "top alone", "other alone"]
    return table([*head, "neither", "Δ JS < 0", "p"], rows, words=2)


def _flips(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rows["flip_top_attention"], rows["flip_other_drawn_attention"]

"""The text classifiers: how well they classify, and how far shuffling attention moves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.tables import markdown_table as table
from attnlight.report.violins import EDGES
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import resampled_means
from results_page.kept import Experiment
from results_page.measures import Resampled, resampled_auroc, resampled_quantile
from results_page.tables import CLASSES, DASH, number, of_means, over_seeds

Experiments = Mapping[str, Experiment]
Published = Mapping[str, Any]
TEXT = {
    "sst_bilstm": "SST, sentences",
    "sst_phrases_bilstm": "SST, with phrases",
    "imdb_bilstm": "IMDb, 7 to 399 words",
}
MEASURES = {"accuracy": "accuracy", "positive_f1": "F1 of the positive class", "auroc": "AUROC"}
# Curves on validation, and what the page calls them.
_CURVES = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "predictions/max_attention": "maximum attention",
    "attention_permutation/median_tvd": "median TVD",
    "attention_permutation/flip_rate": "flip rate",
}
BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")


@cache
def measured(experiment: Experiment) -> dict[str, Resampled]:
    """Each of `MEASURES` on the test split."""
    columns = experiment.test("predictions")
    label, prediction = columns["label"], columns["prediction"]
    return {
        "accuracy": resampled_means((prediction == label).astype(np.float64)),
        "positive_f1": resampled_f1(prediction, label, 2),
        "auroc": resampled_auroc(label, columns["probabilities"][..., 1]),
    }


def accuracy_table(experiments: Experiments, published: Published) -> str:
    """Ours beside the published figures."""
    rows = []
    for name, corpus in TEXT.items():
        runs = experiments[name]
        texts = map("{:,}".format, np.bincount(runs.test("predictions")["label"]))
        found = map(over_seeds, measured(runs).values())
        rows.append([corpus, "here", " / ".join(texts), str(len(runs.seeds)), *found])
        for theirs in published["accuracy"].get(name, ()):
            known = [theirs.get(measure, DASH) for measure in MEASURES]
            source = published["sources"][theirs["source"]]
            texts = map("{:,}".format, theirs.get("texts", ()))
            rows.append(["", source, " / ".join(texts) or DASH, DASH, *known])
    head = ["corpus", "from", "test texts, negative / positive", "seeds", *MEASURES.values()]
    return table(head, rows, 2)


def _runs(experiments: Experiments) -> Iterator[tuple[list[str], Experiment, int]]:
    """Corpus, on its first row, and seed; the experiment; the run's place in it."""
    for name, corpus in TEXT.items():
        for run, seed in enumerate(experiments[name].seeds):
            yield ["" if run else corpus, str(seed)], experiments[name], run


def seed_table(experiments: Experiments) -> str:
    """Every run: which epoch validation chose, and what it gave."""
    rows = []
    for words, runs, run in _runs(experiments):
        curves, epoch = runs.validation[run], runs.chosen[run]
        figures = [curves[name][epoch] for name in ("accuracy", "auroc")]
        figures += [values[run] for values, _ in measured(runs).values()]
        rows.append([*words, f"{epoch + 1} of {len(curves['auroc'])}", *map(number, figures)])
    head = ["corpus", "seed", "epoch chosen", "validation accuracy", "validation AUROC"]
    return table([*head, *(f"test {measure}" for measure in MEASURES.values())], rows)


def epoch_table(experiments: Experiments) -> str:
    """What the choice of the epoch means, on validation: the epoch chosen beside the last one."""
    rows = []
    for words, runs, run in _runs(experiments):
        curves, epoch = runs.validation[run], runs.chosen[run]
        figures = [number(curves[name][at]) for name in _CURVES for at in (epoch, -1)]
        rows.append([*words, f"{epoch + 1} / {len(curves['auroc'])}", *figures])
    head = [heading for words in _CURVES.values() for heading in (f"{words}, chosen", "last")]
    return table(["corpus", "seed", "epoch, chosen / last", *head], rows)


def permutation_table(experiments: Experiments, names: Mapping[str, str]) -> str:
    """How far shuffling moves the prediction, over all texts of each of some experiments."""
    rows = []
    for name, words in names.items():
        columns = experiments[name].test("attention_permutation")
        tvd = columns["median_tvd"]
        attention, mean, flips = map(
            of_means, (columns["max_attention"], tvd, columns["flip_rate"])
        )
        median = over_seeds(resampled_quantile(tvd))
        rows.append([words, f"{tvd.shape[1]:,}", attention, median, mean, flips])
    head = ["corpus", "texts", "maximum attention, mean", "median TVD, median over texts"]
    return table([*head, "median TVD, mean over texts", "flip rate, mean"], rows)


def bin_table(experiments: Experiments, published: Published) -> str:
    """Medians by bin of maximum attention and predicted class, a column per seed."""
    rows = []
    seeds = sorted({seed for name in published["median_tvd"] for seed in experiments[name].seeds})
    for name, theirs in published["median_tvd"].items():
        columns = experiments[name].test("attention_permutation")
        bins = bins_of(columns["max_attention"])
        for predicted, place in np.ndindex(len(CLASSES), len(BINS)):
            members = (columns["prediction"] == predicted) & (bins == place)
            found = map(median, columns["median_tvd"], members)
            by_seed = dict(zip(experiments[name].seeds, found, strict=True))
            words = ["", ""] if place else [TEXT[name], CLASSES[predicted]]
            cells = [by_seed.get(seed, "") for seed in seeds]
            rows.append([*words, BINS[place], theirs[predicted][place] or DASH, *cells])
    head = ["corpus", "predicted", "maximum attention", "Jain & Wallace"]
    return table([*head, *(f"here, seed {seed}" for seed in seeds)], rows, 3)


def bins_of(max_attention: NDArray[np.floating]) -> NDArray[np.intp]:
    """Which of Jain & Wallace's four bins of maximum attention each text falls into."""
    return np.asarray(np.digitize(max_attention, EDGES[1:-1]))


def median(values: NDArray[np.floating], members: NDArray[np.bool_]) -> str:
    """Median of some of the values (n,) and how many they are."""
    if not members.any():
        return DASH
    return f"{np.median(values[members]):.3f} ({members.sum():,})"

"""The tables of the page, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results_page.kept import Experiment
from results_page.measures import (
    accuracy,
    attention_bin,
    auroc,
    interval,
    positive_f1,
)

TEXT = {
    "sst_bilstm": "SST, sentences",
    "sst_phrases_bilstm": "SST, with phrases",
    "imdb_bilstm": "IMDb, 7 to 399 words",
}
MEASURES = {"accuracy": "accuracy", "positive_f1": "F1 of the positive class", "auroc": "AUROC"}
_TVD, _FLIPS = "attention_permutation/median_tvd", "attention_permutation/flip_rate"
BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
CLASSES = ("negative", "positive")
DASH = "–"  # noqa: RUF001

Columns = Mapping[str, NDArray[Any]]
# What a measure is on some rows of one run.
Measure = Callable[[Columns, int, NDArray[np.intp]], float]
_ON_ROWS: dict[str, Measure] = {
    "accuracy": lambda c, s, rows: accuracy(c["label"][rows], c["prediction"][s, rows]),
    "positive_f1": lambda c, s, rows: positive_f1(c["label"][rows], c["prediction"][s, rows]),
    "auroc": lambda c, s, rows: auroc(c["label"][rows], c["probabilities"][s, rows, 1]),
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A Markdown table whose first columns are words, the others numbers."""
    ruler = ["---"] * words + ["---:"] * (len(head) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ruler, *rows])


def outcome(
    name: str,
    measure: str,
    bound: float,
    values: Sequence[float],
    most: bool = False,
    digits: int = 3,
) -> list[str]:
    """A row that holds the mean of some values against a bound."""
    found = float(np.mean(values))
    met = found <= bound if most else found >= bound
    words = f"{'at most' if most else 'at least'} {bound:g}"
    return [name, measure, words, f"{found:.{digits}f}", "yes" if met else "**no**"]


def number(value: float) -> str:
    """Three decimals; a dash where undefined."""
    return DASH if np.isnan(value) else f"{value:.3f}"


def summary(per_seed: Callable[[NDArray[np.intp]], list[float]], instances: int) -> str:
    """Mean over seeds, standard deviation over seeds, and interval over instances."""
    everything = np.arange(instances)
    values = per_seed(everything)
    low, high = interval(lambda rows: float(np.mean(per_seed(rows))), instances)
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread} [{low:.3f}, {high:.3f}]"


def of_means(values: NDArray[np.floating]) -> str:
    """`summary` of a measure that is a mean over texts, (S, n), each text defined or in no seed."""
    defined = values[:, ~np.isnan(values[0])].astype(np.float64)
    return summary(lambda rows: list(defined[:, rows].mean(axis=1)), defined.shape[1])


def of_medians(values: NDArray[np.floating]) -> str:
    """`summary` of a measure that is a median over texts, (S, n)."""
    return summary(lambda rows: list(np.median(values[:, rows], axis=1)), values.shape[1])


def _measure(experiment: Experiment, name: str) -> str:
    columns = experiment.test("predictions")
    seeds = range(len(experiment.seeds))
    return summary(
        lambda rows: [_ON_ROWS[name](columns, seed, rows) for seed in seeds], len(columns["index"])
    )


def accuracy_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Ours beside the published figures."""
    rows = []
    for name, experiment in experiments.items():
        label = experiment.test("predictions")["label"]
        texts = f"{(label == 0).sum():,} / {(label == 1).sum():,}"
        found = [_measure(experiment, measure) for measure in MEASURES]
        rows.append([TEXT[name], "here", texts, str(len(experiment.seeds)), *found])
        for theirs in published["accuracy"].get(name, ()):
            texts = " / ".join(f"{count:,}" for count in theirs.get("texts", ())) or DASH
            known = [theirs.get(measure, DASH) for measure in MEASURES]
            rows.append(["", published["sources"][theirs["source"]], texts, DASH, *known])
    head = ["corpus", "from", "test texts, negative / positive", "seeds", *MEASURES.values()]
    return table(head, rows, words=2)


def seed_table(experiments: Mapping[str, Experiment]) -> str:
    """Every run: which epoch validation chose, and what it gave."""
    rows = []
    for name, experiment in experiments.items():
        columns = experiment.test("predictions")
        everything = np.arange(len(columns["index"]))
        for run, seed in enumerate(experiment.seeds):
            curves, epoch = experiment.validation[run], experiment.chosen[run]
            chosen = [number(curves[metric][epoch]) for metric in ("accuracy", "auroc")]
            found = [number(_ON_ROWS[m](columns, run, everything)) for m in MEASURES]
            epochs = f"{epoch + 1} of {len(curves['auroc'])}"
            rows.append(["" if run else TEXT[name], str(seed), epochs, *chosen, *found])
    head = ["corpus", "seed", "epoch chosen", "validation accuracy", "validation AUROC"]
    return table([*head, *(f"test {measure}" for measure in MEASURES.values())], rows)


def permutation_table(experiments: Mapping[str, Experiment], names: Mapping[str, str]) -> str:
    """How far shuffling moves the prediction, over all texts."""
    rows = []
    for name, experiment in experiments.items():
        columns = experiment.test("attention_permutation")
        tvd = columns["median_tvd"].astype(np.float64)
        found = [
            of_means(columns["max_attention"]),
            of_medians(tvd),
            of_means(tvd),
            of_means(columns["flip_rate"]),
        ]
        rows.append([names[name], f"{tvd.shape[1]:,}", *found])
    head = ["corpus", "texts", "maximum attention, mean", "median TVD, median over texts"]
    return table([*head, "median TVD, mean over texts", "flip rate, mean"], rows)


def epoch_table(experiments: Mapping[str, Experiment]) -> str:
    """What the choice of the epoch means, on validation: the epoch chosen beside the last one."""
    rows = []
    for name, experiment in experiments.items():
        for run, (seed, epoch) in enumerate(zip(experiment.seeds, experiment.chosen, strict=True)):
            curves = experiment.validation[run]
            found = [
                number(curves[measure][at])
                for measure in ("accuracy", "auroc", "predictions/max_attention", _TVD, _FLIPS)
                for at in (epoch, -1)
            ]
            epochs = f"{epoch + 1} / {len(curves['auroc'])}"
            rows.append(["" if run else TEXT[name], str(seed), epochs, *found])
    head = ["corpus", "seed", "epoch, chosen / last"]
    for measure in ("accuracy", "AUROC", "maximum attention", "median TVD", "flip rate"):
        head += [f"{measure}, chosen", "last"]
    return table(head, rows)


def bin_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Medians by bin of maximum attention and predicted class, a column per seed."""
    rows = []
    seeds = sorted({seed for name in published["median_tvd"] for seed in experiments[name].seeds})
    for name, theirs in published["median_tvd"].items():
        columns = experiments[name].test("attention_permutation")
        bins = attention_bin(columns["max_attention"])
        for predicted, place in np.ndindex(len(CLASSES), len(BINS)):
            members = (columns["prediction"] == predicted) & (bins == place)
            found = map(_median, columns["median_tvd"], members)
            by_seed = dict(zip(experiments[name].seeds, found, strict=True))
            words = ["", ""] if place else [TEXT[name], CLASSES[predicted]]
            cells = [by_seed.get(seed, "") for seed in seeds]
            rows.append([*words, BINS[place], theirs[predicted][place] or DASH, *cells])
    head = ["corpus", "predicted", "maximum attention", "Jain & Wallace"]
    return table([*head, *(f"here, seed {seed}" for seed in seeds)], rows, words=3)


def _median(values: NDArray[np.floating], members: NDArray[np.bool_]) -> str:
    if not members.any():
        return DASH
    return f"{np.median(values[members]):.3f} ({members.sum():,})"

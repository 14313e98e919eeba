"""Jain & Wallace's questions: does attention agree with other importance, and between seeds?

Tau with gradients and leave-one-out and between seeds, for SST also by vectors, epoch and initial
scale, and adversarial attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from attnlight.errors import InputError
from attnlight.records.parquet import read_table
from attnlight.report.measure_bounds import UNIT, measure_bounds
from attnlight.statistics import difference_of_groups, seeds_then_instances
from attnlight.statistics.agreement import mean_over_pairs
from results_page import NAMES
from results_page.archive import Archive
from results_page.tables import (
    CLASSES,
    DASH,
    Row,
    interval,
    number,
    with_deviation,
)

_NAMES = NAMES["importance"]
PAIRS: dict[str, list[str]] = _NAMES["pairs"]
JS = ("worst_js", "worst_share", "search_js")
AGREEMENT = "reliability.parquet"  # beside the archived runs of an experiment
WITH_ITSELF: dict[str, str] = _NAMES["with_itself"]
ARMS: dict[str, list[str]] = _NAMES["arms"]
SCALED: dict[str, str] = _NAMES["scaled"]
WIDER = "_scale_0.3"
# Names of Jain & Wallace's experiments on the page.
MODELS = {
    f"{c}_{e}{end}": {"corpus": corpus, "encoder": encoder, "attention": attention}
    for c, corpus in _NAMES["corpora"].items()
    for end, attention in _NAMES["attentions"].items()
    for e, encoder in _NAMES["encoders"].items()
}


def adversaries(archive: Archive) -> Iterator[Row]:
    """Worst-case JS over all texts and by predicted class: exact, as a share of its ceiling, and by search."""
    limits = measure_bounds("js")
    for name, words in MODELS.items():
        columns = archive[name].test("adversarial_attention", partial=True)
        published = archive.published["search_js"].get(name, [None, None])
        for place, predicted in enumerate(("all", *CLASSES)):
            members = (columns["prediction"] == place - 1) | (place == 0)
            worst, share, searched = (
                np.where(members, columns.get(measure, np.nan), np.nan) for measure in JS
            )
            above = np.where(np.isnan(worst), np.nan, worst > 0.6)
            yield {
                **(dict.fromkeys(words, "") if place else words),
                "predicted": predicted,
                "seeds": len(members),
                "texts": f"{members.sum(axis=1).mean():,.0f}",
                "worst JS": seeds_then_instances(worst, bounds=limits),
                "share of ceiling": seeds_then_instances(share, bounds=UNIT),
                "share above 0.6": number(np.nanmean(np.nanmean(above, axis=1), axis=0), 2),
                "texts searched": f"{(~np.isnan(searched)).sum(axis=1).mean():,.0f}",
                "JS of the search": seeds_then_instances(searched, bounds=limits),
                "exact less search": seeds_then_instances(worst - searched),
                "search, published": published[place - 1] if place else None,
            }


def reliability(
    archive: Archive,
    models: Mapping[str, Row] = MODELS,
    with_itself: Mapping[str, str] = WITH_ITSELF,
) -> Iterator[Row]:
    """Agreement of each model's seeds: after its words a cell for each of `with_itself`.

    A cell is the mean tau over pairs of seeds with an interval over seeds and texts (for two seeds
    over texts alone), then the lowest and the highest pair; None for a single seed.

    Raises:
        InputError: The compared runs are not the archived ones.
    """
    for experiment, words in models.items():
        folders = archive[experiment].folders
        path = folders[0].parent / AGREEMENT
        if not path.exists():
            yield words | {"seeds": 1, "texts": None} | dict.fromkeys(with_itself.values())
            continue
        agreement = read_table(path).to_pandas()
        runs = [f"{archive[experiment].name}/{run.name}" for run in folders]
        pairs = agreement[["first", "second"]].drop_duplicates().to_numpy()
        if [*map(tuple, pairs)] != [*combinations(runs, 2)]:
            raise InputError(
                f"{path} compares other runs than those beside it; archive them again."
            )
        index = agreement["index"].unique()
        row = words | {"seeds": len(runs), "texts": len(index)}
        for name, cell in with_itself.items():
            tau = agreement[name].to_numpy(np.float64).reshape(-1, len(index))
            by_pair = np.nanmean(tau, axis=1)
            ends = f", pairs {number(by_pair.min(), 2)} to {number(by_pair.max(), 2)}"
            mean = mean_over_pairs(tau, len(runs), index, bounds=(-1, 1))
            row |= {cell: interval(mean) + (ends if len(tau) > 1 else "")}
        yield row


def arms(archive: Archive) -> Iterator[Row]:
    """Tau of both encoders over seeds, their difference, and the published means."""
    published = archive.published["tau_overall"]
    for arm, names in ARMS.items():
        both = [archive[name].test("importance_correlation") for name in names]
        for place, (pair, (column, key)) in enumerate(PAIRS.items()):
            bilstm, average = (columns[column] for columns in both)
            taus = [seeds_then_instances(x, bounds=(-1, 1)) for x in (bilstm, average)]
            yield {
                "arm": "" if place else arm,
                "tau between": pair,
                "seeds": len(bilstm),
                "BiLSTM": with_deviation(taus[0], 2),
                "average encoder": with_deviation(taus[1], 2),
                "difference": difference_of_groups(average, bilstm, bounds=(-1, 1)),
                "BiLSTM, published": (published["sst_bilstm"][key] or DASH).split()[0],
                "average, published": (published["sst_average"][key] or DASH).split()[0],
            }
        # Agreement of each score across seeds, the scale on which to read a tau.
        first, second = reliability(archive, {name: {} for name in names})
        empty = dict.fromkeys(("difference", "BiLSTM, published", "average, published"))
        for words in WITH_ITSELF.values():
            row = {"tau between": words, "seeds": first["seeds"], "BiLSTM": first[words]}
            yield row | {"average encoder": second[words]} | empty


def by_epoch(archive: Archive) -> Iterator[Row]:
    """Tau on validation by epoch of training, mean over the seeds that reached the epoch."""
    for name, words in _NAMES["epochs"].items():
        for place, column in enumerate(("input_gradient", "loo")):
            curve = f"importance_correlation/tau_attention_{column}"
            arm, encoder = ("", "") if place else words
            row = {"arm": arm, "encoder": encoder, "attention with": column.replace("_", " ")}
            for epoch, taus in archive[name].curves[curve].groupby("epoch"):
                row[str(epoch + 1)] = f"{taus.mean():.2f} ({taus.count()})"
            yield row


# Encoders by the initial scale of the random vectors.
SCALES: dict[str, Row] = {
    base + end: {"encoder": encoder, "initial scale": scale}
    for base, encoder in SCALED.items()
    for scale, end in (("0.1", ""), ("0.3", WIDER))
}

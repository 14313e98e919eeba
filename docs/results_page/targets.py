"""Targets of the experiments and studies, and whether they were met."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnlight.statistics import difference_of_groups
from results_page.archive import Archive
from results_page.findings import Tables
from results_page.importance import ARMS, PAIRS
from results_page.tables import Row

LEAST, MOST = "at least", "at most"
_F1 = "F1 of the positive class"
# Table, column and row of a mean; its name, the side of the bound, and the bound.
_MEANS = (
    ("accuracy", "accuracy", "SST, sentences", "test accuracy", LEAST, 0.76),
    ("accuracy", "accuracy", "SST, with phrases", "test accuracy", LEAST, 0.83),
    ("accuracy", _F1, "IMDb, 7 to 399 words", f"test {_F1}", LEAST, 0.87),
    ("planted", "all", "planted, no encoder", "test accuracy", LEAST, 0.98),
    ("planted", "all", "planted with negation, BiLSTM", "test accuracy", LEAST, 0.95),
    (
        *("planted", "negated", "planted with negation, no encoder"),
        *("test accuracy on negated texts", MOST, 0.6),
    ),
)
_CHUNK_F1 = {"`study`: the released encoder": 0.9, "BiLSTM below `residual`": 0.925}
_HIGH = 0.6  # JS
_STUDY, _VECTORS = "wiegreffe_pinter_sst", "wiegreffe_pinter_sst_vectors"


def targets(archive: Archive, tables: Tables) -> Iterator[Row]:
    """Each target with the mean over seeds, or the end of its interval, compared with it."""
    measured: list[tuple[str, str, str, float, float]] = []
    for place, column, name, measure, side, bound in _MEANS:
        measured.append((name, measure, side, bound, tables.cell(place, column, name).value))
    published = archive.published["tau_overall"]["average"]
    for arm, names in ARMS.items():
        columns_by_encoder = [archive[name].test("importance_correlation") for name in names]
        for pair in ("attention, gradient", "attention, leave-one-out"):
            column, key = PAIRS[pair]
            bilstm, average = (columns[column] for columns in columns_by_encoder)
            low = difference_of_groups(average, bilstm).low
            away = abs(np.nanmean(average) - float(published[key]))
            above = f"tau of {pair}: average encoder less BiLSTM, lower end of the interval"
            distance = f"tau of {pair}: distance of the average encoder's from the published"
            measured.append((f"SST, {arm}", above, LEAST, 0.2, low))
            measured.append((f"SST, {arm}", distance, MOST, 0.1, away))
    for model, bound in _CHUNK_F1.items():
        f1 = tables.cell("chunking", "F1, test", model).value
        measured.append((f"CoNLL-2000, {model}", "test chunk F1", LEAST, bound, f1))
    # The highest mean JS over lambdas, and the number of lambdas with an intermediate JS.
    js = tables.cells(f"{_STUDY}_lambdas", "JS").items()
    means = {lam: cell.value for lam, cell in js if lam.startswith("KL, ")}
    between = sum(means["KL, λ = 0"] < mean < _HIGH for mean in means.values())
    path = f"lambdas with a mean JS between lambda 0's and {_HIGH:g}"
    name = "SST, random vectors, adversaries by KL"
    measured.append((name, "highest mean JS of a lambda", LEAST, _HIGH, max(means.values())))
    measured.append((name, path, LEAST, 3, between))
    # JS of the adversary chosen on validation, and its losses compared with lambda 0.
    js, tvd, f1 = (tables.cells(f"{_VECTORS}_table4", column) for column in ("JS", "TVD", "F1"))
    best = next(cell.value for words, cell in js.items() if words.startswith("best adversary"))
    lost, moved = (column["best less λ = 0"].value for column in (tvd, f1))
    name = "SST, vectors trained on IMDb and SST, adversary chosen on validation"
    measured.append((name, "mean JS", LEAST, 0.4, best))
    measured.append((name, "mean TVD, above lambda 0's", MOST, 0.04, lost))
    measured.append((name, "F1, distance from lambda 0's", MOST, 0.02, abs(moved)))
    for experiment, measure, side, bound, value in measured:
        met = value >= bound if side == LEAST else value <= bound
        row = {"experiment": experiment, "measure": measure, "target": f"{side} {bound:g}"}
        yield row | {"found": value, "met": "yes" if met else "**no**"}

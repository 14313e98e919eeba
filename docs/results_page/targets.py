"""What was asked of the experiments and the kept studies, and whether it was met."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attnlight.report.study import read_study
from attnlight.report.study.estimates import JS, TVD, Estimates
from attnlight.report.study.frame import F1
from attnlight.report.study.groups import cells, chosen
from attnlight.statistics import difference_of_groups
from results_page.importance import ARMS, PAIRS
from results_page.kept import Kept
from results_page.planted import NAMES, groups
from results_page.predictions import TAGGERS, TEXT, chunk_f1, measured
from results_page.studies import FOLDER
from results_page.tables import Row

LEAST, MOST = "at least", "at most"
# Studies whose grid of lambdas must span JS, and whose chosen adversary must imitate the base.
GRIDS = {"wiegreffe_pinter_sst": "SST, random vectors"}
IMITATIONS = {"wiegreffe_pinter_sst_vectors": "SST, vectors trained on IMDb and SST"}
_HIGH = 0.6
# Experiment, measure, side of the bound, bound, and what was found.
Target = tuple[str, str, str, float, float]


def targets(kept: Kept) -> Iterator[Row]:
    """Each target with the mean over seeds, or the end of its interval, that it is held against."""
    theirs = kept.published["tau_overall"]["average"]
    found: list[Target] = []
    for name, measure, bound in (
        ("sst_bilstm", "accuracy", 0.76),
        ("sst_phrases_bilstm", "accuracy", 0.83),
        ("imdb_bilstm", "positive_f1", 0.87),
        ("planted_none", "accuracy", 0.98),
        ("planted_negation_bilstm", "accuracy", 0.95),
    ):
        words = "test accuracy" if measure == "accuracy" else "test F1 of the positive class"
        value = measured(kept[name])[measure][0].mean()
        found.append(((TEXT | NAMES)[name], words, LEAST, bound, value))
    name = "planted_negation_none"
    columns, negated = kept[name].test("predictions"), groups(kept[name].predicted()[0])["negated"]
    right = (columns["prediction"] == columns["label"])[:, negated].mean()
    found.append((NAMES[name], "test accuracy on negated texts", MOST, 0.6, right))
    for arm, names in ARMS.items():
        both = [kept[name].test("importance_correlation") for name in names.values()]
        for pair in ("attention, gradient", "attention, leave-one-out"):
            column, key = PAIRS[pair]
            bilstm, average = (columns[column] for columns in both)
            low = difference_of_groups(average, bilstm).low
            words = f"tau of {pair}: average encoder less BiLSTM, lower end of the interval"
            found.append((f"SST, {arm}", words, LEAST, 0.2, low))
            away = abs(np.nanmean(average) - float(theirs[key]))
            words = f"tau of {pair}: distance of the average encoder's from the published"
            found.append((f"SST, {arm}", words, MOST, 0.1, away))
    for name, (model, _, least) in TAGGERS.items():
        if least is not None:
            value = chunk_f1(kept[name])[0].mean()
            found.append((f"CoNLL-2000, {model}", "test chunk F1", LEAST, least, value))
    for experiment, measure, side, bound, value in (*found, *study_targets(kept.root / FOLDER)):
        met = value >= bound if side == LEAST else value <= bound
        row = {"experiment": experiment, "measure": measure, "target": f"{side} {bound:g}"}
        yield row | {"found": value, "met": "yes" if met else "**no**"}


def study_targets(folder: Path) -> list[Target]:
    """What was asked of the adversaries of the studies that are kept.

    Args:
        folder: docs/results/studies.
    """
    found: list[Target] = []
    for name, corpus in (GRIDS | IMITATIONS).items():
        if not (folder / name).is_dir():
            continue
        study = read_study(folder / name)
        estimates, base = Estimates(study), study.bases[0]
        if name in GRIDS:  # how far JS rises with lambda, and how many lambdas lie on the way
            words = f"{corpus}, adversaries by KL"
            means = {
                cell.lam: float(estimates.per_seed(cell.runs, JS).mean())
                for cell in cells(study, base)
                if len(cell.runs) and cell.term in (None, "kl")
            }
            floor = means.pop(0.0)
            between = sum(floor < mean < _HIGH for mean in means.values())
            path = f"lambdas with a mean JS between lambda 0's and {_HIGH:g}"
            found.append((words, "highest mean JS of a lambda", LEAST, _HIGH, max(means.values())))
            found.append((words, path, LEAST, 3, between))
        if name in IMITATIONS:  # JS, and what imitation loses beside lambda 0's
            words = f"{corpus}, adversary chosen on validation"
            best, control = (
                {m: estimates.per_seed(runs, m).mean() for m in (JS, TVD, F1)}
                for runs in (chosen(study), study.controls(base))
            )
            lost, moved = best[TVD] - control[TVD], abs(best[F1] - control[F1])
            found += [
                (words, "mean JS", LEAST, 0.4, best[JS]),
                (words, "mean TVD, above lambda 0's", MOST, 0.04, lost),
                (words, "F1, distance from lambda 0's", MOST, 0.02, moved),
            ]
    return found

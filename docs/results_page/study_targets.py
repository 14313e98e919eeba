"""What was asked of the adversaries of the kept studies, and whether it was met."""

from __future__ import annotations

from pathlib import Path

from attnlight.report.study import read_study
from attnlight.report.study.estimates import JS, TVD, Estimates
from attnlight.report.study.frame import F1
from attnlight.report.study.groups import cells, chosen
from results_page.tables import outcome

# Studies whose grid of lambdas must span JS, and whose chosen adversary must imitate the base.
GRIDS = {"wiegreffe_pinter_sst": "SST, random vectors"}
IMITATIONS = {"wiegreffe_pinter_sst_vectors": "SST, vectors trained on IMDb and SST"}
_HIGH = 0.6


def target_rows(folder: Path) -> list[list[str]]:
    """Each target with what was found, of the studies that are kept.

    Args:
        folder: docs/results/studies.
    """
    rows = []
    for name, words in GRIDS.items():
        if (folder / name).is_dir():
            rows += _grid(folder / name, f"{words}, adversaries by KL")
    for name, words in IMITATIONS.items():
        if (folder / name).is_dir():
            rows += _imitation(folder / name, f"{words}, adversary chosen on validation")
    return rows


def _grid(folder: Path, words: str) -> list[list[str]]:
    """How far JS rises with lambda, and how many lambdas lie on the way."""
    study = read_study(folder)
    estimates, base = Estimates(study), study.bases[0]
    means = {
        cell.lam: float(estimates.per_seed(cell.runs, JS).mean())
        for cell in cells(study, base)
        if len(cell.runs) and cell.term in (None, "kl")
    }
    floor = means.pop(0.0)
    between = sum(floor < mean < _HIGH for mean in means.values())
    return [
        outcome(words, "highest mean JS of a lambda", _HIGH, [max(means.values())]),
        outcome(
            words,
            f"lambdas with a mean JS between lambda 0's and {_HIGH:g}",
            3,
            [between],
            digits=0,
        ),
    ]


def _imitation(folder: Path, words: str) -> list[list[str]]:
    """JS, and what imitation loses beside lambda 0's."""
    study = read_study(folder)
    estimates, base = Estimates(study), study.bases[0]
    best, floor = chosen(study), study.controls(base)
    # Without intervals, which no target is held against.
    js, tvd, f1 = (estimates.per_seed(best, measure).mean() for measure in (JS, TVD, F1))
    tvd_floor, f1_floor = (estimates.per_seed(floor, measure).mean() for measure in (TVD, F1))
    return [
        outcome(words, "mean JS", 0.4, [js]),
        outcome(words, "mean TVD, above lambda 0's", 0.04, [tvd - tvd_floor], most=True),
        outcome(words, "F1, distance from lambda 0's", 0.02, [abs(f1 - f1_floor)], most=True),
    ]

"""Adversaries by lambda, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnlight.report.study.estimates import JS, Runs, SeedEstimates
from attnlight.report.study.groups import chosen, grid
from attnlight.report.study.plan import Plan
from attnlight.report.tables import number

REACHED = 0.4  # mean JS that an adversary needs to be chosen (Wiegreffe & Pinter, section 4)
_DASH = number(float("nan"))
_GAP = (0.35, 0.6)  # mean JS between an imitation's and that of an adversary that got away


def selection(study: Plan) -> str:
    """How the best adversary was chosen, and whether it is what the paper asks for."""
    if study.selected is None:
        return "No adversary is chosen yet."
    if not chosen(study, study.bases[0]):
        return "No adversary of the chosen lambda is finished."
    term = term_name(study.selected[0])
    reached = [run.validation.get(JS) for run in chosen(study, study.bases[0])]
    known = [value for value in reached if value is not None]
    if known and np.mean(known) < REACHED:
        return (
            f"No lambda of {term} reached a mean JS of {REACHED:g} on validation; the best "
            "adversary is the one with the largest."
        )
    return (
        f"The best adversary is chosen on validation: of those of {term} with a mean JS of at "
        f"least {REACHED:g} the one with the highest {study.criterion}."
    )


def words_of(term: str | None, lam: float) -> str:
    """What an attention term and its weight are called."""
    return f"{term_name(term)}, λ = {lam:g}" if term else f"λ = {lam:g}"


def term_name(term: str) -> str:
    """What an attention term is called."""
    return "KL (released scale)" if term == "compat" else term.upper()


def median_epoch(runs: Runs) -> str:
    """The median epoch that validation chose, from 1, with the first and last."""
    return median_and_range([run.epoch + 1 for run in runs if run.epoch is not None])


def median_and_range(numbers: Sequence[int]) -> str:
    """The median with the least and largest; a dash where there is none."""
    if not numbers:
        return _DASH
    middle, low, high = f"{np.median(numbers):g}", min(numbers), max(numbers)
    return middle if low == high else f"{middle} ({low} to {high})"


def gaps(study: Plan, estimates: SeedEstimates) -> Iterator[str]:
    """Whether the grid jumps over the middle: a sentence for each term where it does."""
    cells = [cell for cell in grid(study) if cell[0] == study.bases[0] and cell[3]]
    for term in sorted({term for _, term, lam, _ in cells if term and lam > 0}):
        means = [estimates.of(runs, JS).mean for _, own, lam, runs in cells if own == term and lam]
        if max(means) >= _GAP[1] and not any(_GAP[0] < mean < _GAP[1] for mean in means):
            yield f"No lambda of {term_name(term)} has a mean JS between {_GAP[0]:g} and {_GAP[1]:g}."

"""Changepoints in the loss of adversaries as their attention diverges from the base's."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.figures.tables import number
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, Estimates
from attnlight.report.study.frame import Runs
from attnlight.report.study.groups import lambda_paths, term_name
from attnlight.report.study.texts import capital, text
from attnlight.statistics.changepoint import VERY_STRONG, Segments, fit_segments

LOSSES = {NLL_BASE: "the base's labels", NLL_GOLD: "gold labels"}
NO_CHANGEPOINT, KINK, JUMP, UNDECIDED = "no bend", "kink", "jump", "a bend, kink or jump"


class Changepoint(NamedTuple):
    """Segmented regression of a loss of adversaries on the JS of their attention."""

    points: str  # name of the set of adversaries
    measure: str  # the loss
    runs: Runs  # the adversaries whose loss and JS are finite, with these as `loss` and `js`
    fits: Segments | None  # the fitted line, kink and jump; None if there are too few points
    # The supported shape: a kink or jump needs a BIC more than 10 below any other shape's.
    shape: str
    sides: Sequence[Runs]  # the runs below the changepoint and above it; empty if none is supported


def find_changepoint(
    estimates: Estimates, base: str, measure: str, term: str | None = None, collapsed: bool = True
) -> Changepoint:
    """Fit a line, a kink and a jump to a loss of a base's adversaries, lambda 0 included.

    The adversaries are those of one attention term or of all terms; those that collapsed are
    left out unless `collapsed`.
    """
    by_term = lambda_paths(estimates.study, base)
    if term is None and len(by_term) == 1:
        (term,) = by_term
    runs = estimates.study.finished("adversary", base=base)
    if term is not None:
        groups = by_term.get(term, {}).values()
        runs = runs.loc[[name for group in groups for name in group.index]]
    points = "all terms" if term is None else term_name(term)
    if not collapsed:
        runs, points = runs[~runs["collapsed"]], f"{points}, without collapsed runs"
    runs = runs.assign(js=estimates.per_seed(runs, JS), loss=estimates.per_seed(runs, measure))
    runs = runs[np.isfinite(runs[["js", "loss"]]).all(axis=1)]
    try:
        fits = fit_segments(runs["js"].to_numpy(), runs["loss"].to_numpy())
    except InputError:
        return Changepoint(points, measure, runs, None, NO_CHANGEPOINT, ())
    if fits.over_line <= VERY_STRONG:
        return Changepoint(points, measure, runs, fits, NO_CHANGEPOINT, ())
    shape = fits.preferred.shape if fits.margin > VERY_STRONG else UNDECIDED
    beyond = runs["js"] > fits.preferred.place
    return Changepoint(points, measure, runs, fits, shape, (runs[~beyond], runs[beyond]))


def find_changepoints(
    estimates: Estimates, base: str, each_term: bool = True
) -> Iterator[Changepoint]:
    """Fits of both losses, for all terms together and, if `each_term`, for each term.

    Where runs collapsed, a second fit leaves them out.
    """
    terms: list[str | None] = list(lambda_paths(estimates.study, base))
    terms = [None, *terms] if len(terms) > 1 else terms
    for measure in LOSSES:
        for term in terms if each_term else terms[:1]:
            yield (changepoint := find_changepoint(estimates, base, measure, term))
            if changepoint.runs["collapsed"].any():
                yield find_changepoint(estimates, base, measure, term, collapsed=False)


def changepoint_sentence(changepoint: Changepoint) -> str:
    """The sentence on the shape of the loss and on its safe point.

    The safe point is the JS of an upward kink; it is not judged with collapsed runs among the points.
    """
    points, measure, runs, fits, shape, _ = changepoint
    subject = f"{capital(points)} ({len(runs)} runs), loss against {LOSSES[measure]}"
    if fits is None:
        return f"{subject}: too few points for a bend."
    best = fits.preferred
    numbers = {
        "less": f"{fits.line.bic - min(fits.kink.bic, fits.jump.bic):.1f}",
        "over_line": f"{fits.over_line:.1f}",
        "margin": f"{fits.margin:.1f}",
        "place": number(best.place),
        "change": number(best.change),
        "slope": number(best.slope),
        "turned": number(best.slope + best.change),
    }
    safe = ": the safe point" if shape == KINK and best.change > 0 else ": no safe point"
    decides = not runs["collapsed"].any()
    return f"{subject}: {text('shapes', shape, **numbers)}{safe if decides else ''}."

"""Whether the loss of adversaries bends as their attention diverges from the base's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, Estimates
from attnlight.report.study.groups import paths, term_name
from attnlight.report.study.texts import capital, text
from attnlight.report.tables import number
from attnlight.statistics.changepoint import VERY_STRONG, Segments, fit_segments

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs

LOSSES = {NLL_BASE: "the base's labels", NLL_GOLD: "gold labels"}
NO_BEND, KINK, JUMP, UNDECIDED = "no bend", "kink", "jump", "a bend, kink or jump"


class Bend(NamedTuple):
    """Three shapes fitted to a loss of some adversaries against the JS of their attention.

    Attributes:
        points: What the points are, in words.
        measure: The loss.
        runs: The adversaries whose loss and JS are finite, with these as `loss` and `js`.
        fits: The shapes; None where there are too few points.
        shape: What is shown: a kink or jump needs a BIC more than 10 less than any other shape's.
        sides: The runs of a JS up to the bend and beyond it; empty where no bend is shown.
    """

    points: str
    measure: str
    runs: Runs
    fits: Segments | None
    shape: str
    sides: Sequence[Runs]


def find_bend(
    estimates: Estimates, base: str, measure: str, term: str | None = None, whole: bool = True
) -> Bend:
    """Fit the shapes to a loss of a base's adversaries, those of lambda 0 included.

    They are those of one attention term or of all, as a whole or without those that collapsed.
    """
    by_term = paths(estimates.study, base)
    if term is None and len(by_term) == 1:
        (term,) = by_term
    runs = estimates.study.finished("adversary", base=base)
    if term is not None:
        runs = runs.loc[[name for own in by_term.get(term, {}).values() for name in own.index]]
    points = "all terms" if term is None else term_name(term)
    if not whole:
        runs, points = runs[~runs["collapsed"]], f"{points}, without collapsed runs"
    runs = runs.assign(js=estimates.per_seed(runs, JS), loss=estimates.per_seed(runs, measure))
    runs = runs[np.isfinite(runs[["js", "loss"]]).all(axis=1)]
    try:
        fits = fit_segments(runs["js"].to_numpy(), runs["loss"].to_numpy())
    except InputError:
        return Bend(points, measure, runs, None, NO_BEND, ())
    if fits.safe_point is None:
        return Bend(points, measure, runs, fits, NO_BEND, ())
    shape = fits.preferred.shape if fits.margin > VERY_STRONG else UNDECIDED
    beyond = runs["js"] > fits.preferred.place
    return Bend(points, measure, runs, fits, shape, (runs[~beyond], runs[beyond]))


def find_bends(estimates: Estimates, base: str, each: bool = True) -> Iterator[Bend]:
    """Both losses, of all terms and, if asked, of each, with collapsed runs and without."""
    terms: list[str | None] = list(paths(estimates.study, base))
    terms = [None, *terms] if len(terms) > 1 else terms
    for measure in LOSSES:
        for term in terms if each else terms[:1]:
            yield (bend := find_bend(estimates, base, measure, term))
            if bend.runs["collapsed"].any():
                yield find_bend(estimates, base, measure, term, whole=False)


def bend_sentence(bend: Bend) -> str:
    """What shape the points have.

    Points of which some collapsed stand apart and do not say whether there is a safe point: the
    JS up to which the loss does not rise as it does beyond, at a kink upwards alone.
    """
    who = f"{capital(bend.points)} ({len(bend.runs)} runs), loss against {LOSSES[bend.measure]}"
    if bend.fits is None:
        return f"{who}: too few points for a bend."
    best = bend.fits.preferred
    numbers = {
        "less": f"{bend.fits.line.bic - min(bend.fits.kink.bic, bend.fits.jump.bic):.1f}",
        "over_line": f"{bend.fits.over_line:.1f}",
        "margin": f"{bend.fits.margin:.1f}",
        "place": number(best.place),
        "change": number(best.change),
        "slope": number(best.slope),
        "turned": number(best.slope + best.change),
    }
    safe = ": the safe point" if bend.shape == KINK and best.change > 0 else ": no safe point"
    decides = not bend.runs["collapsed"].any()
    return f"{who}: {text('shapes', bend.shape, **numbers)}{safe if decides else ''}."

"""Does the loss of adversaries bend where attention leaves the base's: line, kink or jump?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.study.estimates import JS
from attnlight.report.study.lambdas import term_name
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.sentences import capital
from attnlight.report.tables import number
from attnlight.report.tagging.collapse import Collapse
from attnlight.report.tagging.estimates import NLL_BASE, NLL_GOLD, TaggingEstimates
from attnlight.report.tagging.groups import adversaries, terms
from attnlight.report.tagging.reading import TaggingStudy
from attnlight.statistics.changepoint import VERY_STRONG, Segments, fit_segments

LOSSES = {NLL_BASE: "the base's labels", NLL_GOLD: "gold labels"}
NO_BEND, KINK, JUMP, UNDECIDED = "no bend", "kink", "jump", "a bend, kink or jump"


class Bend(NamedTuple):
    """Three shapes fitted to a loss of some adversaries against the JS of their attention.

    Attributes:
        term: Attention term of the runs; None: all terms.
        measure: The loss.
        whole: Whether collapsed runs are among them.
        runs: The adversaries whose loss and JS are finite.
        js: Mean JS of each, (P,).
        loss: Loss of each, (P,).
        fits: The shapes; None where there are too few points.
    """

    term: str | None
    measure: str
    whole: bool
    runs: list[StudyRun]
    js: NDArray[np.float64]
    loss: NDArray[np.float64]
    fits: Segments | None

    @property
    def shape(self) -> str:
        """What is shown: a kink or jump needs a BIC more than 10 less than any other shape's."""
        if self.fits is None or self.fits.safe_point is None:
            return NO_BEND
        return self.fits.preferred.shape if self.fits.margin > VERY_STRONG else UNDECIDED

    @property
    def safe_point(self) -> float | None:
        """The JS up to which the loss does not rise as it does beyond; None but at a kink upwards."""
        if self.fits is None or self.shape != KINK or self.fits.kink.change <= 0:
            return None
        return self.fits.kink.place

    @property
    def sides(self) -> tuple[list[StudyRun], list[StudyRun]]:
        """The runs of a JS up to the bend and beyond it; none where no bend is shown."""
        if self.fits is None or self.shape == NO_BEND:
            return [], []
        place = self.fits.preferred.place
        beyond = (self.js > place).tolist()
        pairs = list(zip(self.runs, beyond, strict=True))
        return [run for run, far in pairs if not far], [run for run, far in pairs if far]

    @property
    def points(self) -> str:
        """What the points are, in words."""
        name = "all terms" if self.term is None else term_name(self.term)
        return name if self.whole else f"{name}, without collapsed runs"


def find_bend(
    study: TaggingStudy,
    estimates: TaggingEstimates,
    base: StudyRun,
    measure: str,
    term: str | None = None,
    without: Collapse | None = None,
) -> Bend:
    """Fit the shapes to a loss of a base's adversaries and controls.

    Args:
        study: The study.
        estimates: Its estimates.
        base: The base.
        measure: The loss.
        term: Their attention term; None: all.
        without: Leave out those that collapsed.
    """
    if term is None and len(terms(study, base)) == 1:
        (term,) = terms(study, base)
    runs = adversaries(study, base, term)
    if without is not None:
        runs = [run for run in runs if run.name not in without.names]
    js, loss = (estimates.per_seed(runs, name) for name in (JS, measure))
    finite = np.isfinite(js) & np.isfinite(loss)
    kept = [run for run, keep in zip(runs, finite, strict=True) if keep]
    js, loss = js[finite], loss[finite]
    try:
        fits = fit_segments(js, loss)
    except InputError:
        fits = None
    return Bend(term, measure, without is None, kept, js, loss, fits)


def find_bends(
    study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun, collapse: Collapse
) -> Iterator[Bend]:
    """Both losses, of all terms and of each, with collapsed runs and without."""
    found = terms(study, base)
    several: list[str | None] = [None] if len(found) > 1 else []
    for measure in LOSSES:
        for term in [*several, *found]:
            yield find_bend(study, estimates, base, measure, term)
            if collapse.of(adversaries(study, base, term)):
                yield find_bend(study, estimates, base, measure, term, collapse)


def told(bend: Bend, decides: bool = True) -> str:
    """What shape the points have, a sentence; a safe point is named at a kink upwards alone.

    Args:
        bend: The fitted shapes.
        decides: Say whether there is a safe point: not of points of which some stand apart.
    """
    who = f"{capital(bend.points)} ({len(bend.runs)} runs), loss against {LOSSES[bend.measure]}"
    if bend.fits is None:
        return f"{who}: too few points for a bend."
    safe = "the safe point" if bend.safe_point is not None else "no safe point"
    return f"{who}: {_found(bend, bend.fits)}{f': {safe}' if decides else ''}."


def _found(bend: Bend, fits: Segments) -> str:
    best, shape = fits.preferred, bend.shape
    if shape == NO_BEND:
        less = fits.line.bic - min(fits.kink.bic, fits.jump.bic)
        return f"no bend is shown (BIC of a line less that of the best bend: {less:.1f})"
    evidence = f"BIC {fits.over_line:.1f} less than a line's, {fits.margin:.1f} than the next best"
    place = f"at JS {number(best.place)}"
    if shape == UNDECIDED:
        return f"a bend {place}, of which it is open whether it is a kink or a jump ({evidence})"
    if shape == JUMP:
        return f"a jump of {number(best.change)} nats {place}, two levels and no kink ({evidence})"
    slopes = (
        f"where the slope turns from {number(best.slope)} to {number(best.slope + best.change)}"
    )
    return f"a kink {place}, {slopes} ({evidence})"

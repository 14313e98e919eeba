"""What adversaries' losses show: which runs collapsed, and whether loss bends with divergence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, Estimates
from attnlight.report.study.frame import validation
from attnlight.report.study.groups import adversaries, term_name, terms
from attnlight.report.study.texts import text
from attnlight.report.tables import number
from attnlight.statistics.changepoint import VERY_STRONG, Segments, fit_segments
from attnlight.statistics.collapse import collapse_share

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs, Study

LOSSES = {NLL_BASE: "the base's labels", NLL_GOLD: "gold labels"}
NO_BEND, KINK, JUMP, UNDECIDED = "no bend", "kink", "jump", "a bend, kink or jump"


class Collapse(NamedTuple):
    """Which adversaries of a base collapsed.

    Attributes:
        names: Names of those that did.
        threshold: The loss above which a run has, in nats a token; NaN where it cannot be told.
        ignorant: The loss of a prediction that knows nothing; NaN where the study does not say.
        unknown: Why it cannot be told; empty where it can.
    """

    names: frozenset[str] = frozenset()
    threshold: float = float("nan")
    ignorant: float = float("nan")
    unknown: str = ""

    def of(self, runs: Runs) -> Runs:
        """Those of some runs that collapsed."""
        return runs[runs.index.isin(self.names)]

    def rest(self, runs: Runs) -> Runs:
        """Those of some runs that did not."""
        return runs[~runs.index.isin(self.names)]

    def share(self, runs: Runs) -> str:
        """How many of some runs collapsed, in words; a dash where it cannot be told."""
        if self.unknown or not len(runs):
            return number(float("nan"))
        return f"{len(self.of(runs))} of {len(runs)}"

    @property
    def note(self) -> str:
        """What is called a collapse, a sentence."""
        if self.unknown:
            return f"Which runs collapsed cannot be told: {self.unknown}."
        known = {"threshold": number(self.threshold), "ignorant": number(self.ignorant)}
        return text("answers", "collapsed", **known)


def find_collapses(study: Study, base: str) -> Collapse:
    """Find the adversaries of a base, of all attention terms, whose training collapsed.

    A finished run whose loss the study does not have had no finite one.
    """
    runs, ignorant = study.finished("adversary", base=base), study.runs.at[base, "ignorant"]
    losses, lambdas = validation(runs, NLL_BASE), runs["lam"].fillna(0.0).to_numpy()
    if not np.isfinite(losses[lambdas == 0]).any():
        return Collapse(unknown="no finished run of λ = 0 has a loss on validation")
    if np.isnan(ignorant):
        return Collapse(unknown="the study does not say what knowing nothing loses")
    try:
        threshold = collapse_share(lambdas, losses, ignorant).threshold
    except InputError as error:
        return Collapse(unknown=str(error).rstrip("."))
    fallen = ~np.isfinite(losses) | (losses > threshold)
    return Collapse(frozenset(runs.index[fallen]), threshold, ignorant)


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
    runs: Runs
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
    def sides(self) -> tuple[Runs, Runs]:
        """The runs of a JS up to the bend and beyond it; none where no bend is shown."""
        if self.fits is None or self.shape == NO_BEND:
            return self.runs.iloc[:0], self.runs.iloc[:0]
        beyond = self.js > self.fits.preferred.place
        return self.runs[~beyond], self.runs[beyond]

    @property
    def points(self) -> str:
        """What the points are, in words."""
        name = "all terms" if self.term is None else term_name(self.term)
        return name if self.whole else f"{name}, without collapsed runs"


def find_bend(
    estimates: Estimates,
    base: str,
    measure: str,
    term: str | None = None,
    without: Collapse | None = None,
) -> Bend:
    """Fit the shapes to a loss of a base's adversaries and controls.

    Args:
        estimates: Estimates of the study.
        base: The base.
        measure: The loss.
        term: Their attention term; None: all.
        without: Leave out those that collapsed.
    """
    study = estimates.study
    if term is None and len(terms(study, base)) == 1:
        (term,) = terms(study, base)
    runs = adversaries(study, base, term)
    if without is not None:
        runs = without.rest(runs)
    js, loss = (estimates.per_seed(runs, name) for name in (JS, measure))
    finite = np.isfinite(js) & np.isfinite(loss)
    try:
        fits = fit_segments(js[finite], loss[finite])
    except InputError:
        fits = None
    return Bend(term, measure, without is None, runs[finite], js[finite], loss[finite], fits)


def find_bends(estimates: Estimates, base: str, collapse: Collapse) -> Iterator[Bend]:
    """Both losses, of all terms and of each, with collapsed runs and without."""
    found = terms(estimates.study, base)
    several: list[str | None] = [None] if len(found) > 1 else []
    for measure in LOSSES:
        for term in [*several, *found]:
            yield find_bend(estimates, base, measure, term)
            if len(collapse.of(adversaries(estimates.study, base, term))):
                yield find_bend(estimates, base, measure, term, collapse)


def told(bend: Bend, decides: bool = True) -> str:
    """What shape the points have, a sentence; a safe point is named at a kink upwards alone.

    Args:
        bend: The fitted shapes.
        decides: Say whether there is a safe point: not of points of which some stand apart.
    """
    points = bend.points[:1].upper() + bend.points[1:]
    who = f"{points} ({len(bend.runs)} runs), loss against {LOSSES[bend.measure]}"
    if bend.fits is None:
        return f"{who}: too few points for a bend."
    safe = "the safe point" if bend.safe_point is not None else "no safe point"
    return f"{who}: {_found(bend, bend.fits)}{f': {safe}' if decides else ''}."


def _found(bend: Bend, fits: Segments) -> str:
    best, shape = fits.preferred, bend.shape
    numbers = {
        "less": f"{fits.line.bic - min(fits.kink.bic, fits.jump.bic):.1f}",
        "over_line": f"{fits.over_line:.1f}",
        "margin": f"{fits.margin:.1f}",
        "place": number(best.place),
        "change": number(best.change),
        "slope": number(best.slope),
        "turned": number(best.slope + best.change),
    }
    return text("shapes", shape, **numbers)

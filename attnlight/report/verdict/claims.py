"""Claims of a verdict card: numbers with intervals, their bounds, and Holm's test of them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.storage.files import read_yaml

Floats = NDArray[np.float64]
Texts = NDArray[np.int64]  # dataset indices
NOT_SHOWN = "not shown"
ANSWERS = ("no", "in part", "yes")  # to a claim, of a number below, between and above its bounds


@cache
def rules() -> dict[str, Any]:
    """The content of verdict.yaml."""
    return read_yaml(Path(__file__).with_name("verdict.yaml"))


class Estimate(NamedTuple):
    """A mean over texts, or a ratio of sums over them.

    Attributes:
        value: Its value; NaN if no text counts.
        replicates: Its values in bootstrap resamples of the texts, (B,), NaN where undefined.
        texts: Number of texts that count.
    """

    value: float
    replicates: Floats
    texts: int

    @classmethod
    def of(cls, texts: Texts, numerator: Floats, denominator: Floats | None = None) -> Estimate:
        """The mean of a column (R,) by text (R,), or of two the ratio of sums; NaN does not count."""
        from attnlight.statistics.bootstrap import divide, resampled_rows

        denominator = np.ones_like(numerator) if denominator is None else denominator
        defined = ~(np.isnan(numerator) | np.isnan(denominator))
        if not defined.any():
            return cls(np.nan, np.empty(0), 0)
        pairs = np.where(defined[:, None], np.stack([numerator, denominator], axis=1), np.nan)
        replicates, observed = resampled_rows(pairs, texts)
        value = divide(observed[:1], observed[1:2])[0]
        count = len(np.unique(texts[defined]))
        return cls(float(value), divide(replicates[:, 0], replicates[:, 1]), count)

    def interval(self, confidence: float) -> tuple[float, float]:
        """The percentile interval."""
        from attnlight.statistics.bootstrap import percentile_interval

        return percentile_interval(self.replicates, confidence)

    def p_value(self, low: float, high: float) -> float:
        """Two-sided p-value of the best supported claim: below `low`, from `high` on, or between."""
        below, above = (~(self.replicates < low)).sum(), (~(self.replicates >= high)).sum()
        outside = [(~(self.replicates >= low)).sum(), (~(self.replicates < high)).sum()]
        least = min(below, above, max(outside))
        return float(min(1.0, 2 * (1 + least) / (1 + len(self.replicates))))


@dataclass
class Draft:
    """A line before it is known how many claims the card makes.

    Attributes:
        name: Its name.
        answer: Its answer, or the answers of a claim on `estimate`: below, between, above.
        says: The key of what it says in the rules.
        fields: What fills that.
        estimate: Its number.
        bounds: The lower and upper bound of a claim; None: it makes none.
        missing: As of `Line`.
        command: As of `Line`.
    """

    name: str
    answer: str | Sequence[str]
    says: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    estimate: Estimate | None = None
    bounds: tuple[float, float] | None = None
    missing: str = ""
    command: str = ""


class Claim(NamedTuple):
    """What Holm's procedure leaves of a claim: answer, adjusted p-value, and interval."""

    answer: str
    p: float
    interval: tuple[float, float]


def tested(drafts: Sequence[Draft]) -> dict[str, Claim]:
    """The claims of drafts by name, tested as Holm does, the best supported one first."""
    from attnlight.statistics.paired import holm

    possible = [
        (draft, draft.estimate, draft.bounds)
        for draft in drafts
        if draft.bounds and draft.estimate and draft.estimate.texts >= rules()["least_texts"]
    ]
    p_values = [estimate.p_value(*bounds) for _, estimate, bounds in possible]
    adjusted, left, claims = holm(p_values), len(possible), {}
    for place in np.argsort(p_values, kind="stable"):
        draft, estimate, (low, high) = possible[place]
        lower, upper = estimate.interval(1 - rules()["level"] / left)
        sides = (upper < low, low <= lower and upper < high, high <= lower)
        answer = draft.answer[sides.index(True)] if any(sides) else NOT_SHOWN
        claims[draft.name] = Claim(answer, float(adjusted[place]), (lower, upper))
        left -= any(sides)  # once a claim fails, no other is made with less confidence
    return claims

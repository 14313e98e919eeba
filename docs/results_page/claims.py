"""Serrano & Smith's numeric claims, each judged on every model by an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.erasure import SCORES, WORDS, Never, removed, sooner
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means
from attnlight.statistics.paired import paired_difference, ratio_of_shares
from results_page.measures import Statistic, interval
from results_page.serrano import CORPORA, KINDS, Model, Tested
from results_page.tables import DASH

ANY = float("inf")
ABOVE_ZERO = (float(np.nextafter(0, 1)), ANY)
BELOW_ZERO = (-ANY, float(np.nextafter(0, -1)))
AT_MOST_ZERO = (-ANY, 0.0)
OVER_HALF = (float(np.nextafter(0.5, 1)), ANY)
AT_LEAST_1_6 = (1.6, ANY)
A_QUARTER_OR_MORE = (0.25, ANY)
GRADIENTS = SCORES[1:]
HOLDS, OPEN, FAILS = "holds", "open", "does not"
Values = NDArray[np.float64]
# What becomes of texts that a ranking never flips, as the page says it.
NEVER: dict[Never, str] = {"listwise": "left out", "one": "as 1"}


class Judged(NamedTuple):
    """One claim on one model.

    Attributes:
        claim: The claim, a row of the summary.
        found: The estimate and its interval.
        verdict: Whether it holds.
        never: What texts that never flip count as; None where that makes no difference.
        published: Of how many models the paper states it.
    """

    claim: str
    found: MeanInterval
    verdict: str
    never: Never | None = None
    published: str = DASH


def verdict(found: MeanInterval, claimed: tuple[float, float]) -> str:
    """`holds` or `does not`, by the estimate; `open` in parentheses where the interval says both.

    Args:
        found: The estimate and its interval.
        claimed: Ends of the range that is claimed, both included.
    """
    if np.isnan(found.mean):
        return DASH
    low, high = claimed
    word = HOLDS if low <= found.mean <= high else FAILS
    inside = low <= found.low and found.high <= high
    outside = found.high < low or high < found.low
    return word if inside or outside else f"{word} ({OPEN})"


def _judged(
    claim: str,
    found: MeanInterval,
    claimed: tuple[float, float],
    never: Never | None = None,
    published: str = DASH,
) -> Judged:
    return Judged(claim, found, verdict(found, claimed), never, published)


@cache
def judge_sooner(tested: Tested) -> Judged:
    """How many times as often the gradient needs fewer items than attention as the reverse."""
    claim = "with an encoder the gradient flips sooner at least 1.6 times as often as attention"
    ratio = ratio_to_attention(tested, "gradient")
    return _judged(claim, ratio, AT_LEAST_1_6, published="16 of 16")


@cache
def judge_half(tested: Tested) -> Judged:
    """In which share of the texts the gradient needs fewer items than attention."""
    claim = "with an encoder the gradient finds a smaller set for over half of the texts"
    first = sooner(tested.removal, "gradient", "attention")[:, :1]
    (found,) = bootstrap_means(first, tested.removal["index"])
    return _judged(claim, found, OVER_HALF, published="10 of 16")


@cache
def judge_par(tested: Tested, never: Never) -> Judged:
    """Attention's median fraction removed less the upper end of the gradient's box."""
    claim = "without an encoder attention's box plot is on par with the gradient's, or better"
    attention, gradient = fractions(tested, never)
    found = _of_texts(
        lambda rows: np.median(attention[rows]) - np.quantile(gradient[rows], 0.75), len(gradient)
    )
    return _judged(claim, found, AT_MOST_ZERO, never)


def fractions(tested: Tested, never: Never) -> list[Values]:
    """Fraction that attention and the gradient remove of each text that counts for both."""
    return _defined(*(removed(tested.removal, "removed_fraction", x, never) for x in SCORES[:2]))


def _defined(*columns: Values) -> list[Values]:
    known = ~np.isnan(columns).any(axis=0)
    return [column[known] for column in columns]


def _of_texts(statistic: Statistic, texts: int) -> MeanInterval:
    """A statistic of the texts with its bootstrap interval."""
    if not texts:
        return MeanInterval(*[float("nan")] * 3, 0)
    return MeanInterval(float(statistic(np.arange(texts))), *interval(statistic, texts), texts)


def ratio_to_attention(tested: Tested, name: str) -> MeanInterval:
    """How many times as often a ranking needs fewer items than attention as the reverse."""
    cells = sooner(tested.removal, name, "attention")
    return ratio_of_shares(cells[:, 0], cells[:, 2], tested.removal["index"])


class Step(NamedTuple):
    """Two models of one corpus that differ in their encoder."""

    first: Tested
    second: Tested

    @property
    def words(self) -> list[str]:
        """Corpus, and the two architectures."""
        corpus, first = self.first.model.words
        return [corpus, f"{first} − {self.second.model.words[1]}"]  # noqa: RUF001


def encoder_steps(found: Sequence[Tested]) -> Iterator[Step]:
    """From rnn to conv and from conv to noenc, where both were run."""
    runs = {tested.model: tested for tested in found}
    for corpus in CORPORA:
        for kind in KINDS:
            for pair in (("rnn", "conv"), ("conv", "none")):
                models = [Model(corpus, kind, encoder) for encoder in pair]
                if all(model in runs for model in models):
                    yield Step(*(runs[model] for model in models))


@cache
def judge_falling(step: Step, name: str, never: Never = "listwise") -> Judged:
    """How much less of a text a ranking removes under the second encoder, texts paired.

    Raises:
        InputError: The two models were tested on different texts.
    """
    rows = [tested.removal for tested in step]
    if not np.array_equal(rows[0]["index"], rows[1]["index"]):
        raise InputError(f"{step.words[1]}: the runs were tested on different texts.")
    first, second = (removed(r, "removed_fraction", name, never) for r in rows)
    found = paired_difference(first, second, rows[0]["index"])
    claim = f"the fraction removed by {WORDS[name]} falls from rnn to conv to noenc, each step"
    return _judged(claim, found, ABOVE_ZERO, never)


@cache
def judge_first(tested: Tested, name: str) -> Judged:
    """How much more often a gradient ranking's first item flips the decision than attention's."""
    rows = tested.erasure
    found = paired_difference(
        rows[f"flip_top_{name}"], rows[f"flip_top_{SCORES[0]}"], rows["index"]
    )
    more = name == SCORES[2]
    words = f"flip {'more' if more else 'fewer'} decisions than attention's"
    return _judged(
        f"first items of {WORDS[name]} {words}",
        found,
        ABOVE_ZERO if more else BELOW_ZERO,
        published="24 of 24" if more else "14 of 24",
    )


@cache
def judge_single(tested: Tested) -> list[Judged]:
    """How often one erasure leaves the decision, and how often attention's item moves it further."""
    rows = tested.erasure
    flips, more = rows["flip_top_attention"], rows["delta_js_drawn_attention"]
    columns = [1 - flips, np.where(np.isnan(more), np.nan, more > 0)]
    claims = (
        "most decisions stand without the item of highest attention",
        "that item moves the prediction further than another one in most texts (Δ JS > 0)",
    )
    found = bootstrap_means(np.stack(columns, axis=1), rows["index"])
    return [_judged(*pair, OVER_HALF) for pair in zip(claims, found, strict=True)]


@cache
def judge_mass(tested: Tested, name: str, never: Never = "listwise") -> Judged:
    """How far the median of the attention that a gradient ranking removes is below attention's."""
    own, other = _defined(
        *(removed(tested.removal, "removed_mass", x, never) for x in (SCORES[0], name))
    )
    found = _of_texts(lambda rows: np.median(own[rows]) - np.median(other[rows]), len(own))
    claim = f"the attention removed by {WORDS[name]} is shifted down by 0.25 or more, medians"
    return _judged(claim, found, A_QUARTER_OR_MORE, never)


def judge_all(found: Sequence[Tested]) -> list[Judged]:
    """Every claim on every model that was run, claim by claim."""
    encoders = [tested for tested in found if tested.model.encoder != "none"]
    others = [tested for tested in found if tested.model.encoder == "none"]
    steps = list(encoder_steps(found))
    return [
        *(one for tested in found for one in judge_single(tested)),
        *(judge_sooner(tested) for tested in encoders),
        *(judge_half(tested) for tested in encoders),
        *(judge_par(tested, never) for never in NEVER for tested in others),
        *(judge_falling(s, name, never) for name in SCORES for never in NEVER for s in steps),
        *(judge_first(tested, name) for name in GRADIENTS for tested in found),
        *(
            judge_mass(tested, name, never)
            for name in GRADIENTS
            for never in NEVER
            for tested in found
        ),
    ]

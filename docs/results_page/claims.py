"""Serrano & Smith's numeric claims, each judged on every model by an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.functional.comparison import paired_difference, ratio_of_shares
from attnlight.functional.statistics import MeanInterval
from attnlight.report.rankings import SCORES, WORDS
from attnlight.report.removals import removed, sooner
from results_page.serrano import CORPORA, KINDS, Model, Tested
from results_page.tables import DASH

ANY = float("inf")
ABOVE_ZERO = (float(np.nextafter(0, 1)), ANY)
AT_LEAST_1_6 = (1.6, ANY)
ON_PAR = 1.0
ABOUT_A_QUARTER = (0.15, 0.35)
GRADIENTS = SCORES[1:]
HOLDS, OPEN, FAILS = "holds", "open", "does not"


class Judged(NamedTuple):
    """One claim on one model.

    Attributes:
        claim: The claim, a row of the summary.
        found: The estimate and its interval.
        verdict: Whether it holds.
    """

    claim: str
    found: MeanInterval
    verdict: str


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


def par_verdict(ratio: MeanInterval) -> str:
    """Whether one ranking is on par with another, or better, by how often it is the slower one."""
    if np.isnan(ratio.mean):
        return DASH
    if ratio.low > ON_PAR:
        return FAILS
    return f"{HOLDS}, better" if ratio.high < ON_PAR else f"{HOLDS}, on par"


@cache
def judge_sooner(tested: Tested) -> Judged:
    """How many times as often the gradient needs fewer items than attention as the reverse."""
    ratio = ratio_to_attention(tested, "gradient")
    if tested.model.encoder == "none":
        claim = "without an encoder attention is on par with the gradient, or better"
        return Judged(claim, ratio, par_verdict(ratio))
    claim = "with an encoder the gradient flips sooner at least 1.6 times as often as attention"
    return Judged(claim, ratio, verdict(ratio, AT_LEAST_1_6))


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
def judge_falling(step: Step, name: str) -> Judged:
    """How much less of a text a ranking removes under the second encoder, texts paired.

    Raises:
        InputError: The two models were tested on different texts.
    """
    rows = [tested.removal for tested in step]
    if not np.array_equal(rows[0]["index"], rows[1]["index"]):
        raise InputError(f"{step.words[1]}: the runs were tested on different texts.")
    first, second = (removed(r, "removed_fraction", name) for r in rows)
    found = paired_difference(first, second, rows[0]["index"])
    claim = f"the fraction removed by {WORDS[name]} falls from rnn to conv to noenc, each step"
    return Judged(claim, found, verdict(found, ABOVE_ZERO))


@cache
def judge_first(tested: Tested) -> Judged:
    """How much more often the product's first item flips the decision than attention's."""
    rows = tested.erasure
    product, attention = (rows[f"flip_top_{name}"] for name in (SCORES[2], SCORES[0]))
    found = paired_difference(product, attention, rows["index"])
    claim = f"first items of {WORDS[SCORES[2]]} flip more decisions than attention's"
    return Judged(claim, found, verdict(found, ABOVE_ZERO))


@cache
def judge_mass(tested: Tested, name: str) -> Judged:
    """How much less attention a gradient ranking removes than attention does."""
    own, other = (removed(tested.removal, "removed_mass", x) for x in (SCORES[0], name))
    found = paired_difference(own, other, tested.removal["index"])
    claim = f"{WORDS[name]} removes about 0.25 less attention (0.15 to 0.35)"
    return Judged(claim, found, verdict(found, ABOUT_A_QUARTER))


def judge_all(found: Sequence[Tested]) -> list[Judged]:
    """Every claim on every model that was run, claim by claim."""
    encoders = [tested for tested in found if tested.model.encoder != "none"]
    others = [tested for tested in found if tested.model.encoder == "none"]
    return [
        *(judge_sooner(tested) for tested in (*encoders, *others)),
        *(judge_falling(step, name) for name in SCORES for step in encoder_steps(found)),
        *(judge_first(tested) for tested in found),
        *(judge_mass(tested, name) for name in GRADIENTS for tested in found),
    ]

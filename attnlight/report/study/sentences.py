"""Words for differences between groups of runs, which follow from their intervals.

A sentence claims something of trained models, so each side of its comparison needs five of them:
with fewer the numbers are told and no claim is made. The model is what the sentence is about, such
as the adversary, of which several guided perceptrons are one case. What is compared with one base
says "of this base". An interval that holds 0 shows nothing in either direction, and the sentence
says that and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attnlight.report.study.estimates import F1, Estimate, Runs, SeedEstimates, models
from attnlight.report.study.plan import Plan
from attnlight.report.tables import interval, number
from attnlight.statistics.bootstrap import MeanInterval

FEWEST_SEEDS = 5
Named = tuple[str, Runs]


class Verdict(NamedTuple):
    """A question with the sentences that answer it."""

    question: str
    sentences: Sequence[str]


def to_markdown(title: str, found: Sequence[Verdict]) -> str:
    """Verdicts as a Markdown page."""
    parts = [f"# {title}\n"]
    for verdict in found:
        parts.append(f"## {verdict.question}\n")
        parts.append("".join(f"* {sentence}\n" for sentence in verdict.sentences))
    return "\n".join(parts)


def both(study: Plan, estimates: SeedEstimates, measure: str, *groups: Named) -> str:
    """The mean of each group, told in one sentence."""
    means = [
        f"{number(estimates.of(runs, measure).mean)} with {name} ({count(runs)})"
        for name, runs in groups
    ]
    return f"{capital(study.f1) if measure == F1 else 'Mean JS'}: {', '.join(means)}."


def count(runs: Runs) -> str:
    """How many seeds there are, and of how many trained models where those are fewer."""
    units = len(models(runs))
    seeds = _several(len(runs), "seed")
    return seeds if units == len(runs) else f"{seeds}, guided by {_several(units, 'model')}"


def few(*groups: Runs) -> bool:
    """Whether a group has too few trained models for a claim."""
    return min(len(models(runs)) for runs in groups) < FEWEST_SEEDS


def too_few(*groups: Runs, about: str = "") -> str:
    """The words that stand where a claim would, with the models there are and those it needs."""
    return inconclusive(*(len(models(runs)) for runs in groups), about=about)


def inconclusive(*seeds: int, about: str = "") -> str:
    """`too_few` of known numbers of trained models."""
    here = " and ".join(map(str, seeds))
    return f"Inconclusive{about}: {here} trained models ({FEWEST_SEEDS} per side required)"


def _several(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def lacking(*groups: Named) -> str:
    """Which groups have no run."""
    return f"no finished run of {' nor of '.join(name for name, runs in groups if not runs)}."


def size(found: Estimate) -> str:
    """A difference without its sign, with its interval."""
    if found.mean >= 0:
        return signed(found)
    return signed(Estimate(-found.mean, found.std, -found.high, -found.low, found.seeds))


def signed(found: Estimate) -> str:
    """A difference with its interval."""
    return f"{number(found.mean)} {interval(MeanInterval(found.mean, found.low, found.high, 0))}"


def capital(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]

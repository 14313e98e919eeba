"""Words for differences between groups of runs, which follow from their intervals.

A sentence claims something of an architecture, so each side of its comparison needs five seeds:
with fewer the numbers are told and no claim is made. An interval that holds 0 shows nothing in
either direction, and the sentence says that and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attnlight.functional.statistics import MeanInterval
from attnlight.report.study.estimates import F1, Estimate, Runs, SeedEstimates
from attnlight.report.study.plan import Plan
from attnlight.report.tables import interval, number

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
    """How many seeds there are, in words."""
    return f"{len(runs)} {'seed' if len(runs) == 1 else 'seeds'}"


def few(*groups: Runs) -> bool:
    """Whether a group has too few seeds for a claim."""
    return min(map(len, groups)) < FEWEST_SEEDS


def too_few(*seeds: int, about: str = "") -> str:
    """The words that stand where a claim would, with the seeds there are and those it needs."""
    here = " and ".join(map(str, seeds))
    return f"Too few seeds for a sentence{about} ({here}; at least {FEWEST_SEEDS} on each side)"


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

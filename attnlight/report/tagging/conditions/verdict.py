"""Is tagging every token more exclusive than one decision a sentence? In sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnlight.report.study.sentences import FEWEST_SEEDS, Verdict, capital, inconclusive
from attnlight.report.tables import interval, number
from attnlight.report.tagging.conditions.reading import Condition
from attnlight.report.tagging.conditions.tables import (
    TARGETS,
    Pair,
    find_pairs,
    seeds_of,
    text_note,
    told,
)
from attnlight.report.tagging.groups import ROLES
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.exclusivity import COST, Exclusivity


def exclusivity_verdicts(
    conditions: Sequence[Condition], absent: Sequence[str] = ()
) -> list[Verdict]:
    """The answers to the comparison of conditions.

    Args:
        conditions: Those that are collected.
        absent: Names of those that are not yet.
    """
    pairs = find_pairs(conditions)
    neither = (
        "No answer: every token's tag and one marked token's are not both there under one readout "
        "and choice of features."
    )
    answer = [_compared(pair) for pair in pairs] or [neither]
    found = [
        Verdict("Is tagging every token more exclusive than one decision a sentence?", answer),
        Verdict("What may be compared?", list(_rules(conditions, pairs))),
    ]
    lacking = [*_missing(conditions), *(f"Not collected yet: {name}." for name in absent)]
    return [*found, Verdict("What is missing?", lacking)] if lacking else found


def _compared(pair: Pair) -> str:
    where = capital(", ".join(pair.setting))
    if pair.less is None:
        names = [TARGETS[one.target] for one in (pair.tokens, pair.marked) if one.found is None]
        return f"{where}: no answer, no curve of {' nor of '.join(names)}."
    numbers = (
        f"at a cost of {COST:g} the share of the largest JS is {told(pair.tokens.found)} for every "
        f"token's tag and {told(pair.marked.found)} for one marked token's; {_bounds(pair.less)}"
    )
    seeds = [seeds_of(one) for one in (pair.tokens, pair.marked)]
    if min(seeds) < FEWEST_SEEDS:
        words = inconclusive(*seeds)
        return f"{where}: {words[0].lower()}{words[1:]}; {numbers}"
    of_one = all(len({run.base for run in c.adversaries}) == 1 for c in (pair.tokens, pair.marked))
    return f"{where}: {_claim(pair.less)}{', of one base each' if of_one else ''}; {numbers}"


def _claim(less: Exclusivity) -> str:
    if less.high < 0:
        return "tagging every token is more exclusive than tagging one"
    if less.low > 0:
        return "tagging every token is less exclusive than tagging one"
    return "tagging every token is not shown to be more or less exclusive than tagging one"


def _bounds(less: Exclusivity) -> str:
    ends = interval(MeanInterval(less.value, less.low, less.high, 0))
    if less.censored:
        return f"the difference is within {ends}, for some curves end before that cost."
    return f"the difference is {number(less.value)} {ends}."


def _rules(conditions: Sequence[Condition], pairs: Sequence[Pair]) -> Iterator[str]:
    yield (
        "Only every token's tag against one marked token's answers the question: encoder, sentences "
        "and classes are the same, and what differs is how many decisions must be kept."
    )
    if any(one.target == "sentence" for one in conditions):
        yield (
            "The class of a sentence has other classes and another row of attention; its curves "
            "stand beside and prove nothing, nor would those of another corpus."
        )
    if text_note(conditions):
        yield text_note(conditions)
    for pair in pairs:
        if pair.less is not None and pair.tokens.lambdas != pair.marked.lambdas:
            yield (
                f"{capital(', '.join(pair.setting))}: the two have not the same runs by λ; an "
                "envelope of more runs is higher by chance alone."
            )


def _missing(conditions: Sequence[Condition]) -> Iterator[str]:
    for one in conditions:
        planned = one.study.planned("adversary")
        waiting = len(planned) - len(one.study.finished("adversary"))
        if not planned:
            yield f"{one.name}: the study has no {ROLES['adversary']}."
        elif waiting:
            yield f"{one.name}: not finished, {waiting} of {len(planned)} {ROLES['adversary']}."
        for name in one.without_control:
            yield f"{one.name}: no curve of {name}, which lacks λ = 0 or any other λ."

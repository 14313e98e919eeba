"""Wiegreffe & Pinter's three comparisons in sentences: of uniform attention, adversaries, guides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attnlight.report.study.estimates import F1, JS, TVD, Runs, SeedEstimates
from attnlight.report.study.groups import chosen
from attnlight.report.study.plan import Plan, StudyRun
from attnlight.report.study.sentences import (
    Named,
    both,
    capital,
    count,
    few,
    lacking,
    signed,
    size,
    too_few,
)


class Reader(NamedTuple):
    """What is guided by attention, and what it reads.

    Attributes:
        name: What it is called, with its article.
        text: What an instance is called.
    """

    name: str = "an MLP"
    text: str = "text"

    def told(self, guide: str) -> str:
        """Whose attention a guide is."""
        words = {
            "uniform": "uniform attention",
            "base": "the attention of this base",
            "shuffled": f"the attention of this base shuffled within each {self.text}",
            "adversary": "the attention of this base's adversary",
            "other": "the attention of another seed of this base",
        }
        return words[guide]


def needed(study: Plan, estimates: SeedEstimates, uniform: Runs, base: Runs) -> list[str]:
    """Whether uniform attention does as well as trained attention."""
    pair = ("uniform attention", uniform), ("trained attention", base)
    if not (uniform and base):
        return [f"No answer: {lacking(*pair)}"]
    numbers = both(study, estimates, F1, *pair)
    if few(uniform, base):
        return [f"{too_few(uniform, base)}. {numbers}"]
    less = estimates.difference(uniform, base, F1)
    if less.high < 0:
        said = f"Attention is needed here: without it {study.f1} falls by {size(less)}."
    elif less.low > 0:
        said = (
            f"Attention is not needed here: with uniform attention {study.f1} rises by "
            f"{size(less)}."
        )
    else:
        said = (
            f"Attention is not shown to be needed here: with uniform attention {study.f1} changes "
            f"by {size(less)}, an interval that holds 0."
        )
    return [f"{said} {numbers}"]


def beyond(study: Plan, estimates: SeedEstimates, base: StudyRun) -> list[str]:
    """Whether the chosen adversary of a base is farther from it than seeds and imitations are."""
    best, seeds = chosen(study, base), study.finished("seed", base=base.name)
    control = study.controls(base, study.selected[0] if study.selected else None)
    adversary = ("the best adversary", best)
    return [
        _diverges(study, estimates, adversary, ("other seeds", seeds), "seed variance"),
        _diverges(
            study,
            estimates,
            adversary,
            ("imitation without a divergence term (λ = 0)", control),
            "what imitation alone gives",
        ),
        *_price(study, estimates, best, control),
    ]


def _diverges(
    study: Plan, estimates: SeedEstimates, adversary: Named, other: Named, level: str
) -> str:
    best, runs = adversary[1], other[1]
    if not (best and runs):
        return f"Against {level} there is no answer: {lacking(adversary, other)}"
    numbers = both(study, estimates, JS, adversary, other)
    more = estimates.difference(best, runs, JS)
    if few(best, runs):
        return f"{too_few(best, runs, about=f' against {level}')}. {numbers}"
    who = "The divergence of this base's adversary is"
    if more.low > 0:
        return f"{who} beyond {level}, by {size(more)} nats. {numbers}"
    if more.high < 0:
        return f"{who} below {level}, by {size(more)} nats. {numbers}"
    return (
        f"{who} not shown to be beyond {level}: it differs by {signed(more)} nats, an interval that "
        f"holds 0. {numbers}"
    )


def _price(study: Plan, estimates: SeedEstimates, best: Runs, control: Runs) -> Iterator[str]:
    """What the divergence costs beside the control, without a claim."""
    if best and control:
        tvd, f1 = (estimates.difference(best, control, measure) for measure in (TVD, F1))
        yield (
            f"Beside λ = 0 its predictions are {signed(tvd)} farther from the base's (TVD) and "
            f"its {study.f1} differs by {signed(f1)}."
        )


def guiding(
    study: Plan, estimates: SeedEstimates, groups: Mapping[str, Runs], reader: Reader
) -> list[str]:
    """Whether adversarial attention guides a model, and which guides carry information.

    Args:
        study: The study.
        estimates: Its estimates.
        groups: Finished guided models by guide.
        reader: What is guided.
    """
    compared = [
        _guides(study, estimates, "adversary", other, groups, reader)
        for other in ("base", "uniform")
    ]
    informed = [name for name in ("base", "adversary", "other") if name in groups]
    return compared + [_informs(study, estimates, name, groups, reader) for name in informed]


def _guides(
    study: Plan,
    estimates: SeedEstimates,
    one: str,
    other: str,
    groups: Mapping[str, Runs],
    reader: Reader,
) -> str:
    a, b = groups.get(one, []), groups.get(other, [])
    theirs = reader.told(other)
    pair = (reader.told(one), a), (theirs, b)
    if not (a and b):
        return f"Against {theirs} there is no answer: {lacking(*pair)}"
    numbers = both(study, estimates, F1, *pair)
    if few(a, b):
        return f"{too_few(a, b, about=f' against {theirs}')}. {numbers}"
    less, who = estimates.difference(a, b, F1), capital(reader.told(one))
    if less.low <= 0 <= less.high:
        return (
            f"{who} is not shown to guide {reader.name} better or worse than {theirs}: {study.f1} "
            f"differs by {signed(less)}, an interval that holds 0. {numbers}"
        )
    how = "better" if less.low > 0 else "worse"
    return (
        f"{who} guides {reader.name} {how} than {theirs}, by {size(less)} in {study.f1}. {numbers}"
    )


def _informs(
    study: Plan,
    estimates: SeedEstimates,
    name: str,
    groups: Mapping[str, Runs],
    reader: Reader,
) -> str:
    """Whether a guide beats weights of the same sharpness in random places."""
    a, b = groups.get(name, []), groups.get("shuffled", [])
    who = reader.told(name)
    if not (a and b):
        pair = (who, a), (reader.told("shuffled"), b)
        return f"Whether {who} carries information is not known: {lacking(*pair)}"
    less = estimates.difference(a, b, F1)
    told = f"{study.f1} differs from that with shuffled weights by {signed(less)} ({count(a)})"
    if few(a, b):
        return f"{too_few(a, b, about=f' on {who}')}. {capital(told)}."
    if less.low > 0:
        return f"{capital(who)} carries information to {reader.name}: {told}."
    if less.high < 0:
        return f"{capital(who)} guides {reader.name} worse than the shuffled weights: {told}."
    return (
        f"{capital(who)} is not shown to carry information to {reader.name}: {told}, an interval "
        "that holds 0."
    )

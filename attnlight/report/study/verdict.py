"""What a study shows, in sentences that follow from its intervals.

A sentence claims something of an architecture, so each side of its comparison needs five seeds:
with fewer the numbers are told and no claim is made. An interval that holds 0 shows nothing in
either direction, and the sentence says that and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attnlight.functional.statistics import MeanInterval
from attnlight.report.study.estimates import F1, JS, TVD, Estimate, Estimates
from attnlight.report.study.groups import chosen, guides, uniforms
from attnlight.report.study.missing import missing
from attnlight.report.study.reading import Study, StudyRun
from attnlight.report.study.tables import selection
from attnlight.report.tables import interval, number

FEWEST_SEEDS = 5
_TOLD = {
    "uniform": "uniform attention",
    "base": "the base's attention",
    "shuffled": "the base's attention shuffled within each text",
    "adversary": "the adversary's attention",
    "other": "another seed's attention",
}
Runs = Sequence[StudyRun]


class Verdict(NamedTuple):
    """A question with the sentences that answer it."""

    question: str
    sentences: Sequence[str]


def verdicts(study: Study, estimates: Estimates) -> list[Verdict]:
    """The answers to Wiegreffe & Pinter's questions on this corpus."""
    found = [
        Verdict("Is attention needed here?", _needed(study, estimates)),
        Verdict("Is the adversary's divergence beyond seed variance?", _beyond(study, estimates)),
        Verdict("Do adversarial weights still guide an MLP?", _guiding(study, estimates)),
    ]
    lacking = missing(study)
    return [*found, Verdict("What is missing?", lacking)] if lacking else found


def to_markdown(study: Study, found: Sequence[Verdict]) -> str:
    """The verdicts as a Markdown page."""
    parts = [f"# {study.name}\n"]
    for verdict in found:
        parts.append(f"## {verdict.question}\n")
        parts.append("".join(f"* {sentence}\n" for sentence in verdict.sentences))
    return "\n".join(parts)


def _needed(study: Study, estimates: Estimates) -> list[str]:
    uniform, base = uniforms(study), study.architecture(study.bases[0])
    pair = ("uniform attention", uniform), ("trained attention", base)
    numbers = _both(study, estimates, F1, *pair)
    if not (uniform and base):
        return [f"No answer: {_lacking(*pair)}"]
    if _few(uniform, base):
        return [f"Too few seeds for a sentence: {numbers} {_rule(uniform, base)}"]
    less = estimates.difference(uniform, base, F1)
    if less.high < 0:
        said = f"Attention is needed here: without it {study.f1} falls by {_size(less)}."
    elif less.low > 0:
        said = (
            f"Attention is not needed here: with uniform attention {study.f1} rises by "
            f"{_size(less)}."
        )
    else:
        said = (
            f"Attention is not shown to be needed here: with uniform attention {study.f1} changes "
            f"by {_size(less)}, an interval that holds 0."
        )
    return [f"{said} {numbers}"]


def _beyond(study: Study, estimates: Estimates) -> list[str]:
    base = study.bases[0]
    best, seeds = chosen(study, base), study.finished("seed", base=base.name)
    control = study.controls(base, study.selected[0] if study.selected else None)
    adversary = ("the best adversary", best)
    return [
        selection(study),
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
    study: Study,
    estimates: Estimates,
    adversary: tuple[str, Runs],
    other: tuple[str, Runs],
    level: str,
) -> str:
    best, runs = adversary[1], other[1]
    if not (best and runs):
        return f"Against {level} there is no answer: {_lacking(adversary, other)}"
    numbers = _both(study, estimates, JS, adversary, other)
    more = estimates.difference(best, runs, JS)
    if _few(best, runs):
        return f"Too few seeds for a sentence against {level}: {numbers} {_rule(best, runs)}"
    if more.low > 0:
        return f"The adversary's divergence is beyond {level}, by {_size(more)} nats. {numbers}"
    if more.high < 0:
        return f"The adversary's divergence is below {level}, by {_size(more)} nats. {numbers}"
    return (
        f"The adversary's divergence is within {level}: it differs by {_signed(more)} nats, an "
        f"interval that holds 0. {numbers}"
    )


def _price(study: Study, estimates: Estimates, best: Runs, control: Runs) -> Iterator[str]:
    """What the divergence costs beside the control, without a claim."""
    if best and control:
        tvd, f1 = (estimates.difference(best, control, measure) for measure in (TVD, F1))
        yield (
            f"Beside λ = 0 its predictions are {_signed(tvd)} farther from the base's (TVD) and "
            f"its {study.f1} differs by {_signed(f1)}."
        )


def _guiding(study: Study, estimates: Estimates) -> list[str]:
    groups = guides(study)
    compared = [
        _guides(study, estimates, "adversary", other, groups) for other in ("base", "uniform")
    ]
    informed = [name for name in ("base", "adversary", "other") if name in groups]
    return compared + [_informs(study, estimates, name, groups) for name in informed]


def _guides(
    study: Study, estimates: Estimates, one: str, other: str, groups: dict[str, list[StudyRun]]
) -> str:
    a, b = groups.get(one, []), groups.get(other, [])
    pair = (_TOLD[one], a), (_TOLD[other], b)
    if not (a and b):
        return f"Against {_TOLD[other]} there is no answer: {_lacking(*pair)}"
    numbers = _both(study, estimates, F1, *pair)
    if _few(a, b):
        return f"Too few seeds for a sentence: {numbers} {_rule(a, b)}"
    less = estimates.difference(a, b, F1)
    if less.low > 0:
        said = f"The adversary's attention guides an MLP better than {_TOLD[other]}"
    elif less.high < 0:
        said = f"The adversary's attention guides an MLP worse than {_TOLD[other]}"
    else:
        return (
            f"The adversary's attention is not shown to guide an MLP better or worse than "
            f"{_TOLD[other]}: {study.f1} differs by {_signed(less)}, an interval that holds 0. "
            f"{numbers}"
        )
    return f"{said}, by {_size(less)} in {study.f1}. {numbers}"


def _informs(
    study: Study, estimates: Estimates, name: str, groups: dict[str, list[StudyRun]]
) -> str:
    """Whether a guide beats weights of the same sharpness in random places."""
    a, b = groups.get(name, []), groups.get("shuffled", [])
    who = _TOLD[name]
    if not (a and b):
        pair = (who, a), (_TOLD["shuffled"], b)
        return f"Whether {who} carries information is not known: {_lacking(*pair)}"
    less = estimates.difference(a, b, F1)
    told = f"{study.f1} is {_signed(less)} above that with shuffled weights"
    if _few(a, b):
        return f"Too few seeds for a sentence on {who}: {told}. {_rule(a, b)}"
    if less.low > 0:
        return f"{who[0].upper()}{who[1:]} carries information to an MLP: {told}."
    return (
        f"{who[0].upper()}{who[1:]} carries no information that an MLP puts to use: it does not "
        f"beat the base's weights shuffled within each text ({told})."
    )


def _both(study: Study, estimates: Estimates, measure: str, *groups: tuple[str, Runs]) -> str:
    """The mean of each group, told in one sentence."""
    means = [
        f"{number(estimates.of(runs, measure).mean)} with {name} ({_count(runs)})"
        for name, runs in groups
    ]
    return f"{study.f1 if measure == F1 else 'Mean JS'}: {', '.join(means)}."


def _count(runs: Runs) -> str:
    return f"{len(runs)} {'seed' if len(runs) == 1 else 'seeds'}"


def _few(*groups: Runs) -> bool:
    return min(map(len, groups)) < FEWEST_SEEDS


def _rule(*groups: Runs) -> str:
    return (
        f"A claim needs at least {FEWEST_SEEDS} seeds on each side; here are "
        f"{' and '.join(str(len(runs)) for runs in groups)}."
    )


def _lacking(*groups: tuple[str, Runs]) -> str:
    return f"no finished run of {' nor of '.join(name for name, runs in groups if not runs)}."


def _size(found: Estimate) -> str:
    """A difference without its sign, with its interval."""
    if found.mean >= 0:
        return _signed(found)
    return _signed(Estimate(-found.mean, found.std, -found.high, -found.low, found.seeds))


def _signed(found: Estimate) -> str:
    return f"{number(found.mean)} {interval(MeanInterval(found.mean, found.low, found.high, 0))}"

"""What a study shows: comparisons with their outcomes, and the sentences that follow from them.

A sentence claims something of trained models, so each side of its comparison needs five of them:
with fewer the numbers are told and no claim is made. The model is what the sentence is about, such
as the adversary, of which several guided perceptrons are one case. What is compared with one base
says "of this base". An interval that holds 0 shows nothing in either direction, and the sentence
says that and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.report.study import groups
from attnlight.report.study.estimates import JS, NLL_BASE, TAU, Estimate, Estimates, models
from attnlight.report.study.frame import validation
from attnlight.report.study.groups import BEST, CONTROL, IMITATION, SEEDS, Spec
from attnlight.report.study.shapes import LOSSES, find_bend, find_collapses
from attnlight.report.study.shapes import told as told_shape
from attnlight.report.study.texts import text
from attnlight.report.tables import number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs, Study

FEWEST = 5  # trained models on each side of a claim
REACHED = 0.4  # mean JS that an adversary needs to be chosen (Wiegreffe & Pinter, section 4)
ABOVE, BELOW, NOT_SHOWN, TOO_FEW, NO_RUNS = "above", "below", "not shown", "too few", "no runs"
LEVELS = {SEEDS: "seed variance", IMITATION: "what imitation alone gives"}


class Row(NamedTuple):
    """A comparison with its outcome.

    Attributes:
        spec: What is compared.
        estimate: The difference with its interval.
        sides: Mean of the group, and of that which it is compared with.
        outcome: Of the difference: `above` or `below` 0, `not shown`, `too few` models on a side,
            or `no runs` on one.
        units: Number of trained models on each side.
        quality: What F1 is called.
    """

    spec: Spec
    estimate: Estimate
    sides: tuple[float, float]
    outcome: str
    units: tuple[int, int]
    quality: str

    def sentence(self, **more: str) -> str:
        """The comparison in words."""
        return text("outcomes", self.spec.question, self.outcome, **self.words, **more)

    @property
    def words(self) -> dict[str, str]:
        """What a sentence may name."""
        spec = self.spec
        both = ((spec.group, spec.runs), (spec.against, spec.other))
        lacking = " nor of ".join(name for name, runs in both if not len(runs))
        means = [
            f"{number(mean)} with {name} ({count(runs)})"
            for mean, (name, runs) in zip(self.sides, both, strict=True)
        ]
        measure = "Mean JS" if spec.measure == JS else capital(self.quality)
        return {
            "quality": self.quality,
            "Quality": capital(self.quality),
            "group": spec.group,
            "Group": capital(spec.group),
            "against": spec.against,
            "about": spec.about,
            "level": LEVELS.get(spec.against, spec.against),
            "less": self.estimate.signed,
            "size": self.estimate.size,
            "both": f"{measure}: {', '.join(means)}.",
            "count": count(spec.runs),
            "units": units(*self.units),
            "lacking": f"no finished run of {lacking}.",
        }


class Verdict(NamedTuple):
    """A question with the sentences that answer it."""

    question: str
    sentences: Sequence[str]


def rows(estimates: Estimates) -> list[Row]:
    """Every comparison of a study with its outcome."""
    return [judge(estimates, spec) for spec in groups.specs(estimates.study)]


def judge(estimates: Estimates, spec: Spec) -> Row:
    """The outcome of a comparison."""
    found = estimates.difference(spec.runs, spec.other, spec.measure)
    sides = [estimates.of(runs, spec.measure).mean for runs in (spec.runs, spec.other)]
    trained = models(spec.runs), models(spec.other)
    outcome, quality = outcome_of(found, trained), estimates.study.words.quality
    return Row(spec, found, (sides[0], sides[1]), outcome, trained, quality)


def outcome_of(found: Estimate, units: tuple[int, int]) -> str:
    """What a difference shows, from its interval and the number of models on each side."""
    if min(units) < FEWEST:
        return TOO_FEW if min(units) else NO_RUNS
    return ABOVE if found.low > 0 else BELOW if found.high < 0 else NOT_SHOWN


def verdicts(estimates: Estimates, found: Sequence[Row] | None = None) -> list[Verdict]:
    """The answers to a study's questions.

    Args:
        estimates: Estimates of the study.
        found: Its comparisons; None: `rows`.
    """
    study, every = estimates.study, rows(estimates) if found is None else found
    by: dict[str, list[Row]] = {}
    for row in every:
        by.setdefault(row.spec.question, []).append(row)
    needed = [*(row.sentence() for row in by["needed"]), *_heads_needed(by.get("head", []))]
    beyond = [*(row.sentence() for row in by["divergence"]), *_price(by["price"])]
    answers = [
        Verdict("Is attention needed here?", needed),
        Verdict(
            "Is the adversary's divergence beyond seed variance?",
            [selection(study), *beyond, *_divergence_by_head(estimates)],
        ),
    ]
    if study.losses:
        lost, ranked = _lost(study, by.get("lost", [])), _ranked(estimates, by["ranked"])
        answers += [
            Verdict(
                "Up to which λ is nothing lost?", list(lost) or [text("answers", "no_adversary")]
            ),
            Verdict("Does training collapse?", list(_collapsed(study))),
            Verdict(
                "Is there a safe point?",
                list(_safe(estimates)) or [text("answers", "no_adversary")],
            ),
            Verdict("Do rankings of words change?", list(ranked)),
        ]
    for context in groups.contexts(study):
        own = [*by.get("guides", []), *by.get("informs", [])]
        name = groups.reader(study, context)
        said = [row.sentence() for row in own if row.spec.about == name]
        answers.append(Verdict(f"Does given attention guide {name}?", said))
    lacking = groups.missing(study)
    return [*answers, Verdict("What is missing?", lacking)] if lacking else answers


def _heads_needed(found: Sequence[Row]) -> Iterator[str]:
    """Which heads are needed, in one sentence on all of them."""
    held = {row.spec.group.split()[1]: row for row in found if row.outcome != NO_RUNS}
    if not held:
        return
    quality = next(iter(held.values())).quality
    told_each = ", ".join(f"{row.estimate.signed} (head {head})" for head, row in held.items())
    numbers = f"One head uniform, the others learned, {quality} differs by {told_each}."
    few = [row for row in held.values() if row.outcome == TOO_FEW]
    fallen = [head for head, row in held.items() if row.outcome == BELOW]
    if few:
        least = min(few, key=lambda row: len(row.spec.runs))
        yield f"Inconclusive on single heads: {least.words['units']}. {numbers}"
    elif fallen:
        yield f"It falls without head {', '.join(fallen)}. {numbers}"
    else:
        yield f"For no head it is shown to fall. {numbers}"


def _price(found: Sequence[Row]) -> Iterator[str]:
    """What the divergence costs beside lambda 0, without a claim."""
    if all(row.outcome != NO_RUNS for row in found):
        tvd, quality = found
        yield text("answers", "price", tvd=tvd.estimate.signed, **quality.words)


def _divergence_by_head(estimates: Estimates) -> Iterator[str]:
    best, heads = groups.chosen(estimates.study), estimates.study.heads
    if len(best) and heads > 1:
        means = [estimates.of(best, f"attention_js_heads_{head}").mean for head in range(heads)]
        by_head = ", ".join(f"{number(mean)} (head {head})" for head, mean in enumerate(means))
        yield f"By head the mean JS of the best adversary is {by_head}."


def _lost(study: Study, found: Sequence[Row]) -> Iterator[str]:
    """Of each term the least lambda that loses quality, where there are seeds enough to say."""
    for about in dict.fromkeys(row.spec.about for row in found):
        own = [row for row in found if row.spec.about == about]
        most = min(own, key=lambda row: row.estimate.mean)
        lowest = text("answers", "lowest", **most.words)
        first = next((row for row in own if row.outcome == BELOW), own[0])
        if any(row.outcome in (TOO_FEW, NO_RUNS) for row in own):
            first = min(own, key=lambda row: len(row.spec.runs))
        elif first.outcome == ABOVE:
            first = first._replace(outcome=NOT_SHOWN)
        yield first.sentence(lam=first.spec.group.rpartition(" ")[2], lowest=lowest)


def _collapsed(study: Study) -> Iterator[str]:
    base = study.bases[0]
    collapse = find_collapses(study, base)
    yield collapse.note
    if not collapse.unknown:
        for term in groups.terms(study, base):
            cells = groups.path(study, base, term=term)
            fallen = [cell for cell in cells if len(collapse.of(cell.runs))]
            where = ", ".join(f"{collapse.share(c.runs)} at λ = {c.lam:g}" for c in fallen)
            whole = sum(len(cell.runs) for cell in cells)
            yield f"{groups.term_name(term)}, of {whole} runs: {where or 'none'}."


def _safe(estimates: Estimates) -> Iterator[str]:
    """The shape of all runs, then of those that did not collapse, which decide."""
    base = estimates.study.bases[0]
    if groups.terms(estimates.study, base):
        collapse = find_collapses(estimates.study, base)
        for measure in LOSSES:
            whole = find_bend(estimates, base, measure)
            fell = bool(len(collapse.of(whole.runs)))
            yield told_shape(whole, decides=not fell)
            if fell:
                yield told_shape(find_bend(estimates, base, measure, without=collapse))


def _ranked(estimates: Estimates, found: Sequence[Row]) -> Iterator[str]:
    study, base = estimates.study, estimates.study.bases[0]
    named: list[tuple[str, Runs]] = [
        (SEEDS, study.finished("seed", base=base)),
        (f"imitation ({CONTROL})", study.controls(base)),
        (BEST, groups.chosen(study)),
    ]
    means = [(name, estimates.of(runs, TAU)) for name, runs in named]
    held = [f"{mean} with {name}" for name, mean in means if not np.isnan(mean.mean)]
    if not held:
        yield "No answer: the study has no tau of attention with the base's."
        return
    yield f"Tau of attention with the base's: {', '.join(held)}."
    yield from (row.sentence() for row in found)
    bend = find_bend(estimates, base, NLL_BASE)
    if all(len(side) for side in bend.sides):
        up_to, after = (estimates.of(runs, TAU).signed for runs in bend.sides)
        yield f"Up to the {bend.shape} of the loss tau is {up_to}, beyond it {after}."


def selection(study: Study) -> str:
    """How the best adversary was chosen, and whether it is what the paper asks for."""
    if study.selected is None:
        return "No adversary is chosen yet."
    if not len(groups.chosen(study)):
        return "No adversary of the chosen lambda is finished."
    term, reached = groups.term_name(study.selected[0]), validation(groups.chosen(study), JS)
    short = np.isfinite(reached).any() and np.nanmean(reached) < REACHED
    name, known = "fell_short" if short else "chosen", {"term": term, "reached": REACHED}
    return text("answers", name, **known, criterion=study.words.criterion)


def to_markdown(title: str, found: Sequence[Verdict]) -> str:
    """Verdicts as a Markdown page."""
    parts = [f"# {title}\n"]
    for verdict in found:
        parts.append(f"## {verdict.question}\n")
        parts.append("".join(f"* {sentence}\n" for sentence in verdict.sentences))
    return "\n".join(parts)


def to_csv(found: Sequence[Row]) -> str:
    """Comparisons as CSV, numbers in full, so that others can hold sentences against them."""
    import pandas as pd

    head = ["question", "group", "against", "about", "measure", "mean", "low", "high"]
    head += ["group_mean", "against_mean", "group_runs", "against_runs"]
    head += ["group_models", "against_models", "outcome"]
    lines = []
    for spec, estimate, sides, outcome, trained, _ in found:
        known = (spec.question, spec.group, spec.against, spec.about, spec.measure)
        numbers = (estimate.mean, estimate.low, estimate.high, *sides)
        lines.append([*known, *numbers, len(spec.runs), len(spec.other), *trained, outcome])
    return str(pd.DataFrame(lines, columns=head).to_csv(index=False, lineterminator="\n"))


def count(runs: Runs) -> str:
    """How many seeds there are, and of how many trained models where those are fewer."""
    every, trained = len(runs), models(runs)
    seeds = f"{every} seed{'' if every == 1 else 's'}"
    guided = f", guided by {trained} model{'' if trained == 1 else 's'}"
    return seeds if trained == every else seeds + guided


def units(one: int, other: int) -> str:
    """The number of trained models on each side, and how many a claim needs."""
    return f"{one} and {other} trained models ({FEWEST} per side required)"


def capital(words: str) -> str:
    """Words with a capital at their beginning."""
    return words[:1].upper() + words[1:]

"""What the study of a tagger shows, in sentences that follow from its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnlight.report.study.comparisons import Reader, beyond, guiding, needed
from attnlight.report.study.estimates import F1, Runs
from attnlight.report.study.groups import chosen, uniforms
from attnlight.report.study.lambdas import selection, term_name, words_of
from attnlight.report.study.missing import missing
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.sentences import Verdict, few, lacking, signed, size, too_few
from attnlight.report.tables import number
from attnlight.report.tagging.bends import LOSSES, find_bend, told
from attnlight.report.tagging.collapse import find_collapses
from attnlight.report.tagging.estimates import NLL_BASE, TAU, TaggingEstimates, head_measure
from attnlight.report.tagging.groups import ROLES, Cell, path, probes, reading, terms, uniform_heads
from attnlight.report.tagging.reading import TaggingStudy

_NO_ADVERSARY = "No answer: no finished adversary at a λ above 0."


def verdicts(study: TaggingStudy, estimates: TaggingEstimates) -> list[Verdict]:
    """The answers to the study's questions."""
    base = study.bases[0]
    found = [
        Verdict("Is attention needed here?", list(_needed(study, estimates, base))),
        Verdict(
            "Is the adversary's divergence beyond seed variance?",
            [
                selection(study),
                *beyond(study, estimates, base),
                *_heads(study, estimates, base),
            ],
        ),
        Verdict("Up to which λ is nothing lost?", list(_lost(study, estimates, base))),
        Verdict("Does training collapse?", list(_collapsed(study, base))),
        Verdict("Is there a safe point?", list(_safe(study, estimates, base))),
        Verdict("Do rankings of words change?", list(_ranked(study, estimates, base))),
        *_guided(study, estimates),
    ]
    absent = missing(study, words=ROLES)
    return [*found, Verdict("What is missing?", absent)] if absent else found


def _needed(study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun) -> Iterator[str]:
    trained = study.architecture(base)
    yield from needed(study, estimates, uniforms(study), trained)
    heads = {head: runs for head, runs in uniform_heads(study).items() if runs}
    if not (heads and trained):
        return
    less = {head: estimates.difference(runs, trained, F1) for head, runs in heads.items()}
    told_each = ", ".join(f"{signed(found)} (head {head})" for head, found in less.items())
    numbers = f"One head uniform, the others learned, {study.f1} differs by {told_each}."
    least = min(heads.values(), key=len)
    if few(least, trained):
        yield f"{too_few(least, trained, about=' on single heads')}. {numbers}"
        return
    fallen = [str(head) for head, found in less.items() if found.high < 0]
    which = (
        f"It falls without head {', '.join(fallen)}"
        if fallen
        else "For no head it is shown to fall"
    )
    yield f"{which}. {numbers}"


def _heads(study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun) -> Iterator[str]:
    best = chosen(study, base)
    if best and study.heads > 1:
        means = [estimates.of(best, head_measure(head)).mean for head in range(study.heads)]
        by_head = ", ".join(f"{number(mean)} (head {head})" for head, mean in enumerate(means))
        yield f"By head the mean JS of the best adversary is {by_head}."


def _lost(study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun) -> Iterator[str]:
    if not terms(study, base):
        yield _NO_ADVERSARY
    for term in terms(study, base):
        cells = path(study, base, term)
        control = [run for cell in cells if cell.lam == 0 for run in cell.runs]
        own = [cell for cell in cells if cell.lam > 0]
        if not control:
            yield f"{term_name(term)}: no answer, {lacking(('λ = 0', control))}"
            continue
        yield _fall(study, estimates, term, own, control)


def _fall(
    study: TaggingStudy,
    estimates: TaggingEstimates,
    term: str,
    cells: Sequence[Cell],
    control: Runs,
) -> str:
    """The least lambda whose F1 is below that of lambda 0, where there are seeds enough to say."""
    less = [(cell, estimates.difference(cell.runs, control, F1)) for cell in cells]
    most = min(less, key=lambda pair: pair[1].mean)
    numbers = (
        f"The lowest {study.f1} is that of {words_of(term, most[0].lam)}; it differs from that of "
        f"λ = 0 by {signed(most[1])}."
    )
    able = [(cell, found) for cell, found in less if not few(cell.runs, control)]
    if len(able) < len(less):
        shortest = min((cell.runs for cell, _ in less), key=len)
        few_seeds = too_few(shortest, control, about=f" on {term_name(term)}")
        return f"{few_seeds}. {numbers}"
    below = [pair for pair in able if pair[1].high < 0]
    if not below:
        return (
            f"{term_name(term)}: at no λ {study.f1} is shown to be below that of λ = 0. {numbers}"
        )
    cell, found = below[0]
    return (
        f"{term_name(term)}: λ = {cell.lam:g} is the least at which {study.f1} is below that of "
        f"λ = 0, by {size(found)}. {numbers}"
    )


def _collapsed(study: TaggingStudy, base: StudyRun) -> Iterator[str]:
    collapse = find_collapses(study, base)
    yield collapse.note
    if collapse.unknown:
        return
    for term in terms(study, base):
        cells = path(study, base, term)
        some = [f"{collapse.share(c.runs)} at λ = {c.lam:g}" for c in cells if collapse.of(c.runs)]
        whole = sum(len(cell.runs) for cell in cells)
        told_where = ", ".join(some) if some else "none"
        yield f"{term_name(term)}, of {whole} runs: {told_where}."


def _safe(study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun) -> Iterator[str]:
    """The shape of all runs, then of those that did not collapse, which decide."""
    if not terms(study, base):
        yield _NO_ADVERSARY
        return
    collapse = find_collapses(study, base)
    for measure in LOSSES:
        whole = find_bend(study, estimates, base, measure)
        fell = bool(collapse.of(whole.runs))
        yield told(whole, decides=not fell)
        if fell:
            yield told(find_bend(study, estimates, base, measure, without=collapse))


def _ranked(study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun) -> Iterator[str]:
    named = [
        ("other seeds", study.finished("seed", base=base.name)),
        ("imitation (λ = 0)", study.controls(base)),
        ("the best adversary", chosen(study, base)),
    ]
    means = [(name, runs, estimates.of(runs, TAU)) for name, runs in named]
    held = [f"{mean} with {name}" for name, _, mean in means if not np.isnan(mean.mean)]
    if not held:
        yield "No answer: the study has no tau of attention with the base's."
        return
    yield f"Tau of attention with the base's: {', '.join(held)}."
    yield from _beyond_seeds(estimates, means[2][1], means[0][1])
    bend = find_bend(study, estimates, base, NLL_BASE)
    if all(bend.sides):
        up_to, after = (signed(estimates.of(runs, TAU)) for runs in bend.sides)
        yield f"Up to the {bend.shape} of the loss tau is {up_to}, beyond it {after}."


def _beyond_seeds(estimates: TaggingEstimates, best: Runs, seeds: Runs) -> Iterator[str]:
    if not (best and seeds):
        yield f"Against seed variance: {lacking(('the best adversary', best), ('other seeds', seeds))}"
        return
    less = estimates.difference(best, seeds, TAU)
    if few(best, seeds):
        yield f"{too_few(best, seeds, about=' against seed variance')}."
        return
    who, than = "The adversary of this base", "like it than other seeds do"
    if less.low <= 0 <= less.high:
        yield (
            f"{who} is not shown to rank words more or less {than}: tau differs by {signed(less)}, "
            "an interval that holds 0."
        )
        return
    yield f"{who} ranks words {'less' if less.high < 0 else 'more'} {than}, by {size(less)}."


def _guided(study: TaggingStudy, estimates: TaggingEstimates) -> Iterator[Verdict]:
    """An answer for each way in which probes read."""
    for context, by_guide in probes(study).items():
        reader = Reader(f"a probe {reading(context)}", "sentence")
        answer = guiding(study, estimates, by_guide, reader)
        yield Verdict(f"Does given attention guide {reader.name}?", answer)

"""The groups of runs that a tagger's study compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnlight.report.study.estimates import Runs
from attnlight.report.study.groups import grid, guides, kl_first, uniforms
from attnlight.report.study.missing import RUNS
from attnlight.report.study.plan import StudyRun
from attnlight.report.tagging.reading import ALONE, FULL, TaggingStudy

ROLES = RUNS | {"guide": "guided taggers"}
GUIDES = {
    "uniform": "uniform",
    "learned": "learned by the probe itself",
    "base": "of the base",
    "shuffled": "of the base, shuffled within each sentence",
    "adversary": "of the adversary",
    "other": "of another seed",
}
CONTEXTS = {
    FULL: "with the base's encoder",
    ALONE: "that reads each token alone",
    "query_key": "whose queries and keys are free",
}


class Cell(NamedTuple):
    """The adversaries of one base, attention term and lambda.

    Attributes:
        base: Their base.
        term: The attention term.
        lam: Its weight.
        runs: Those that are finished.
    """

    base: StudyRun
    term: str | None
    lam: float
    runs: Runs


def cells(study: TaggingStudy, base: StudyRun) -> list[Cell]:
    """The planned cells of a base, in ascending order of lambda within a term."""
    return [Cell(*found) for found in grid(study) if found[0] == base]


def terms(study: TaggingStudy, base: StudyRun) -> list[str]:
    """The attention terms of finished adversaries of a base at a lambda above 0, KL first."""
    found = {cell.term for cell in cells(study, base) if cell.lam > 0 and cell.runs and cell.term}
    return sorted(found, key=kl_first)


def path(study: TaggingStudy, base: StudyRun, term: str) -> list[Cell]:
    """The cells of a term with finished runs, from the control at lambda 0 upwards."""
    control = Cell(base, term, 0.0, study.controls(base, term))
    own = [cell for cell in cells(study, base) if cell.term == term and cell.lam > 0]
    return [cell for cell in (control, *own) if cell.runs]


def adversaries(study: TaggingStudy, base: StudyRun, term: str | None = None) -> list[StudyRun]:
    """The finished adversaries of a base with its controls; None: of every term."""
    if term is None:
        return study.finished("adversary", base=base.name)
    return [run for cell in path(study, base, term) for run in cell.runs]


def uniform_heads(study: TaggingStudy) -> dict[int, list[StudyRun]]:
    """The finished runs of the first base with one head uniform, by planned head."""
    planned = study.planned("uniform", base=study.bases[0].name)
    heads = sorted({run.head for run in planned if run.head is not None})
    return {h: [run for run in planned if run.head == h and run.finished] for h in heads}


def probes(study: TaggingStudy) -> dict[str, dict[str, list[StudyRun]]]:
    """The finished guided taggers of the first base by guide, by planned context."""
    found = {run.context or FULL for run in study.planned("guide", base=study.bases[0].name)}
    order = [name for name in CONTEXTS if name in found] + sorted(found - CONTEXTS.keys())
    return {context: guides(study, context) for context in order}


def reading(context: str) -> str:
    """What a probe reads beside its attention, in words that follow its name."""
    return CONTEXTS.get(context, f"of context {context}")


def models(study: TaggingStudy) -> Iterator[tuple[str, Runs]]:
    """Name and finished runs of all that is no adversary, a row of a table each."""
    yield "trained attention, bases", [run for run in study.bases if run.finished]
    for base in study.bases:
        if study.planned("seed", base=base.name):
            yield f"other seeds of {base.name}", study.finished("seed", base=base.name)
    yield "uniform attention", uniforms(study)
    for head, runs in uniform_heads(study).items():
        yield f"head {head} alone uniform", runs
    for context, by_guide in probes(study).items():
        for guide, runs in by_guide.items():
            yield f"probe {reading(context)}: attention {GUIDES.get(guide, guide)}", runs


def groups(study: TaggingStudy) -> Iterator[tuple[str, str, Runs]]:
    """Name, base and finished runs of every group."""
    for base in study.bases:
        yield "base", base.name, [base] if base.finished else []
        yield "seeds", base.name, study.finished("seed", base=base.name)
    first = study.bases[0].name
    yield "uniform", first, uniforms(study)
    for head, runs in uniform_heads(study).items():
        yield f"uniform-head-{head}", first, runs
    for context, by_guide in probes(study).items():
        for guide, runs in by_guide.items():
            yield f"guide-{guide}-{context}", first, runs
    for base, term, lam, runs in grid(study):
        yield f"adversary-{term or 'none'}-{lam:g}", base.name, runs

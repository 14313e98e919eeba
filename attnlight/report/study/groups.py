"""The groups of runs that a study compares."""

from __future__ import annotations

from collections.abc import Iterator

from attnlight.report.study.plan import Plan, StudyRun

KL = "kl"
GUIDES = {
    "uniform": "uniform",
    "learned": "learned by the MLP itself",
    "base": "the base's",
    "shuffled": "the base's, shuffled within each text",
    "adversary": "the adversary's",
    "other": "another seed's",
}


def uniforms(study: Plan) -> list[StudyRun]:
    """The finished runs of the first base with uniform attention in every head."""
    return study.finished("uniform", base=study.bases[0].name, head=None)


def guides(study: Plan, context: str | None = None) -> dict[str, list[StudyRun]]:
    """The finished guided models of the first base by guide, in a fixed order; those planned alone.

    Args:
        study: The study.
        context: What they read, of taggers.
    """
    planned = study.planned("guide", base=study.bases[0].name, context=context)
    names = sorted({run.guide or "" for run in planned}, key=_place)
    return {name: [run for run in planned if run.guide == name and run.finished] for name in names}


def chosen(study: Plan, base: StudyRun) -> list[StudyRun]:
    """The finished adversaries of a base at the term and lambda that validation chose."""
    if study.selected is None:
        return []
    term, lam = study.selected
    return study.finished("adversary", base=base.name, term=term, lam=lam)


def grid(study: Plan) -> Iterator[tuple[StudyRun, str | None, float, list[StudyRun]]]:
    """Base, term, lambda and finished runs of each planned cell: lambda 0, then KL, then others."""
    for base in study.bases:
        planned = study.planned("adversary", base=base.name)
        cells = {(run.term, run.lam or 0.0) for run in planned}
        for term, lam in sorted(cells, key=lambda cell: (cell[1] > 0, kl_first(cell[0]), cell[1])):
            own = [run for run in planned if (run.term, run.lam or 0.0) == (term, lam)]
            yield base, term, lam, [run for run in own if run.finished]


def kl_first(term: str | None) -> tuple[bool, str]:
    """The place of an attention term: KL, then the others by name."""
    return term != KL, term or ""


def groups(study: Plan) -> Iterator[tuple[str, str, list[StudyRun]]]:
    """Name, base and finished runs of every group."""
    for base in study.bases:
        yield "base", base.name, [base] if base.finished else []
        yield "seeds", base.name, study.finished("seed", base=base.name)
    first = study.bases[0].name
    yield "uniform", first, uniforms(study)
    for name, runs in guides(study).items():
        yield f"guide-{name}", first, runs
    for base, term, lam, runs in grid(study):
        yield f"adversary-{term or 'none'}-{lam:g}", base.name, runs


def _place(guide: str) -> tuple[int, str]:
    known = list(GUIDES)
    return (known.index(guide) if guide in known else len(known), guide)

"""What a study compares: its groups of runs, and pairs of them with the question each answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.study.estimates import JS, TAU, TVD
from attnlight.report.study.frame import ACCURACY, FINISHED, FULL, ROLES, Study

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs

KL, ALONE = "kl", "tokens"
GUIDES = ("uniform", "learned", "base", "shuffled", "adversary", "other")
OWNERS = {"base": "the base", "adversary": "the adversary", "other": "another seed"}
CONTEXTS = {
    FULL: "with the base's encoder",
    ALONE: "that reads each token alone",
    "query_key": "whose queries and keys are free",
}
BEST, SEEDS, CONTROL = "the best adversary", "other seeds", "λ = 0"
IMITATION = "imitation without a divergence term (λ = 0)"
UNIFORM, TRAINED = "uniform attention", "trained attention"
TABLE = "table"
_MOST = 5  # names of unfinished runs; more are counted


class Cell(NamedTuple):
    """The finished adversaries of one base, attention term and lambda."""

    base: str
    term: str | None
    lam: float
    runs: Runs

    @property
    def name(self) -> str:
        """What the term and its weight are called."""
        return words_of(self.term, self.lam)


class Spec(NamedTuple):
    """Two groups that are compared.

    Attributes:
        question: What their difference answers, the key of its sentences; `TABLE`: none, it stands
            in a table.
        group: Name of the group.
        runs: Its finished runs.
        against: Name of the group that it is compared with.
        other: The finished runs of that group.
        measure: The measure.
        about: What else a sentence names: an attention term, or the model that is guided.
    """

    question: str
    group: str
    runs: Runs
    against: str
    other: Runs
    measure: str
    about: str = ""


def specs(study: Study) -> Iterator[Spec]:
    """All that a study compares; tables and sentences tell these differences and no others."""
    yield from _trained_specs(study)
    yield from _best_specs(study)
    for cell in (cell for term in terms(study, study.bases[0]) for cell in path(study, term=term)):
        if cell.lam > 0 and study.losses:
            zero, about = study.controls(cell.base, cell.term), term_name(cell.term or "")
            yield Spec("lost", cell.name, cell.runs, CONTROL, zero, study.quality, about)
    for context in contexts(study):
        yield from _guide_specs(study, context)


def _trained_specs(study: Study) -> Iterator[Spec]:
    """Every model that is no adversary against trained attention."""
    trained = study.architecture(study.bases[0])
    questions = {UNIFORM: "needed"}
    questions |= {head_name(head): "head" for head in uniform_heads(study)}
    for name, runs in models(study):
        if not runs.index.isin(trained.index).any():
            question = questions.get(name, TABLE)
            yield Spec(question, name, runs, TRAINED, trained, study.quality)
    if study.quality != ACCURACY:
        yield Spec(TABLE, UNIFORM, uniforms(study), TRAINED, trained, ACCURACY)


def _best_specs(study: Study) -> Iterator[Spec]:
    """The best adversary of the first base against other seeds and against lambda 0."""
    base, best = study.bases[0], chosen(study)
    seeds = study.finished("seed", base=base)
    control = study.controls(base, study.selected[0] if study.selected else None)
    for against, other, question in ((SEEDS, seeds, TABLE), (IMITATION, control, "price")):
        yield Spec("divergence", BEST, best, against, other, JS)
        for measure in (TVD, study.quality):
            yield Spec(question, BEST, best, against, other, measure)
    if study.losses:
        yield Spec("ranked", BEST, best, SEEDS, seeds, TAU)


def _guide_specs(study: Study, context: str | None) -> Iterator[Spec]:
    """Guided models against those with three other guides, each told in a table or a sentence."""
    found, about = guides(study, context), reader(study, context)
    for name in dict.fromkeys((*found, "adversary")):
        for other in ("base", "uniform", "shuffled"):
            question = TABLE
            if name == "adversary" and other != "shuffled":
                question = "guides"
            elif name in OWNERS and name in found and other == "shuffled":
                question = "informs"
            sides = [(told(study, n), found.get(n, study.runs.iloc[:0])) for n in (name, other)]
            yield Spec(question, *sides[0], *sides[1], study.quality, about)


def models(study: Study) -> Iterator[tuple[str, Runs]]:
    """Name and finished runs of all that is no adversary."""
    finished = study.finished("base")
    yield "trained attention, bases", finished
    for base in study.bases:
        if len(study.planned("seed", base=base)):
            yield f"other seeds of {base}", study.finished("seed", base=base)
    yield UNIFORM, uniforms(study)
    for head, runs in uniform_heads(study).items():
        yield head_name(head), runs
    for context in contexts(study):
        for guide, runs in guides(study, context).items():
            yield (
                f"{reader(study, context).partition(' ')[2]}: attention {owned(study, guide)}",
                runs,
            )


def head_name(head: int) -> str:
    """What models are called of which one head is uniform."""
    return f"head {head} alone uniform"


def uniforms(study: Study) -> Runs:
    """The finished runs of the first base with uniform attention in every head."""
    return study.finished("uniform", base=study.bases[0], head=None)


def uniform_heads(study: Study) -> dict[int, Runs]:
    """The finished runs of the first base with one head uniform, by planned head."""
    planned = study.planned("uniform", base=study.bases[0])["head"].dropna()
    heads = sorted(int(head) for head in planned.unique())
    return {h: study.finished("uniform", base=study.bases[0], head=h) for h in heads}


def chosen(study: Study, base: str | None = None) -> Runs:
    """The finished adversaries of a base, by default the first, as validation chose them."""
    if study.selected is None:
        return study.runs.iloc[:0]
    term, lam = study.selected
    return study.finished("adversary", base=base or study.bases[0], term=term, lam=lam)


def contexts(study: Study) -> list[str | None]:
    """What guided models read beside the attention they are given; None: nothing else is told."""
    planned = study.planned("guide", base=study.bases[0])["context"]
    found = {context if isinstance(context, str) else None for context in planned}
    known = [name for name in (None, *CONTEXTS) if name in found]
    return known + sorted(name for name in found - set(known) if name)


def guides(study: Study, context: str | None = None) -> dict[str, Runs]:
    """The finished guided models of the first base by planned guide, in a fixed order."""
    known = {"base": study.bases[0], "context": context}
    planned = set(study.planned("guide", **known)["guide"].dropna())
    names = [name for name in GUIDES if name in planned] + sorted(planned - set(GUIDES))
    return {name: study.finished("guide", guide=name, **known) for name in names}


def told(study: Study, guide: str) -> str:
    """Whose attention a guide is, in a sentence."""
    words = {
        "uniform": "uniform attention",
        "base": "the attention of this base",
        "shuffled": f"the attention of this base shuffled within each {study.words.cluster}",
        "adversary": "the attention of this base's adversary",
        "other": "the attention of another seed of this base",
    }
    return words.get(guide, guide)


def owned(study: Study, guide: str) -> str:
    """Whose attention a guide is, after "attention"."""
    if guide == "shuffled":
        return f"of the base, shuffled within each {study.words.cluster}"
    if guide == "learned":
        return "learned by the probe itself"
    return f"of {OWNERS[guide]}" if guide in OWNERS else guide


def whose(study: Study, guide: str) -> str:
    """Whose attention a guide is, as a name."""
    if guide == "shuffled":
        return f"the base's, shuffled within each {study.words.cluster}"
    if guide == "learned":
        return f"learned by the {study.words.guided.partition(' ')[2]} itself"
    return f"{OWNERS[guide]}'s" if guide in OWNERS else guide


def reader(study: Study, context: str | None) -> str:
    """What a guided model is called, with its article."""
    if context is None:
        return study.words.guided
    return f"a probe {CONTEXTS.get(context, f'of context {context}')}"


def cells(study: Study, base: str) -> list[Cell]:
    """The planned cells of a base: lambda 0, then KL, then others, lambdas ascending."""
    planned = study.planned("adversary", base=base)
    planned = planned.assign(lam=planned["lam"].fillna(0.0))
    found = [
        Cell(base, term if isinstance(term, str) else None, lam, runs[runs["state"] == FINISHED])
        for (term, lam), runs in planned.groupby(["term", "lam"], dropna=False)
    ]
    return sorted(found, key=lambda cell: (cell.lam > 0, kl_first(cell.term), cell.lam))


def terms(study: Study, base: str) -> list[str]:
    """The attention terms of finished adversaries of a base at a lambda above 0, KL first."""
    found = study.finished("adversary", base=base)
    return sorted(found[found["lam"] > 0]["term"].dropna().unique(), key=kl_first)


def path(study: Study, base: str | None = None, *, term: str) -> list[Cell]:
    """The cells of a base, by default the first, and term that have finished runs, lambda rising."""
    base = base or study.bases[0]
    control = Cell(base, term, 0.0, study.controls(base, term))
    own = [cell for cell in cells(study, base) if cell.term == term and cell.lam > 0]
    return [cell for cell in (control, *own) if len(cell.runs)]


def adversaries(study: Study, base: str, term: str | None = None) -> Runs:
    """The finished adversaries of a base with its controls; None: of every term."""
    if term is None:
        return study.finished("adversary", base=base)
    return study.runs.loc[
        [name for cell in path(study, base, term=term) for name in cell.runs.index]
    ]


def every_group(study: Study) -> Iterator[tuple[str, str, Runs]]:
    """Name, base and finished runs of every group."""
    for base in study.bases:
        yield "base", base, study.itself(base)
        yield "seeds", base, study.finished("seed", base=base)
    first = study.bases[0]
    yield "uniform", first, uniforms(study)
    for head, runs in uniform_heads(study).items():
        yield f"uniform-head-{head}", first, runs
    for context in contexts(study):
        for guide, runs in guides(study, context).items():
            yield f"guide-{guide}{f'-{context}' if context else ''}", first, runs
    for cell in (cell for base in study.bases for cell in cells(study, base)):
        yield f"adversary-{cell.term or 'none'}-{cell.lam:g}", cell.base, cell.runs


def kl_first(term: str | None) -> tuple[bool, str]:
    """The place of an attention term: KL, then the others by name."""
    return term != KL, term or ""


def words_of(term: str | None, lam: float) -> str:
    """What an attention term and its weight are called."""
    return f"{term_name(term)}, λ = {lam:g}" if term else f"λ = {lam:g}"


def term_name(term: str) -> str:
    """What an attention term is called."""
    return "KL (released scale)" if term == "compat" else term.upper()


def role_words(study: Study) -> dict[str, str]:
    """What the runs of each role are called."""
    guided = f"guided {study.words.guided.partition(' ')[2].removeprefix('guided ')}s"
    words = ("bases", "runs with uniform attention", "other seeds of a base", guided, "adversaries")
    return dict(zip(ROLES, words, strict=True))


def missing(study: Study, roles: Sequence[str] = ROLES) -> list[str]:
    """A sentence for each of some roles that is not planned or has not finished."""
    found, known = [], role_words(study)
    for role in roles:
        planned, words = study.planned(role), known[role]
        waiting = list(planned.index[planned["state"] != FINISHED])
        if not len(planned):
            found.append(f"The study has no {words}.")
        elif waiting:
            more = len(waiting) - _MOST
            names = ", ".join(waiting[:_MOST]) + (f" and {more} more" if more > 0 else "")
            found.append(f"Not finished: {len(waiting)} of {len(planned)} {words} ({names}).")
    return found

"""What a study compares: its groups of runs, and pairs of them with the question each answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.study.estimates import JS, TAU, TVD
from attnlight.report.study.frame import ACCURACY, FINISHED, ROLES, Study
from attnlight.report.study.texts import text, texts

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs

KL = "kl"
TRAINED, UNIFORM, SEEDS = "trained attention", "uniform attention", "other seeds"
BEST, CONTROL = "the best adversary", "λ = 0"
IMITATION = "imitation without a divergence term (λ = 0)"
TABLE = "table"
_OF_MODELS = ("base", "adversary", "other")  # guides whose attention a model has learned
_MOST = 5  # names of unfinished runs; more are counted


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
    base, quality, plain = study.bases[0], study.quality, named(study)
    trained, best = plain[TRAINED], plain[BEST]
    for key, name, runs in models(study):
        if not runs.index.isin(trained.index).any():
            question = "needed" if key == "uniform" else TABLE
            question = "head" if key.startswith("uniform-head") else question
            yield Spec(question, name, runs, TRAINED, trained, quality)
    if quality != ACCURACY:
        yield Spec(TABLE, UNIFORM, plain[UNIFORM], TRAINED, trained, ACCURACY)
    for against, question in ((SEEDS, TABLE), (IMITATION, "price")):
        yield Spec("divergence", BEST, best, against, plain[against], JS)
        for measure in (TVD, quality):
            yield Spec(question, BEST, best, against, plain[against], measure)
    if study.losses:
        yield Spec("ranked", BEST, best, SEEDS, plain[SEEDS], TAU)
        for term, path in paths(study, base).items():
            zero, about = study.controls(base, term), term_name(term)
            for lam, runs in path.items():
                if lam > 0:
                    name = term_name(term, lam)
                    yield Spec("lost", name, runs, CONTROL, zero, quality, about)
    yield from _guide_specs(study)


def _guide_specs(study: Study) -> Iterator[Spec]:
    """Guided models against those with three other guides, each told in a table or a sentence."""
    others = ("base", "uniform", "shuffled")
    for context, found in guides(study).items():
        about = guided_name(study, context)
        sides = {
            guide: (guide_name(study, guide), found.get(guide, study.runs.iloc[:0]))
            for guide in (*found, "adversary", *others)
        }
        for guide in dict.fromkeys((*found, "adversary")):
            for other in others:
                question = TABLE
                if guide == "adversary" and other != "shuffled":
                    question = "guides"
                elif guide in found and guide in _OF_MODELS and other == "shuffled":
                    question = "informs"
                yield Spec(question, *sides[guide], *sides[other], study.quality, about)


def named(study: Study, base: str | None = None) -> dict[str, Runs]:
    """The finished runs of the groups of a base, by default the first, that have a name.

    The best adversary is the one that validation chose.
    """
    base = base or study.bases[0]
    term, lam = study.selected or (None, None)
    best = study.finished("adversary", base=base, term=term, lam=lam)
    return {
        TRAINED: study.finished("base", "seed", base=base),
        SEEDS: study.finished("seed", base=base),
        UNIFORM: study.finished("uniform", base=base, head=None),
        CONTROL: study.controls(base),
        IMITATION: study.controls(base, term),
        BEST: best if study.selected else best.iloc[:0],
    }


def models(study: Study) -> Iterator[tuple[str, str, Runs]]:
    """Key, name and finished runs of each group of models that are no adversaries."""
    first = study.bases[0]
    yield "bases", f"{TRAINED}, bases", study.finished("base")
    for base in study.bases:
        if len(study.planned("seed", base=base)):
            yield "seeds", f"{SEEDS} of {base}", study.finished("seed", base=base)
    yield "uniform", UNIFORM, named(study)[UNIFORM]
    planned = study.planned("uniform", base=first)["head"].dropna()
    for head in sorted(map(int, planned.unique())):
        runs = study.finished("uniform", base=first, head=head)
        yield f"uniform-head-{head}", f"head {head} alone uniform", runs
    for context, by_guide in guides(study).items():
        model = guided_name(study, context).partition(" ")[2]
        for guide, runs in by_guide.items():
            key = "-".join(filter(None, ("guide", guide, context)))
            yield key, f"{model}: attention {guide_name(study, guide, 'of')}", runs


def guides(study: Study) -> dict[str | None, dict[str, Runs]]:
    """The finished guided models of the first base by planned guide, and these by context.

    A context is what guided models read beside the attention they are given; None: that is not
    told. Contexts and guides have the order of `texts.yaml`.
    """
    base, found = study.bases[0], {}
    of_base = study.planned("guide", base=base)
    for context in [None] * bool(of_base["context"].isna().any()) + _known(of_base, "context"):
        names = _known(study.planned("guide", base=base, context=context), "guide")
        found[context] = {
            name: study.finished("guide", base=base, context=context, guide=name) for name in names
        }
    return found


def _known(runs: Runs, column: str) -> list[str]:
    """What a column of runs names, as far as `texts.yaml` does in its order, then by name."""
    order = list(texts()[f"{column}s"])
    names = sorted(runs[column].dropna().unique())
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def guided_name(study: Study, context: str | None) -> str:
    """What a guided model is called, with its article."""
    if context is None:
        return study.words.guided
    return str(texts()["contexts"].get(context, f"a probe of context {context}"))


def guide_name(study: Study, guide: str, form: str = "sentence") -> str:
    """Whose attention a guide is: in a `sentence`, after "attention" (`of`), or as a `name`."""
    if guide not in texts()["guides"]:
        return guide
    return text("guides", guide, form, **words(study))


def words(study: Study) -> dict[str, str]:
    """What texts may name of a study: the fields of `Words`, and what follows from them.

    Without an article, `model` is a guided model and `guided` what those are called in general;
    `label` is what an instance is given.
    """
    model = study.words.guided.partition(" ")[2]
    guided = "probe" if study.runs["context"].notna().any() else model
    label = texts()["labels"].get(study.words.instance, "label")
    return asdict(study.words) | {"model": model, "guided": guided, "label": label}


def cells(study: Study, base: str) -> list[tuple[str, float, Runs]]:
    """Term, lambda and finished runs of each that is planned of a base's adversaries.

    Lambda 0 comes first, then KL before other terms, lambdas ascending.
    """
    planned = study.planned("adversary", base=base).groupby(["term", "lam"])
    found = [(term, lam, runs[runs["state"] == FINISHED]) for (term, lam), runs in planned]
    return sorted(found, key=lambda cell: (cell[1] > 0, cell[0] != KL))


def paths(study: Study, base: str) -> dict[str, dict[float, Runs]]:
    """The finished adversaries of each attention term by lambda, rising from lambda 0.

    Terms have finished adversaries of the base at a lambda above 0; KL is the first.
    """
    found: dict[str, dict[float, Runs]] = {}
    for term, lam, runs in cells(study, base):
        if lam > 0 and len(runs):
            start = study.controls(base, term)
            found.setdefault(term, {0.0: start} if len(start) else {})[lam] = runs
    return found


def term_name(term: str, lam: float | None = None) -> str:
    """What an attention term is called, with its weight."""
    name = "KL (released scale)" if term == "compat" else term.upper()
    return name if lam is None else f"{name}, λ = {lam:g}"


def missing(study: Study, roles: Sequence[str] = ROLES) -> list[str]:
    """A sentence for each of some roles that is not planned or has not finished."""
    found, known = [], words(study)
    known["model"] = known["model"].removeprefix("guided ")
    for role in roles:
        planned, called = study.planned(role), text("roles", role, **known)
        waiting = list(planned.index[planned["state"] != FINISHED])
        if not len(planned):
            found.append(f"The study has no {called}.")
        elif waiting:
            more = len(waiting) - _MOST
            names = ", ".join(waiting[:_MOST]) + (f" and {more} more" if more > 0 else "")
            found.append(f"Not finished: {len(waiting)} of {len(planned)} {called} ({names}).")
    return found

"""Groups of a study's runs, and the pairs of groups that it compares to answer each question."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from attnlight.report.study.estimates import JS, TAU, TVD
from attnlight.report.study.frame import ACCURACY, FINISHED, ROAR, ROLES, Runs, Study
from attnlight.report.study.texts import text, texts

KL = "kl"
# Names of groups. `CONTROL` has lambda 0 of every attention term, `IMITATION` that of the best
# adversary's term, if it has runs of its own.
TRAINED, UNIFORM, SEEDS = "trained attention", "uniform attention", "other seeds"
BEST, CONTROL = "the best adversary", "λ = 0"
IMITATION = "imitation without a divergence term (λ = 0)"
TABLE = "table"
_OF_MODELS = ("base", "adversary", "other")  # guides whose attention a model learned
_MAX_NAMED = 5  # unfinished runs listed by name; the others are counted


class Spec(NamedTuple):
    """Two groups to compare."""

    question: str  # key of the sentences that report the difference; `TABLE`: it is in a table only
    group: str  # name of the first group
    runs: Runs  # its finished runs
    against: str  # name of the second group
    against_runs: Runs  # its finished runs
    measure: str
    subject: str = ""  # the attention term or the guided model that the sentence names


def specs(study: Study) -> Iterator[Spec]:
    """Every comparison of a study; tables and sentences report these differences only.

    Models are compared with others of the first base, and guided ones with those of other guides.
    """
    base, quality, plain = study.bases[0], study.quality, named_groups(study)
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
        for term, path in lambda_paths(study, base).items():
            zero, subject = study.controls(base, term), term_name(term)
            for lam, runs in path.items():
                if lam > 0:
                    name = term_name(term, lam)
                    yield Spec("lost", name, runs, CONTROL, zero, quality, subject)
    others = ("base", "uniform", "shuffled")  # guides that every guided model is compared with
    for context, runs_by_guide in guides(study).items():
        subject = guided_name(study, context)
        sides = {
            guide: (guide_name(study, guide), runs_by_guide.get(guide, study.runs.iloc[:0]))
            for guide in (*runs_by_guide, "adversary", *others)
        }
        for guide in dict.fromkeys((*runs_by_guide, "adversary")):
            for other in others:
                question = TABLE
                if guide == "adversary" and other != "shuffled":
                    question = "guides"
                elif guide in runs_by_guide and guide in _OF_MODELS and other == "shuffled":
                    question = "informs"
                yield Spec(question, *sides[guide], *sides[other], study.quality, subject)


def named_groups(study: Study, base: str | None = None) -> dict[str, Runs]:
    """The finished runs of a base by the name of their group; by default of the first base.

    The best adversary is the one chosen on validation.
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
    """Key, name and finished runs of each group of models other than adversaries."""
    first = study.bases[0]
    yield "bases", f"{TRAINED}, bases", study.finished("base")
    for base in study.bases:
        if len(study.planned("seed", base=base)):
            yield "seeds", f"{SEEDS} of {base}", study.finished("seed", base=base)
    yield "uniform", UNIFORM, named_groups(study)[UNIFORM]
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
    """The finished guided models of the first base, by context and then by planned guide.

    A context is the input of a guided model besides its given attention; None if not recorded.
    Contexts and guides have the order of `texts.yaml`.
    """
    base, by_context = study.bases[0], {}
    guided_runs = study.planned("guide", base=base)
    contexts = [None] * bool(guided_runs["context"].isna().any())
    for context in contexts + _in_text_order(guided_runs, "context"):
        names = _in_text_order(study.planned("guide", base=base, context=context), "guide")
        by_context[context] = {
            name: study.finished("guide", base=base, context=context, guide=name) for name in names
        }
    return by_context


def _in_text_order(runs: Runs, column: str) -> list[str]:
    """The distinct values of a column, in the order of `texts.yaml`, then by name."""
    order = list(texts()[f"{column}s"])
    names = sorted(runs[column].dropna().unique())
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def guided_name(study: Study, context: str | None) -> str:
    """Name of a guided model, with its article."""
    if context is None:
        return study.words.guided
    return str(texts()["contexts"].get(context, f"a probe of context {context}"))


def guide_name(study: Study, guide: str, form: str = "sentence") -> str:
    """Name of a guide's attention: in a `sentence`, after "attention" (`of`), or as a `name`."""
    if guide not in texts()["guides"]:
        return guide
    return text("guides", guide, form, **words(study))


def words(study: Study) -> dict[str, str]:
    """Fields of a study's texts: those of `Words`, and names derived from them.

    `model` is the name of a guided model and `guided` the general name, both without an article;
    `label` is the name of an instance's label.
    """
    model = study.words.guided.partition(" ")[2]
    guided = "probe" if study.runs["context"].notna().any() else model
    label = texts()["labels"].get(study.words.instance, "label")
    return asdict(study.words) | {"model": model, "guided": guided, "label": label}


def cells(study: Study, base: str) -> list[tuple[str, float, Runs]]:
    """Term, lambda and finished runs of each planned combination of a base's adversaries.

    Lambda 0 comes first, then KL before other terms, with ascending lambdas.
    """
    planned = study.planned("adversary", base=base).groupby(["term", "lam"])
    found = [(term, lam, runs[runs["state"] == FINISHED]) for (term, lam), runs in planned]
    return sorted(found, key=lambda cell: (cell[1] > 0, cell[0] != KL))


def lambda_paths(study: Study, base: str) -> dict[str, dict[float, Runs]]:
    """The finished adversaries of each attention term by lambda, ascending from lambda 0.

    Only terms with a finished adversary at a lambda above 0; KL comes first.
    """
    by_term: dict[str, dict[float, Runs]] = {}
    for term, lam, runs in cells(study, base):
        if lam > 0 and len(runs):
            if term not in by_term:
                start = study.controls(base, term)
                by_term[term] = {0.0: start} if len(start) else {}
            by_term[term][lam] = runs
    return by_term


def removals(study: Study) -> dict[str, dict[float, Runs]]:
    """The finished models trained without some words by method and share, the bases at share 0."""
    bases, finished = study.finished("base"), study.finished(ROAR)
    return {
        method: {0.0: bases, **dict(iter(runs.groupby("share")))}
        for method, runs in finished.groupby("method", sort=False)
    }


def term_name(term: str, lam: float | None = None) -> str:
    """Name of an attention term, with its weight if given."""
    name = "KL (released scale)" if term == "released" else term.upper()
    return name if lam is None else f"{name}, λ = {lam:g}"


def missing(study: Study, roles: Sequence[str] = ROLES) -> list[str]:
    """A sentence for each role without planned runs or with unfinished runs."""
    sentences, fields = [], words(study)
    fields["model"] = fields["model"].removeprefix("guided ")
    for role in roles:
        planned, called = study.planned(role), text("roles", role, **fields)
        waiting = list(planned.index[planned["state"] != FINISHED])
        if not len(planned):
            sentences.append(f"The study has no {called}.")
        elif waiting:
            names, remaining = ", ".join(waiting[:_MAX_NAMED]), len(waiting) - _MAX_NAMED
            names += f" and {remaining} more" if remaining > 0 else ""
            sentences.append(f"Not finished: {len(waiting)} of {len(planned)} {called} ({names}).")
    return sentences

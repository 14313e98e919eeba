"""The plan of a study: its runs and their dependencies."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from attnlight.storage.files import read_yaml
from attnlight.studies.spec import Study

ROLES = ("base", "uniform", "seed", "guide", "adversary", "roar")
RANDOM = "random"
_WITHOUT_PRIOR = ("uniform", "learned")  # guides that exclude the context `query_key`


@dataclass(frozen=True)
class PlannedRun:
    """One run."""

    name: str  # name of the run and of its folder
    role: str  # one of `ROLES`
    seed: int  # seed of the run
    # The run of its base; None for a base, and for models that are trained like one.
    base: str | None = None
    # Source of a guided model's attention, None for other roles. `adversary` is the one selected on
    # validation once all are trained.
    guide: str | None = None
    guide_run: str | None = None  # the run of that attention, if the plan determines it
    term: str | None = None  # attention term of an adversary
    lambda_: float | None = None  # weight of that term
    head: int | None = None  # the only uniform head
    context: str | None = None  # context of a guided tagger, see `GuidedVariant`, or `query_key`
    # Steps that remove words from its corpus: run that scored it, method, and share.
    removals: tuple[tuple[str, str, float], ...] = ()
    # Methods by which the run scores the words of all splits of its corpus.
    scored: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # the runs that must be done before
    options: tuple[str, ...] = ()  # options of `fit` beyond the experiment


def plan(study: Study) -> list[PlannedRun]:
    """The runs of a study, each after its dependencies."""
    first, grid = study.base.seeds[0], study.adversaries
    base = f"base-s{first}"
    scored = dict.fromkeys(study.roar.seeds, (*study.roar.methods, RANDOM))
    runs = [PlannedRun(f"base-s{s}", "base", s, scored=scored.get(s, ())) for s in study.base.seeds]
    for head, seed in product((None, *study.uniform.heads), study.uniform.seeds):
        name = f"uniform-s{seed}" if head is None else f"uniform-h{head}-s{seed}"
        runs.append(PlannedRun(name, "uniform", seed, base, head=head))
    for base_seed, seed in product(study.base.seeds, study.seeds.seeds):
        if seed != base_seed:
            name = f"seed-b{base_seed}-s{seed}"
            runs.append(PlannedRun(name, "seed", seed, f"base-s{base_seed}"))
    guides, others = study.guides, [run for run in runs if (run.role, run.base) == ("seed", base)]
    by_seed = {run.seed: run.name for run in others}
    for guide, context, seed in product(guides.names, guides.contexts, guides.seeds):
        if context == "query_key" and guide in _WITHOUT_PRIOR:
            continue
        name = f"guide-{guide}-s{seed}" if context == "full" else f"guide-{guide}-{context}-s{seed}"
        read = context if study.setup.several_instances else None
        # The variant of the same seed, or else the first.
        of = by_seed.get(seed, others[0].name) if guide == "other" else None
        runs.append(PlannedRun(name, "guide", seed, base, guide, of, context=read))
    for base_seed, (term, weights) in product(grid.bases, grid.lambdas.items()):
        prefix = f"adversary-{term}" if base_seed == first else f"adversary-b{base_seed}-{term}"
        of_base = f"base-s{base_seed}"
        for weight, seed in product(weights, grid.seeds.get(term, ())):
            short = f"{weight:g}"  # ambiguous if it is rounded
            name = f"{prefix}-l{short if float(short) == weight else repr(weight)}-s{seed}"
            runs.append(PlannedRun(name, "adversary", seed, of_base, term=term, lambda_=weight))
    guiding = [run for run in runs if (run.base, run.term) == (base, grid.term)]
    selectable = [run.name for run in guiding if run.lambda_]
    runs += _without_words(study)
    groups = (study.base, study.uniform, study.seeds, study.guides, grid, study.roar)
    options = {role: group.options for role, group in zip(ROLES, groups, strict=True)}
    for place, run in enumerate(runs):
        told_by = selectable if run.guide == "adversary" else [run.guide_run]
        scorers = [scorer for scorer, *_ in run.removals[-1:]]
        needs = tuple(filter(None, [run.base, *told_by, *scorers]))
        runs[place] = replace(run, needs=needs, options=options[run.role])
    return sorted(runs, key=lambda run: run.guide == "adversary")


def _without_words(study: Study) -> Iterator[PlannedRun]:
    """The models trained without some words, by method, seed and ascending share."""
    roar = study.roar
    for method, seed in product((*roar.methods, RANDOM), roar.seeds):
        scorer, removals = f"base-s{seed}", tuple[tuple[str, str, float], ...]()
        compared = tuple(dict.fromkeys(("attention", method, RANDOM)))  # at least two
        for share in roar.shares:
            name, step = f"roar-{method}-{100 * share:g}-s{seed}", (scorer, method, share)
            removals = (*(removals if roar.recursive else ()), step)
            scored = compared if roar.recursive and share < roar.shares[-1] else ()
            yield PlannedRun(name, "roar", seed, removals=removals, scored=scored)
            scorer = name if roar.recursive else scorer


def selected_runs(
    runs: Sequence[PlannedRun], roles: Iterable[str], shard: tuple[int, int]
) -> list[PlannedRun]:
    """The runs that have one of some roles and belong to a shard, the I-th of N from 1.

    All bases are in the first shard, the others are dealt in turn.
    """
    bases = [run for run in runs if run.role == "base" and shard[0] == 1]
    dealt = [run for run in runs if run.role != "base"][shard[0] - 1 :: shard[1]]
    return [run for run in (*bases, *dealt) if run.role in roles]


def digests(study: Study, runs: Iterable[PlannedRun]) -> dict[str, str]:
    """For each run a hash of all that determines it: options and the content of configurations."""
    attached = (study.tests, study.base.tests)
    tests, base_tests = ([read_yaml(path) for path in paths] for paths in attached)
    shared, hashes = [read_yaml(study.trainer), study.setup.content, tests], {}
    for run in runs:
        options = asdict(run) | {"needs": None}
        del options["scored"]  # more methods leave a base as it is
        options = {name: value for name, value in options.items() if value or name != "removals"}
        content = [shared, options, *([base_tests] if run.role == "base" else [])]
        text = json.dumps(content, sort_keys=True, default=str)
        hashes[run.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return hashes

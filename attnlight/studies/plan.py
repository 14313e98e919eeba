"""Which runs a study is made of, and what each of them needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from attnlight.files import read_yaml
from attnlight.studies.spec import Study

ROLES = ("base", "uniform", "seed", "guide", "adversary")
_NOT_GIVEN = ("uniform", "learned")  # guides whose attention queries and keys have no part in
# Left out of a digest where they are None: studies that began before there were any go on.
_LATER = ("head", "context")


@dataclass(frozen=True)
class PlannedRun:
    """One run.

    Attributes:
        name: Its folder within the study's.
        role: One of `ROLES`.
        seed: Its seed.
        base: The run that it is made from; None for a base.
        guide: Whose attention guides it, None for all but guided models. `adversary` is the one that
            validation selects once all are there.
        guide_run: The run of that attention, where the plan knows it.
        term: Attention term of an adversary.
        lambda_: Its weight.
        head: The head that alone is uniform.
        context: What a guided model makes of its guide's attention, where there are several ways.
        needs: The runs that must be done before.
        options: What is set beyond the experiment, as options of `fit`.
    """

    name: str
    role: str
    seed: int
    base: str | None = None
    guide: str | None = None
    guide_run: str | None = None
    term: str | None = None
    lambda_: float | None = None
    head: int | None = None
    context: str | None = None
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def plan(study: Study) -> list[PlannedRun]:
    """The runs of a study, each after those that it needs."""
    first, grid = study.base.seeds[0], study.adversaries
    base = f"base-s{first}"
    runs = [PlannedRun(f"base-s{seed}", "base", seed) for seed in study.base.seeds]
    for head, seed in product((None, *study.uniform.heads), study.uniform.seeds):
        name = f"uniform-s{seed}" if head is None else f"uniform-h{head}-s{seed}"
        runs.append(PlannedRun(name, "uniform", seed, base, head=head))
    for of, seed in product(study.base.seeds, study.seeds.seeds):
        if seed != of:
            runs.append(PlannedRun(f"seed-b{of}-s{seed}", "seed", seed, f"base-s{of}"))
    runs += _guided(study, [run for run in runs if (run.role, run.base) == ("seed", base)])
    for of, (term, weights) in product(grid.bases, grid.lambdas.items()):
        prefix = f"adversary-{term}" if of == first else f"adversary-b{of}-{term}"
        for weight, seed in product(weights, grid.seeds.get(term, ())):
            short = f"{weight:g}"  # which another number may have
            name = f"{prefix}-l{short if float(short) == weight else repr(weight)}-s{seed}"
            run = PlannedRun(name, "adversary", seed, f"base-s{of}", term=term, lambda_=weight)
            runs.append(run)
    of_term = [run for run in runs if (run.base, run.term) == (base, grid.term)]
    selectable = [run.name for run in of_term if run.lambda_]
    groups = (study.base, study.uniform, study.seeds, study.guides, grid)
    options = {role: group.options for role, group in zip(ROLES, groups, strict=True)}
    for place, run in enumerate(runs):
        guides = selectable if run.guide == "adversary" else [run.guide_run]
        needs = tuple(filter(None, [run.base, *guides]))
        runs[place] = replace(run, needs=needs, options=options[run.role])
    return sorted(runs, key=lambda run: run.guide == "adversary")


def _guided(study: Study, others: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
    """The guided models of the first base, whose seed variants are `others`."""
    guides, by_seed = study.guides, {run.seed: run.name for run in others}
    for guide, context, seed in product(guides.names, guides.contexts, guides.seeds):
        if context == "query_key" and guide in _NOT_GIVEN:
            continue
        name = f"guide-{guide}-s{seed}" if context == "full" else f"guide-{guide}-{context}-s{seed}"
        way = context if study.setup.target else None
        # The variant of the same seed, or else the first.
        known = by_seed.get(seed, others[0].name) if guide == "other" else None
        base = f"base-s{study.base.seeds[0]}"
        yield PlannedRun(name, "guide", seed, base, guide, known, context=way)


def deal(runs: Sequence[PlannedRun], shard: int, shards: int) -> list[PlannedRun]:
    """The runs of a shard, from 1: the bases are the first one's, the others are dealt in turn."""
    bases = [run for run in runs if run.role == "base" and shard == 1]
    return [*bases, *[run for run in runs if run.role != "base"][shard - 1 :: shards]]


def digests(study: Study, runs: Iterable[PlannedRun]) -> dict[str, str]:
    """For each run a hash of all that decides it: options and the content of configurations."""
    tests, of_bases = (
        [read_yaml(path) for path in paths] for paths in (study.tests, study.base.tests)
    )
    trainer = json.dumps(read_yaml(study.trainer), default=str)
    trainer = json.loads(trainer, object_hook=_without_later)
    shared, found = [trainer, study.setup.content, tests], {}
    for run in runs:
        own: dict[str, Any] = asdict(run) | {"needs": None}
        own["told_by"] = own.pop("guide_run")  # its name when studies began
        own = {k: v for k, v in own.items() if k not in _LATER or v is not None}
        decisive = [shared, own, *([of_bases] if run.role == "base" else [])]
        text = json.dumps(decisive, sort_keys=True, default=str)
        found[run.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def _without_later(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a callback as digested by studies that began when `best.ckpt` was complete."""
    if options.get("filename") == "best":
        return {name: value for name, value in options.items() if name != "save_weights_only"}
    return options

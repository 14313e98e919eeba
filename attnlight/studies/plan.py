"""Which runs a study is made of, and what each of them needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from attnlight.studies.spec import Study, read_experiment
from attnlight.studies.values import read_yaml

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
        guide: Whose attention guides it; None for all but guided models.
        guide_run: The run of that attention, where the plan knows it.
        term: Attention term of an adversary.
        lambda_: Its weight.
        head: The head that alone is uniform.
        context: What a guided model makes of its guide's attention, where there are several ways.
        needs: The runs that must be done before.
        options: What it is told beyond the experiment, as options of `fit`.
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

    @property
    def selects(self) -> bool:
        """Whether its guide is the adversary that validation selects once all are there."""
        return self.guide == "adversary"


def plan(study: Study) -> list[PlannedRun]:
    """The runs of a study, each after those that it needs."""
    bases = [
        PlannedRun(base_name(seed), "base", seed, options=study.base.options)
        for seed in study.base.seeds
    ]
    adversaries = list(_adversaries(study))
    guided = list(_guided(study, adversaries))
    return [
        *bases,
        *_uniform(study),
        *_other_seeds(study),
        *(run for run in guided if not run.selects),
        *adversaries,
        *(run for run in guided if run.selects),
    ]


def base_name(seed: int) -> str:
    """Name of the base of a seed."""
    return f"base-s{seed}"


def _uniform(study: Study) -> Iterator[PlannedRun]:
    held, base = study.uniform, base_name(study.base.seeds[0])
    for head, seed in product((None, *held.heads), held.seeds):
        name = f"uniform-s{seed}" if head is None else f"uniform-h{head}-s{seed}"
        needs = (base,)
        yield PlannedRun(name, "uniform", seed, base, head=head, needs=needs, options=held.options)


def _other_seeds(study: Study) -> Iterator[PlannedRun]:
    for of, seed in product(study.base.seeds, study.seeds.seeds):
        if seed != of:
            base, name, options = base_name(of), f"seed-b{of}-s{seed}", study.seeds.options
            yield PlannedRun(name, "seed", seed, base, needs=(base,), options=options)


def _adversaries(study: Study) -> Iterator[PlannedRun]:
    held = study.adversaries
    for of, (term, weights) in product(held.bases, held.lambdas.items()):
        base = base_name(of)
        first = "" if of == study.base.seeds[0] else f"-b{of}"
        for weight, seed in product(weights, held.seeds.get(term, ())):
            short = f"{weight:g}"  # a short name of a number that no other number has
            number = short if float(short) == weight else repr(weight)
            yield PlannedRun(
                f"adversary{first}-{term}-l{number}-s{seed}",
                "adversary",
                seed,
                base,
                term=term,
                lambda_=weight,
                needs=(base,),
                options=held.options,
            )


def _guided(study: Study, adversaries: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
    base, held = base_name(study.base.seeds[0]), study.guides
    selectable = [
        run.name
        for run in adversaries
        if (run.base, run.term) == (base, study.adversaries.term) and run.lambda_
    ]
    for name, context, seed in product(held.names, held.contexts, held.seeds):
        if context == "query_key" and name in _NOT_GIVEN:
            continue
        guide_run = _other(study, seed) if name == "other" else None
        needs = selectable if name == "adversary" else [guide_run] if guide_run else []
        yield PlannedRun(
            f"guide-{name}-s{seed}" if context == "full" else f"guide-{name}-{context}-s{seed}",
            "guide",
            seed,
            base,
            guide=name,
            guide_run=guide_run,
            context=context if study.clustered else None,
            needs=(base, *needs),
            options=held.options,
        )


def _other(study: Study, seed: int) -> str:
    """The seed variant of the first base that has this seed, or else the first one."""
    first = study.base.seeds[0]
    there = [other for other in study.seeds.seeds if other != first]
    return f"seed-b{first}-s{seed if seed in there else there[0]}"


def deal(runs: Sequence[PlannedRun], shard: int, shards: int) -> list[PlannedRun]:
    """The runs of one shard of several: the bases are the first one's, the others dealt in turn.

    Args:
        runs: The plan.
        shard: Number of the shard, from 1.
        shards: How many there are.
    """
    bases = [run for run in runs if run.role == "base"]
    others = [run for run in runs if run.role != "base"]
    return [*(bases if shard == 1 else []), *others[shard - 1 :: shards]]


def digests(study: Study, runs: Sequence[PlannedRun]) -> dict[str, str]:
    """For each run a hash of all that decides it: options and the content of configurations."""
    experiment = read_experiment(study.experiment).content
    shared = [read_yaml(study.trainer), experiment, [read_yaml(path) for path in study.tests]]
    base_tests = [read_yaml(path) for path in study.base.tests]
    found = {}
    for run in runs:
        own: dict[str, Any] = asdict(run) | {"needs": None}
        own["told_by"] = own.pop("guide_run")  # its name when studies began
        own = {key: held for key, held in own.items() if key not in _LATER or held is not None}
        decisive = [shared, own, *([base_tests] if run.role == "base" else [])]
        text = json.dumps(decisive, sort_keys=True, default=str)
        found[run.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found

"""Which runs a study is made of, and what each of them needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from attnlight.studies.file import Study
from attnlight.studies.sections import read_experiment, read_yaml

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
        told_by: The run of that attention, where the plan knows it.
        term: Attention term of an adversary.
        lambda_: Its weight.
        head: The head of a tagger that alone is uniform.
        context: What a guided tagger makes of its guide's attention.
        needs: The runs that must be done before.
        options: What it is told beyond the experiment, as options of `fit`.
    """

    name: str
    role: str
    seed: int
    base: str | None = None
    guide: str | None = None
    told_by: str | None = None
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
    guided = list(_guided(study))
    return [
        *(
            PlannedRun(base_name(seed), "base", seed, options=study.base.options)
            for seed in study.base.seeds
        ),
        *_uniform(study),
        *_seeds(study),
        *(run for run in guided if not run.selects),
        *_adversaries(study),
        *(run for run in guided if run.selects),
    ]


def base_name(seed: int) -> str:
    """Name of the base of a seed."""
    return f"base-s{seed}"


def _uniform(study: Study) -> Iterator[PlannedRun]:
    base = base_name(study.base.seeds[0])
    for head, seed in product((None, *study.uniform.heads), study.uniform.seeds):
        yield PlannedRun(
            f"uniform-s{seed}" if head is None else f"uniform-h{head}-s{seed}",
            "uniform",
            seed,
            base,
            head=head,
            needs=(base,),
            options=study.uniform.options,
        )


def _seeds(study: Study) -> Iterator[PlannedRun]:
    for of in study.base.seeds:
        base = base_name(of)
        for seed in study.seeds.seeds:
            if seed != of:
                yield PlannedRun(
                    f"seed-b{of}-s{seed}",
                    "seed",
                    seed,
                    base,
                    needs=(base,),
                    options=study.seeds.options,
                )


def _adversaries(study: Study) -> Iterator[PlannedRun]:
    held = study.adversaries
    if held is None:
        return
    for of in held.bases:
        base = base_name(of)
        first = "" if of == study.base.seeds[0] else f"-b{of}"
        for term, lambdas in held.lambdas.items():
            for weight in lambdas:
                for seed in held.seeds[term]:
                    yield PlannedRun(
                        f"adversary{first}-{term}-l{_number(weight)}-s{seed}",
                        "adversary",
                        seed,
                        base,
                        term=term,
                        lambda_=weight,
                        needs=(base,),
                        options=held.options,
                    )


def _number(value: float) -> str:
    """A short name of a number that no other number has."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _guided(study: Study) -> Iterator[PlannedRun]:
    base, held = base_name(study.base.seeds[0]), study.guides
    for name, context, seed in product(held.names, held.contexts, held.seeds):
        if context == "query_key" and name in _NOT_GIVEN:
            continue
        told_by = _other(study, seed) if name == "other" else None
        yield PlannedRun(
            f"guide-{name}-s{seed}" if context == "full" else f"guide-{name}-{context}-s{seed}",
            "guide",
            seed,
            base,
            guide=name,
            told_by=told_by,
            context=context if study.tagger else None,
            needs=(base, told_by) if told_by else (base, *selectable(study, name)),
            options=held.options,
        )


def _other(study: Study, seed: int) -> str:
    """The seed variant of the first base that has this seed, or else the first one."""
    first = study.base.seeds[0]
    there = [other for other in study.seeds.seeds if other != first]
    return f"seed-b{first}-s{seed if seed in there else there[0]}"


def selectable(study: Study, guide: str) -> tuple[str, ...]:
    """Names of the adversaries of which one will guide, where the guide is one."""
    if guide != "adversary" or study.adversaries is None:
        return ()
    base, term = base_name(study.base.seeds[0]), study.adversaries.term
    return tuple(
        run.name
        for run in _adversaries(study)
        if (run.base, run.term) == (base, term) and run.lambda_
    )


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
    shared = [read_yaml(study.trainer), experiment, _contents(study.tests)]
    base_tests = _contents(study.base_tests)
    found = {}
    for run in runs:
        told: list[Any] = [shared, _decisive(run)]
        told += [base_tests] if run.role == "base" else []
        text = json.dumps(told, sort_keys=True, default=str)
        found[run.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def _decisive(run: PlannedRun) -> dict[str, Any]:
    held = asdict(run) | {"needs": None}
    return {key: value for key, value in held.items() if key not in _LATER or value is not None}


def _contents(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [read_yaml(path) for path in paths]

"""The conditions of a tagger's study, and what adversaries reach at a cost in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.estimates import TVD
from attnlight.report.study.groups import kl_first
from attnlight.report.study.plan import FILE, StudyRun
from attnlight.report.tagging.estimates import SHARE, TaggingEstimates
from attnlight.report.tagging.reading import TaggingStudy, read_tagging_study
from attnlight.statistics.bootstrap import RESAMPLES
from attnlight.statistics.exclusivity import Exclusivity, Runs, exclusivity

_POS = {True: "with POS", False: "without POS", None: "POS unknown"}


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a study.

    Attributes:
        name: Its name.
        study: Its study.
        estimates: The estimates of it.
    """

    name: str
    study: TaggingStudy
    estimates: TaggingEstimates

    @property
    def target(self) -> str:
        """What is asked for."""
        return self.study.target

    @property
    def setting(self) -> tuple[str, str]:
        """Readout and features, which conditions that are compared have in common."""
        return f"{self.study.readout or 'unknown'} readout", _POS[self.study.pos]

    @cached_property
    def by_seed(self) -> dict[tuple[str, int], list[StudyRun]]:
        """Finished adversaries of each base and seed, those of KL where there are any."""
        every = self.study.finished("adversary")
        terms = sorted({run.term or "" for run in every}, key=kl_first)
        found: dict[tuple[str, int], list[StudyRun]] = {}
        for run in every:
            if run.term == terms[0]:
                found.setdefault((run.base or "", run.seed), []).append(run)
        return found

    @cached_property
    def adversaries(self) -> list[StudyRun]:
        """Those of `by_seed` of a base and seed that has a measured run of lambda 0 and others."""
        return [
            run
            for own in self.by_seed.values()
            if any(self._measured(run) and not run.lam for run in own) and any(r.lam for r in own)
            for run in own
        ]

    @property
    def without_control(self) -> list[str]:
        """Base and seed of what has no curve."""
        curved = {(run.base, run.seed) for run in self.adversaries}
        return [f"{base}, seed {seed}" for base, seed in self.by_seed if (base, seed) not in curved]

    @property
    def lambdas(self) -> frozenset[tuple[float, int]]:
        """The lambdas of its curves, with how many runs there are of each."""
        held = [run.lam or 0.0 for run in self.adversaries]
        return frozenset((lam, held.count(lam)) for lam in held)

    @cached_property
    def runs(self) -> Runs | None:
        """What its adversaries came to; None where there is no curve."""
        runs = self.adversaries
        if not runs:
            return None
        seeds = list(dict.fromkeys((run.base or "", run.seed) for run in runs))
        return Runs(
            np.array([seeds.index((run.base or "", run.seed)) for run in runs]),
            np.array([run.lam or 0.0 for run in runs]),
            self.estimates.per_seed(runs, TVD),
            self.estimates.per_seed(runs, SHARE),
        )

    @cached_property
    def found(self) -> Exclusivity | None:
        """Its exclusivity; None where there is no curve."""
        return None if self.runs is None else exclusivity(self.runs, resamples=RESAMPLES)

    def _measured(self, run: StudyRun) -> bool:
        values = [self.estimates.per_seed([run], measure) for measure in (TVD, SHARE)]
        return bool(np.isfinite(values).all())


def read_conditions(folders: Mapping[str, Path]) -> tuple[list[Condition], list[str]]:
    """Read the studies of some conditions.

    Args:
        folders: The folder of each condition by name.

    Returns:
        The conditions that are collected, and the names of those that are not yet.

    Raises:
        InputError: No condition is collected, a file is damaged, or two have one target, readout
            and choice of features.
    """
    there = {name: path for name, path in folders.items() if (path / FILE).is_file()}
    if not there:
        raise InputError(
            f"no condition of {', '.join(folders)} is collected: run `attnlight study`."
        )
    found = []
    for name, path in there.items():
        study = read_tagging_study(path)
        found.append(Condition(name, study, TaggingEstimates(study)))
    _require_apart(found)
    return found, [name for name in folders if name not in there]


def _require_apart(conditions: Sequence[Condition]) -> None:
    seen: dict[tuple[str, tuple[str, str]], str] = {}
    for one in conditions:
        other = seen.setdefault((one.target, one.setting), one.name)
        if other != one.name:
            raise InputError(
                f"conditions {other} and {one.name} have the same target, readout and features; "
                "curves are compared between those that differ in one of these."
            )


def settings(conditions: Sequence[Condition]) -> dict[tuple[str, str], dict[str, Condition]]:
    """The conditions by setting, then by target."""
    found: dict[tuple[str, str], dict[str, Condition]] = {}
    for one in conditions:
        found.setdefault(one.setting, {})[one.target] = one
    return found

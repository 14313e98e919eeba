"""What a study file says, checked key by key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlight.compatibility import problem_of
from attnlight.errors import InputError
from attnlight.studies.groups import (
    ADVERSARY_KEYS,
    COMPAT,
    Adversaries,
    Group,
    Guides,
    Uniform,
    read_adversaries,
    read_group,
    read_guides,
    read_uniform,
)
from attnlight.studies.sections import Experiment, Section, read_experiment, read_yaml

_KINDS = ("base", "uniform", "seeds", "guides", "adversaries")
_KEYS = ("trainer", "experiment", "tests", "options", "conditions", *_KINDS)


@dataclass(frozen=True)
class Study:
    """A study file, or one of its conditions.

    Attributes:
        name: The stem of the file, with a condition `<stem>-<condition>`.
        path: The file.
        condition: Name of the condition; None where the file has none.
        trainer: The first configuration of every `fit`.
        experiment: The second one: base model, corpus and their settings.
        corpus: Name of the corpus.
        target: What the corpus of a study of taggers asks of a sentence; None of classifiers.
        tests: Configurations of tests attached to every run.
        base_tests: Those of further tests of the bases, at test time.
        base: The bases; the first is the base of all that has only one.
        uniform: Uniform attention.
        seeds: Seed variants of every base.
        guides: Guided models.
        adversaries: Adversaries, where there are any.
    """

    name: str
    path: Path
    condition: str | None
    trainer: Path
    experiment: Path
    corpus: str
    target: str | None
    tests: tuple[Path, ...]
    base_tests: tuple[Path, ...]
    base: Group
    uniform: Uniform
    seeds: Group
    guides: Guides
    adversaries: Adversaries | None

    @property
    def tagger(self) -> bool:
        """Whether its models are taggers."""
        return self.target is not None


def read_studies(path: Path) -> tuple[Study, ...]:
    """Read a study file: one study, or one for each of its conditions.

    Args:
        path: YAML; `configs/README.md` lists its keys. Paths in it are relative to it.

    Raises:
        InputError: The file is missing or no YAML, names a file that is not there, has a key that
            is none, or a value out of range.
    """
    whole = Section(str(path), read_yaml(path), _KEYS, path.parent)
    named = whole.content.get("conditions")
    if named is None:
        return (_study(path, whole),)
    conditions = whole.part("conditions", list(named) if isinstance(named, dict) else [])
    if not conditions.content:
        raise InputError(f"{conditions.place} is empty: leave it out where there are none.")
    return tuple(_condition(path, whole, conditions, name) for name in conditions.content)


def _condition(path: Path, whole: Section, conditions: Section, name: object) -> Study:
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
        raise InputError(
            f"{conditions.place} has {name!r}; a name is text of letters, digits, and any of _.+-."
        )
    part = conditions.part(name, ("options", "base", "adversaries"))
    of_bases = part.part("base", ("options",)).options()
    grid = part.part("adversaries", ("lambdas", "seeds")).content
    if grid:
        told = {**whole.part("adversaries", ADVERSARY_KEYS).content, **grid}
        whole = Section(whole.place, {**whole.content, "adversaries": told}, _KEYS, whole.folder)
    return _study(path, whole, name, part.options(), of_bases)


def _study(
    path: Path,
    whole: Section,
    condition: str | None = None,
    of_all: tuple[str, ...] = (),
    of_bases: tuple[str, ...] = (),
) -> Study:
    """A study under what a condition tells all runs, and what it tells the bases alone."""
    experiment = whole.file("experiment")
    about = read_experiment(experiment)
    tagger = problem_of(about.model) == "tagging"
    shared = whole.options() + of_all
    base = whole.part("base", ("seeds", "tests", "options"))
    bases = base.seeds(default=[0])
    if not bases:
        raise InputError(f"{base.place}: seeds is empty; a study needs a base.")
    of_bases = shared + base.options() + of_bases
    study = Study(
        name=path.stem if condition is None else f"{path.stem}-{condition}",
        path=path,
        condition=condition,
        trainer=whole.file("trainer"),
        experiment=experiment,
        corpus=about.corpus,
        target=_target(about, of_bases) if tagger else None,
        tests=whole.files("tests"),
        base_tests=base.files("tests"),
        base=Group(bases, of_bases),
        uniform=read_uniform(whole, shared, tagger=tagger),
        seeds=read_group(whole.part("seeds", ("seeds", "options")), shared),
        guides=read_guides(whole, shared, tagger=tagger),
        adversaries=read_adversaries(whole, bases, shared, tagger=tagger),
    )
    _require_guides(study)
    _require_tokens(study)
    return study


def _require_guides(study: Study) -> None:
    """Refuse guides that no run of the study can be."""
    first, held = study.base.seeds[0], study.adversaries
    if "adversary" in study.guides.names and not (
        held is not None
        and first in held.bases
        and held.seeds[held.term]
        and held.lambdas[held.term][-1] > 0
    ):
        raise InputError(
            f"{study.path}: guide adversary needs `adversaries` of the base of seed {first} with "
            "seeds and a lambda above 0."
        )
    if "other" in study.guides.names and set(study.seeds.seeds) <= {first}:
        raise InputError(
            f"{study.path}: guide other is a model of `seeds`, which has no seed but the base's."
        )


def _require_tokens(study: Study) -> None:
    """Refuse the released code's scale of lambda where a sentence has one answer."""
    held = study.adversaries
    if held is not None and COMPAT in held.lambdas and study.target != "tokens":
        raise InputError(
            f"{study.path}: {COMPAT} is the loss of target tokens, but the corpus of {study.name} "
            f"has target {study.target}."
        )


def _target(experiment: Experiment, options: Sequence[str]) -> str:
    """What the corpus asks for: the last of the options, or else its file."""
    pattern = re.compile(r"--data\.(?:init_args\.)?target=(.*)")
    told = [found[1] for option in options if (found := pattern.fullmatch(option))]
    data: Any = experiment.content["data"]
    own = data.get("init_args") if isinstance(data, dict) else None
    return told[-1] if told else str((own or {}).get("target", "tokens"))

"""What a study file says, checked key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlight.errors import InputError
from attnlight.studies.sections import Section, read_yaml

GUIDES = ("uniform", "learned", "base", "shuffled", "adversary", "other")
TERMS = ("kl", "js", "tvd")
_KINDS = ("base", "uniform", "seeds", "guides", "adversaries")
_KEYS = ("trainer", "experiment", "tests", "options", *_KINDS)


@dataclass(frozen=True)
class Group:
    """Runs of one kind.

    Attributes:
        seeds: Their seeds.
        options: What they are told beyond the experiment, as options of `fit`.
    """

    seeds: tuple[int, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guides(Group):
    """Guided MLPs.

    Attributes:
        names: Whose attention guides them, each with every seed.
    """

    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Adversaries:
    """Adversaries.

    Attributes:
        lambdas: For each attention term the weights to try, ascending.
        seeds: For each attention term the seeds.
        bases: Seeds of the bases to be unlike.
        options: What they are told beyond the experiment, as options of `fit`.
    """

    lambdas: Mapping[str, tuple[float, ...]]
    seeds: Mapping[str, tuple[int, ...]]
    bases: tuple[int, ...]
    options: tuple[str, ...] = ()

    @property
    def term(self) -> str:
        """The attention term that guides are told by: KL, as the paper's, or else the first."""
        return "kl" if "kl" in self.lambdas else next(iter(self.lambdas))


@dataclass(frozen=True)
class Study:
    """A study file.

    Attributes:
        name: The stem of the file.
        path: The file.
        trainer: The first configuration of every `fit`.
        experiment: The second one: base model, corpus and their settings.
        corpus: Name of the corpus.
        tests: Configurations of tests attached to every run.
        base_tests: Those of further tests of the bases, at test time.
        base: The bases; the first is the base of all that has only one.
        uniform: Uniform attention.
        seeds: Seed variants of every base.
        guides: Guided MLPs.
        adversaries: Adversaries, where there are any.
    """

    name: str
    path: Path
    trainer: Path
    experiment: Path
    corpus: str
    tests: tuple[Path, ...]
    base_tests: tuple[Path, ...]
    base: Group
    uniform: Group
    seeds: Group
    guides: Guides
    adversaries: Adversaries | None


def read_study(path: Path) -> Study:
    """Read a study file.

    Args:
        path: YAML; `configs/README.md` lists its keys. Paths in it are relative to it.

    Raises:
        InputError: The file is missing or no YAML, names a file that is not there, has a key that
            is none, or a value out of range.
    """
    whole = Section(str(path), read_yaml(path), _KEYS, path.parent)
    shared = whole.options()
    base = whole.part("base", ("seeds", "tests", "options"))
    bases = base.seeds(default=[0])
    if not bases:
        raise InputError(f"{base.place}: seeds is empty; a study needs a base.")
    experiment = whole.file("experiment")
    _require_classifier(experiment)
    study = Study(
        name=path.stem,
        path=path,
        trainer=whole.file("trainer"),
        experiment=experiment,
        corpus=_corpus(experiment),
        tests=whole.files("tests"),
        base_tests=base.files("tests"),
        base=Group(bases, shared + base.options()),
        uniform=_group(whole.part("uniform", ("seeds", "options")), shared),
        seeds=_group(whole.part("seeds", ("seeds", "options")), shared),
        guides=_guides(whole.part("guides", ("names", "seeds", "options")), shared),
        adversaries=_adversaries(whole, bases, shared),
    )
    _require_guides(study)
    return study


def _corpus(experiment: Path) -> str:
    data: Any = read_yaml(experiment).get("data")
    if isinstance(data, str):
        return Path(data).stem
    named = data.get("class_path") if isinstance(data, dict) else None
    if not isinstance(named, str):
        raise InputError(f"{experiment} has no `data`: a study needs its corpus.")
    return named.rpartition(".")[2]


def _require_classifier(experiment: Path) -> None:
    model: Any = read_yaml(experiment).get("model")
    if isinstance(model, str) and (experiment.parent / model).is_file():
        model = read_yaml(experiment.parent / model)
    named = model.get("class_path") if isinstance(model, dict) else model
    if isinstance(named, str) and named.rpartition(".")[2] == "ChunkTagger":
        raise InputError(f"{experiment} trains a tagger; a study has variants of a classifier.")


def _group(part: Section, shared: tuple[str, ...]) -> Group:
    return Group(part.seeds(), shared + part.options())


def _guides(part: Section, shared: tuple[str, ...]) -> Guides:
    return Guides(part.seeds(), shared + part.options(), part.words("names", GUIDES))


def _adversaries(
    whole: Section, bases: tuple[int, ...], shared: tuple[str, ...]
) -> Adversaries | None:
    if whole.content.get("adversaries") is None:
        return None
    part = whole.part("adversaries", ("lambdas", "seeds", "bases", "options"))
    grid = part.part("lambdas", TERMS)
    lambdas = {term: grid.lambdas(term) for term in grid.content}
    if not lambdas:
        raise InputError(f"{part.place}: lambdas needs a list for one of {', '.join(TERMS)}.")
    if isinstance(part.content.get("seeds"), dict):
        by_term = part.part("seeds", tuple(lambdas))
        seeds = {term: by_term.seeds(term) for term in lambdas}
    else:
        seeds = dict.fromkeys(lambdas, part.seeds())
    against = part.seeds("bases", default=bases[:1])
    if not set(against) <= set(bases):
        raise InputError(f"{part.place}: bases must be seeds of `base`, which has {list(bases)}.")
    return Adversaries(lambdas, seeds, against, shared + part.options())


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

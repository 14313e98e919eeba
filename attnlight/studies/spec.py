"""A study file: its keys as dataclasses, and what its experiment is of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from attnlight.compatibility import problem_of
from attnlight.errors import InputError
from attnlight.foreign import foreign_names
from attnlight.problems import problem_class
from attnlight.studies.values import Options, Seeds, Weights, mapping, read_value, read_yaml

Term = Literal["kl", "js", "tvd", "compat"]
Guide = Literal["uniform", "learned", "base", "shuffled", "adversary", "other"]
Context = Literal["full", "tokens", "query_key"]
COMPAT = "compat"


@dataclass(frozen=True, kw_only=True)
class Configured:
    """Runs that share options."""

    options: Options = ()


@dataclass(frozen=True, kw_only=True)
class Group(Configured):
    """Runs of one role, one for each seed."""

    seeds: Seeds = ()


@dataclass(frozen=True, kw_only=True)
class Bases(Group):
    """The bases, the first of which is that of all that has only one, and tests of theirs alone."""

    seeds: Seeds = (0,)
    tests: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Uniform(Group):
    """Uniform attention, of all heads and of each of these alone, the others learned."""

    heads: Seeds = ()


@dataclass(frozen=True, kw_only=True)
class Guides(Group):
    """Guided models, for each guide and each context.

    Attributes:
        names: Whose attention guides them.
        contexts: What they make of it: `full`, with the base's encoder and readout; `tokens`, over
            tokens read alone; `query_key`, moved by trained queries and keys.
    """

    names: tuple[Guide, ...] = ()
    contexts: tuple[Context, ...] = ("full",)


@dataclass(frozen=True, kw_only=True)
class Adversaries(Configured):
    """Adversaries of some bases; none where there are no lambdas.

    Attributes:
        lambdas: For each attention term the weights to try, ascending; `compat` is KL on the scale
            of Yang's (2020) released code.
        seeds: For each attention term the seeds.
        bases: Seeds of the bases to be unlike; by default the first.
    """

    lambdas: dict[Term, Weights] = field(default_factory=dict)
    seeds: dict[Term, Seeds] = field(default_factory=dict)
    bases: Seeds = ()

    @property
    def term(self) -> Term:
        """The attention term whose adversary guides: KL, as the paper's, or else the first."""
        return "kl" if "kl" in self.lambdas else next(iter(self.lambdas), "kl")


@dataclass(frozen=True, kw_only=True)
class Condition(Configured):
    """What is added for all runs and for the bases alone, and adversaries in place of the study's."""

    base: Configured = Configured()
    adversaries: dict[Literal["lambdas", "seeds"], Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyFile(Configured):
    """The keys of a study file, which `configs/README.md` explains."""

    trainer: Path
    experiment: Path
    tests: tuple[Path, ...] = ()
    base: Bases = Bases()
    uniform: Uniform = Uniform()
    seeds: Group = Group()
    guides: Guides = Guides()
    adversaries: Adversaries = Adversaries()
    conditions: dict[str, Condition] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study(StudyFile):
    """A study file, or one of its conditions; options of a group begin with those of all runs.

    Attributes:
        path: The file.
        condition: Name of the condition; None where the file has none.
        corpus: Name of the corpus.
        problem: Name of the problem that the models solve.
        foreign: Whether the model has a network or a problem of the user's own, which a checkpoint
            imports only where its `fit.yaml` lies beside it.
        target: What the corpus asks of a text, where an instance is a part of it; else None.
    """

    path: Path
    condition: str | None
    corpus: str
    problem: str
    foreign: bool
    target: str | None

    @property
    def name(self) -> str:
        """The stem of the file, with a condition `<stem>-<condition>`."""
        return "-".join(filter(None, (self.path.stem, self.condition)))

    @property
    def clustered(self) -> bool:
        """Whether an instance is a part of a text, not a text of its own."""
        words = problem_class(self.problem).words([])
        return words.instance != words.cluster


def read_studies(path: Path) -> tuple[Study, ...]:
    """Read a study file: one study, or one for each of its conditions.

    Args:
        path: YAML; `configs/README.md` lists its keys. Paths in it are relative to it.

    Raises:
        InputError: The file is missing or no YAML, names a file that is not there, has an unknown
            key, or a value out of range.
    """
    content, place = read_yaml(path), f"{path}: conditions"
    if content.get("conditions") is None:
        return (_study(path, content, None, Condition()),)
    named = read_value(dict[str, Condition], content["conditions"], place, path.parent)
    if not named:
        raise InputError(f"{place} is empty: leave it out where there are none.")
    for name in named:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
            raise InputError(
                f"{place} has {name!r}; a name is text of letters, digits, and any of _.+-."
            )
    return tuple(_study(path, content, name, condition) for name, condition in named.items())


def _study(path: Path, content: dict[str, Any], name: str | None, condition: Condition) -> Study:
    """A study under one condition."""
    grid = content.get("adversaries")
    if condition.adversaries and isinstance(grid, dict | None):
        grid = {**(grid or {}), **condition.adversaries}
    if isinstance(grid, dict) and isinstance(grid.get("seeds"), list):  # of all terms
        terms = grid.get("lambdas")
        of_terms = dict.fromkeys(terms, grid["seeds"]) if isinstance(terms, dict) else None
        grid = grid | {"seeds": of_terms}
    mapping(content, [entry.name for entry in fields(StudyFile)], str(path))
    for key in ("trainer", "experiment"):
        if content.get(key) is None:
            raise InputError(f"{path} has no {key}, which is the path of a file.")
    file: StudyFile = read_value(StudyFile, content | {"adversaries": grid}, str(path), path.parent)
    shared, experiment = file.options + condition.options, read_experiment(file.experiment)
    own: dict[str, Any] = vars(file)
    own = {k: v for k, v in own.items() if isinstance(v, Configured)}
    own = {key: replace(group, options=shared + group.options) for key, group in own.items()}
    base = replace(own["base"], options=own["base"].options + condition.base.options)
    bases = file.adversaries.bases or base.seeds[:1]
    own |= {"base": base, "adversaries": replace(own["adversaries"], bases=bases)}
    study = Study(
        **(vars(file) | own),
        path=path,
        condition=name,
        corpus=experiment.corpus,
        problem=experiment.problem,
        foreign=experiment.foreign,
        target=None,
    )
    if study.clustered:
        study = replace(study, target=_target(experiment, base.options))
    _require_possible(study, adversaries=grid is not None)
    return study


def _target(experiment: Experiment, options: Options) -> str:
    """What the corpus asks for: the last of the options, or else its file."""
    pattern = re.compile(r"--data\.(?:init_args\.)?target=(.*)")
    given = [found[1] for option in options if (found := pattern.fullmatch(option))]
    data: Any = experiment.content["data"]
    own = data.get("init_args") if isinstance(data, dict) else None
    return given[-1] if given else str((own or {}).get("target", "tokens"))


def _require_possible(study: Study, *, adversaries: bool) -> None:
    """Refuse what no run of the study can be.

    Args:
        study: The study.
        adversaries: Whether its file has some.

    Raises:
        InputError: There is such a thing.
    """
    grid, bases, others = study.adversaries, study.base.seeds, study.seeds.seeds
    lambdas, guides, terms = grid.lambdas, study.guides, ", ".join(get_args(Term))
    first, compat = bases[0] if bases else 0, COMPAT in lambdas
    selectable = any(lambdas.get(grid.term, ())) and grid.seeds.get(grid.term)
    alone, target = not study.clustered, f"target {study.target}"
    tokens = f"is for models that answer for each token, which that of {study.experiment} does not"
    mistakes = (
        (alone and study.uniform.heads, f"uniform: heads {tokens}"),
        (alone and guides.contexts != ("full",), f"guides: contexts {tokens}"),
        (alone and compat, f"adversaries: lambdas: {COMPAT} {tokens}"),
        (not bases, "base: seeds is empty; a study needs a base"),
        (adversaries and not lambdas, f"adversaries: lambdas needs a list for one of {terms}"),
        (not all(lambdas.values()), "adversaries: lambdas names no lambda of a term"),
        (grid.seeds.keys() - lambdas.keys(), "adversaries: seeds has a term without lambdas"),
        (
            set(grid.bases) - set(bases),
            f"adversaries: bases must be seeds of `base`, which has {list(bases)}",
        ),
        (
            "adversary" in guides.names and not (selectable and first in grid.bases),
            f"guide adversary needs `adversaries` of base seed {first} with seeds and a lambda above 0",
        ),
        (
            "other" in guides.names and set(others) <= {first},
            "guide other is a model of `seeds`, which has no seed but the base's",
        ),
        (
            compat and study.target != "tokens",
            f"{COMPAT} is the loss of target tokens, but the corpus of {study.name} has {target}",
        ),
    )
    for wrong, sentence in mistakes:
        if wrong:
            raise InputError(f"{study.path}: {sentence}.")


class Experiment(NamedTuple):
    """An experiment file.

    Attributes:
        content: Its content, with the files that it names as `model` and `data` in their places.
        corpus: Name of the corpus: the stem of its file, or else its class.
        problem: Name of the problem that its model solves.
        foreign: Whether its model has a network or a problem of the user's own.
    """

    content: Mapping[str, Any]
    corpus: str
    problem: str
    foreign: bool


def read_experiment(path: Path) -> Experiment:
    """Read an experiment with its model and its corpus.

    Raises:
        InputError: One of these files is missing or no YAML, or no corpus is named.
    """
    content = read_yaml(path)
    data = content.get("data")
    named = data.get("class_path") if isinstance(data, dict) else data
    for key in ("model", "data"):
        part = content.get(key)
        if isinstance(part, str) and (path.parent / part).is_file():
            content[key] = read_yaml(path.parent / part)
    if not isinstance(named, str):
        raise InputError(f"{path} has no `data`: a study needs its corpus.")
    corpus = named.rpartition(".")[2] if content["data"] is data else Path(named).stem
    model = content.get("model")
    section = model if isinstance(model, dict) else {"class_path": model}
    options = section.get("init_args") or {}
    problem = problem_of(str(section.get("class_path"))) or options.get("problem")
    foreign = bool(foreign_names(options))
    return Experiment(content, corpus, problem or "classification", foreign)

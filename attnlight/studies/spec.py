"""The study file: its keys as dataclasses, and the corpus and problem of its experiment."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from attnlight.errors import InputError
from attnlight.problems import problem_class, problem_of_task
from attnlight.problems.base import Problem
from attnlight.storage.files import YAML_SUFFIXES, read_yaml
from attnlight.storage.foreign_classes import foreign_names
from attnlight.storage.shipped import CONFIGS, find_config
from attnlight.studies.values import Options, Seeds, Weights, read_value

Term = Literal["kl", "js", "tvd", "released"]
Guide = Literal["uniform", "learned", "base", "shuffled", "adversary", "other"]
Context = Literal["full", "tokens", "query_key"]
Signed = Literal["input_gradient", "integrated_gradients", "occlusion"]
BySize = Literal["input_gradient_by_size", "integrated_gradients_by_size", "occlusion_by_size"]
Ranking = Literal["attention", "gradient", Signed, BySize]
RELEASED = "released"
_TARGET = re.compile(r"--data\.(init_args\.)?target=")


@dataclass(frozen=True, kw_only=True)
class Configured:
    """Runs that share options."""

    options: Options = ()


@dataclass(frozen=True, kw_only=True)
class Group(Configured):
    """Runs of one role, one for each seed."""

    seeds: Seeds = ()


@dataclass(frozen=True, kw_only=True)
class TestedGroup(Configured):
    """Runs of one role, one for each seed, and tests for them only."""

    seeds: Seeds = ()
    tests: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bases(TestedGroup):
    """The bases; variants of a single base use the first."""

    seeds: Seeds = (0,)


@dataclass(frozen=True, kw_only=True)
class Uniform(Group):
    """Uniform attention in all heads, and in each of `heads` alone, with the others learned."""

    heads: Seeds = ()


@dataclass(frozen=True, kw_only=True)
class Guides(Group):
    """Models guided by each of `names`, in each of `contexts`."""

    names: tuple[Guide, ...] = ()
    contexts: tuple[Context, ...] = ("full",)


@dataclass(frozen=True, kw_only=True)
class Adversaries(Configured):
    """Adversaries of the bases with seeds `bases`: ascending lambdas and seeds by attention term."""

    lambdas: dict[Term, Weights] = field(default_factory=dict)
    seeds: dict[Term, Seeds] = field(default_factory=dict)
    bases: Seeds = ()

    @property
    def term(self) -> Term:
        """The term of the adversary that guides models: KL, as in the paper, or else the first."""
        return "kl" if "kl" in self.lambdas else next(iter(self.lambdas), "kl")


@dataclass(frozen=True, kw_only=True)
class Roar(Group):
    """Models trained without the words that each of `methods` ranks first, and without random ones.

    The base of the same seed ranks them or, if `recursive`, the model of the share before.
    """

    methods: tuple[Ranking, ...] = ("attention", "gradient", *get_args(BySize))
    shares: Weights = ()
    recursive: bool = False


@dataclass(frozen=True, kw_only=True)
class Condition(Configured):
    """Options and tests added to the study's, and what replaces the study's if it is given.

    Options are of all runs or, in `base`, of the bases only, as tests are. The experiment, the seeds
    of the bases, and adversaries replace the study's.
    """

    experiment: Path | None = None
    base: TestedGroup = TestedGroup()
    adversaries: dict[Literal["lambdas", "seeds"], Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyFile(Configured):
    """The keys of a study file, which `docs/studies.md` explains."""

    experiment: Path
    trainer: Path = CONFIGS / "trainer.yaml"
    tests: tuple[Path, ...] = ()
    base: Bases = Bases()
    uniform: Uniform = Uniform()
    seeds: Group = Group()
    guides: Guides = Guides()
    adversaries: Adversaries = Adversaries()
    roar: Roar = Roar()
    conditions: dict[str, Condition] = field(default_factory=dict)
    grid: tuple[dict[str, Condition], ...] = ()  # `read_studies` makes conditions of it


@dataclass(frozen=True)
class Experiment:
    """What a study must know of its experiment."""

    # Content of the experiment file, with the files that it names as `model` and `data` inserted.
    content: Mapping[str, Any]
    corpus: str  # name of the corpus: the stem of its file, or else its class
    problem: type[Problem]  # the problem of the model
    # Whether the model has a custom network or problem, which a checkpoint imports only if its
    # `fit.yaml` is beside it.
    foreign: bool
    # The corpus's target if instances are parts of texts: the last in the options of the base, or
    # else that of the corpus's file. None if instances are texts.
    target: str | None

    @property
    def several_instances(self) -> bool:
        """Whether a text has several instances, its parts, instead of being one."""
        return self.problem.several_instances()


@dataclass(frozen=True, kw_only=True)
class Study(StudyFile):
    """A study file, or one of its conditions; options of a group begin with those of all runs."""

    condition: str | None  # name of the condition; None if the file has none
    setup: Experiment  # the content of `experiment` and what follows from it


def read_studies(path: Path) -> tuple[Study, ...]:
    """The study of a study file, or one for each of its conditions.

    `path` is that of the file, to which paths in it are relative, or the name of a shipped one.

    Raises:
        InputError: The file is missing or not YAML, names a missing file, has an unknown key, or a
            value out of range.
    """
    path = Path(find_config(str(path), "studies"))
    content, place = read_yaml(path), f"{path}: conditions"
    given, grid = content.pop("conditions", None), content.pop("grid", None)
    conditions: dict[str | None, Condition] = {None: Condition()}
    if given is not None or grid is not None:
        conditions = read_value(dict[str, Condition], given, place, path.parent)
        conditions.update(_combinations(grid, f"{path}: grid", path.parent))
        if not conditions:
            raise InputError(f"{place} is empty: leave it out where there are none.")
        for name in conditions:
            if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
                expected = "a name is text of letters, digits, and any of _.+-"
                raise InputError(f"{place} has {name!r}; {expected}.")
    adversaries = read_value(
        dict[str, Any], content.pop("adversaries", None), f"{path}: adversaries", path.parent
    )
    file, setup_of = read_value(StudyFile, content, str(path), path.parent), cache(read_experiment)
    return tuple(_study(path, file, adversaries, setup_of, *named) for named in conditions.items())


def _combinations(grid: object, place: str, folder: Path) -> dict[str | None, Condition]:
    """The conditions of a grid: each combination of one condition of every list item, by name.

    Options and tests add up; of all else the later one replaces the earlier.
    """
    if grid is None:
        return {}
    if not isinstance(grid, list) or not grid or not all(grid):
        expected = "a list of mappings from name to condition"
        raise InputError(f"{place} is {grid!r}; expected {expected}.")
    axes = [read_value(dict[str, Condition], axis, place, folder).items() for axis in grid]
    combined: dict[str | None, Condition] = {}
    for names, parts in ((zip(*cell, strict=True)) for cell in product(*axes)):
        condition = Condition()
        for part in parts:
            condition = Condition(
                options=condition.options + part.options,
                experiment=part.experiment or condition.experiment,
                base=TestedGroup(
                    options=condition.base.options + part.base.options,
                    seeds=part.base.seeds or condition.base.seeds,
                    tests=condition.base.tests + part.base.tests,
                ),
                adversaries=condition.adversaries | part.adversaries,
            )
        combined["-".join(map(str, names))] = condition
    return combined


def _study(
    path: Path,
    file: StudyFile,
    adversaries: Mapping[str, Any],
    setup_of: Callable[[Path, Options], Experiment],
    name: str | None,
    condition: Condition,
) -> Study:
    """A study under one condition, which changes the content of its `adversaries`."""
    grid: dict[Any, Any] = {**adversaries, **condition.adversaries}
    if isinstance(grid.get("seeds"), list):  # shared by all terms
        terms = grid.get("lambdas")
        grid["seeds"] = dict.fromkeys(terms, grid["seeds"]) if isinstance(terms, dict) else {}
    read = read_value(Adversaries, grid, f"{path}: adversaries", path.parent)
    seeds, tests = condition.base.seeds or file.base.seeds, file.base.tests + condition.base.tests
    base = replace(file.base, seeds=seeds, tests=tests)
    experiment = condition.experiment or file.experiment
    file = replace(file, experiment=experiment, base=base, adversaries=read)
    settings = dict(vars(file))
    for key, group in settings.items():
        if isinstance(group, Configured):
            base_options = condition.base.options if key == "base" else ()
            options = file.options + condition.options + group.options + base_options
            settings[key] = replace(group, options=options)
    as_bases = settings["base"].options + file.roar.options
    settings["roar"] = replace(file.roar, options=as_bases)
    bases = file.adversaries.bases or file.base.seeds[:1]
    settings["adversaries"] = replace(settings["adversaries"], bases=bases)
    targets = tuple(x for x in settings["base"].options if _TARGET.match(x))
    setup = setup_of(file.experiment, targets)
    study = Study(**settings, condition=name, setup=setup)
    _require_possible(study, f"{path}: conditions: {name}" if name else f"{path}", bool(grid))
    return study


def read_experiment(path: Path, options: Options = ()) -> Experiment:
    """An experiment, with the options of a study's bases added."""
    content = read_yaml(path)
    data = content.get("data")
    named = data.get("class_path") if isinstance(data, dict) else data
    if not isinstance(named, str):
        raise InputError(f"{path} has no `data`: a study needs its corpus.")
    sections, target = {}, None
    for key, kind in (("model", "models"), ("data", "data")):
        part = content.get(key)
        if isinstance(part, str):
            file = path.parent / find_config(part, kind, path.parent, f"{path}: {key}")
            section = file.is_file() and file.suffix in YAML_SUFFIXES  # no table
            content[key] = read_yaml(file) if section else part
        sections[key] = content[key] if isinstance(content.get(key), dict) else {"class_path": part}
    model, corpus = (section.get("init_args") or {} for section in sections.values())
    name = model.get("problem") or problem_of_task(sections["model"].get("class_path"))
    problem = problem_class(name or "classification")
    if problem.several_instances():
        overrides = (_TARGET.sub("", option) for option in options if _TARGET.match(option))
        target = str([corpus.get("target", "tokens"), *overrides][-1])
    is_class = content["data"] is data and not (path.parent / named).exists()
    name = named.rpartition(".")[2] if is_class else Path(named).stem
    return Experiment(content, name, problem, bool(foreign_names(model)), target)


def _require_possible(study: Study, place: str, has_adversaries: bool) -> None:
    """Refuse a study with impossible runs; `place` locates its description for messages."""
    grid, bases, guides = study.adversaries, study.base.seeds, study.guides
    target, of_texts = study.setup.target, not study.setup.several_instances
    lambdas, first, released = grid.lambdas, (*bases, 0)[0], RELEASED in grid.lambdas
    selectable = any(lambdas.get(grid.term, ())) and grid.seeds.get(grid.term)
    roar = study.roar
    tokens = f"is for models that classify tokens; that of {study.experiment} classifies texts"
    mistakes = {
        f"adversaries: lambdas needs a list for one of {', '.join(get_args(Term))}": (
            has_adversaries and not lambdas
        ),
        f"uniform: heads {tokens}": of_texts and study.uniform.heads,
        f"guides: contexts {tokens}": of_texts and guides.contexts != ("full",),
        f"adversaries: lambdas: {RELEASED} {tokens}": of_texts and released,
        f"{RELEASED} is the loss of target tokens, but that of the corpus is {target}": (
            released and target != "tokens"
        ),
        f"roar needs a model that classifies texts, which that of {study.experiment} does not": (
            roar.seeds and not of_texts
        ),
        "roar: shares must be above 0 and below 1": not all(0 < s < 1 for s in roar.shares),
        f"roar needs seeds of `base`, which has {list(bases)}, and shares": (
            bool(roar.seeds) != bool(roar.shares) or set(roar.seeds) - set(bases)
        ),
        "base: seeds is empty; a study needs a base": not bases,
        "adversaries: lambdas names no lambda of a term": not all(lambdas.values()),
        "adversaries: seeds has a term without lambdas": grid.seeds.keys() - lambdas.keys(),
        f"adversaries: bases must be seeds of `base`, which has {list(bases)}": (
            set(grid.bases) - set(bases)
        ),
        f"guide adversary needs `adversaries` of base seed {first} with seeds and a lambda above 0": (
            "adversary" in guides.names and not (selectable and first in grid.bases)
        ),
        "guide other is a model of `seeds`, which needs a seed other than the base's": (
            "other" in guides.names and set(study.seeds.seeds) <= {first}
        ),
        "variants have the network of their base: move `options: model: net` below `base`": any(
            option.startswith("--model.net.")
            for group in (study.uniform, study.seeds, guides, grid)
            for option in (group.options if group.seeds else ())
        ),
    }
    for sentence, wrong in mistakes.items():
        if wrong:
            raise InputError(f"{place}: {sentence}.")

"""Compose one configuration from the files and options of a command, before types are checked.

What comes after what, and what it replaces, are the rules of `docs/configuration.md`; groups of
options (`net`, `optimizer`, ...) are merged, unless they name a class. The file of `data` may be a table
or a folder of them, the `path` of a `TextDataModule` or, for a tagger and where a token and its tag are
on each line, of a `ChunkingDataModule`. A `Translator` reads it by `TranslationDataModule`, a model of
`pairs` by `PairDataModule`, and so does any other where `--data.passage` or `--data.query` is given; a
variant reads it as its base, and a hierarchical model has its texts split into sentences.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader
from lightning.pytorch.callbacks import Callback

from attnlight.callbacks import InterpretabilityTest
from attnlight.data.conll import SUFFIXES
from attnlight.datamodules import CorpusDataModule
from attnlight.errors import InputError, did_you_mean
from attnlight.storage.files import YAML_SUFFIXES, read_yaml
from attnlight.storage.foreign_classes import STORED, class_of, require_trusted
from attnlight.storage.migration import require_migrated
from attnlight.storage.run_folder import is_run
from attnlight.storage.shipped import CONFIGS, find_config
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.from_base import FromBase
from attnlight.tasks.options import GROUPS

Config = dict[str, Any]
DEFAULT_TRAINER = CONFIGS / "trainer.yaml"  # overridden by all others
DEFAULTS = {
    "model": "attnlight.tasks.AttentionClassifier",
    "data": "attnlight.datamodules.PlantedEvidence",
}
_BASES: dict[str, type] = {"model": AttentionTask, "data": CorpusDataModule}
_SECTIONS = {"model": "models", "data": "data", "trainer": "."}  # with their folders of configs/
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")  # a .json file is a configuration
_OF_TEXTS = "attnlight.datamodules.TextDataModule"
_MODULES = {"tagging": "Chunking", "pairs": "Pair", "translation": "Translation"}
_OF_PROBLEM = {key: f"attnlight.datamodules.{name}DataModule" for key, name in _MODULES.items()}
_IN_GROUPS = ("", "init_args.")
_PAIR_OPTIONS = tuple(f"--data.{group}{n}" for group in _IN_GROUPS for n in ("passage", "query"))
_NETWORK_OPTIONS = {
    f"--model.{group}{n}": n for group in _IN_GROUPS for n in ("base", "inherited", "problem")
}
_CALLBACKS = "--trainer.callbacks"
_PLAIN = (*(f"--{name}" for name in _SECTIONS), "--model.class_path", "--data.class_path")
# Keys that identify a configuration of `fit`: it has all of the first and none of the second.
_OF_FIT = {"model", "data", "trainer", "ckpt_path", "overwrite"}
_NOT_OF_FIT = {"verbose", "return_predictions"}
# Options of groups: 1 the group, 2 `init_args` of a custom network, which may be left out, 3 the option.
_GROUPED = re.compile(rf"--model\.(?:init_args\.)?(net|{'|'.join(GROUPS)})(\.init_args)?\.(\w+)")

_CLASS_KEYS = ("class_path", "init_args")


class _FileSection(dict[str, Any]):
    """A section read from a separate file, which replaces the previous one."""

    stem = ""  # of the file
    is_corpus = False  # the file itself holds texts


@dataclass(frozen=True)
class Composition:
    """The result of `compose`."""

    config: Config
    files: list[str]  # the configuration files that it was composed from, without the default
    options: list[str]  # the remaining arguments, which the parser applies to it
    tests: bool  # whether it has an interpretability test
    # Stem of the file that `data` was read from; None if it was not a separate file.
    corpus: str | None


def compose(verb: str, arguments: Sequence[str], keys: Collection[str]) -> Composition:
    """Merge the configuration files of a command and the options that replace sections.

    `arguments` are those after the verb; `keys` are those that a configuration may have, dotted
    (`trainer.max_epochs`).

    Raises:
        InputError: A file is missing or not a configuration, or names a key or class that does not
            exist.
    """
    named, rest = _extract(arguments, ("-c", "--config"))
    default = read_config(DEFAULT_TRAINER)
    config, files = default, []
    for _, file in named:
        layer = read_config(Path(file), keys)
        if layer == default:
            continue
        files.append(file)
        if verb != "fit" and layer.keys() >= _OF_FIT and not layer.keys() & _NOT_OF_FIT:
            callbacks_of_fit = _as_list(layer["trainer"].get("callbacks"))
            others = [item for item in callbacks_of_fit if not _is_test(item, "trainer.callbacks")]
            layer["trainer"] |= {"callbacks": others}
        config = _override(config, layer)
    replacing, options = _extract(rest, (*_PLAIN, _CALLBACKS))
    for name, value in replacing:
        section, content = name[2:].removesuffix(".class_path"), _load(value)
        if name == _CALLBACKS:
            section, content = "trainer", {"callbacks": content}
        config = _override(config, {section: _section(section, content, Path(), name)})
    config["model"], options = _set_nested(config.get("model", {}), options)
    data = config.get("data")
    corpus = data.stem if isinstance(data, _FileSection) else None
    if isinstance(data, _FileSection) and data.is_corpus:
        _read_corpus(data, config["model"], options)
    for name, path in DEFAULTS.items():
        config[name] = {"class_path": path} | config.get(name, {})
    callbacks = _as_list(config["trainer"].get("callbacks"))
    for _, value in _extract(options, (f"{_CALLBACKS}+",))[0]:
        callbacks += _as_list(_load(value))
    tests = [_is_test(callback, _CALLBACKS) for callback in callbacks]  # checks every class
    return Composition(config, files, options, any(tests), corpus)


def _read_corpus(data: Config, model: Config, options: Sequence[str]) -> None:
    """Read a table or a file of tags as the model needs it: its datamodule, and sentences of texts."""
    task: Any = class_of(model.get("class_path", DEFAULTS["model"]), AttentionTask, "model")
    named = {_NETWORK_OPTIONS[name]: x for name, x in _extract(options, _NETWORK_OPTIONS)[0]}
    problem, net = task.network_of({**(model.get("init_args") or {}), **named})
    tags, path = data["class_path"] == _OF_PROBLEM["tagging"], data["init_args"]["path"]
    if tags and problem != "tagging":
        tagger = "--model.base RUN" if issubclass(task, FromBase) else "--model tagger_bilstm"
        raise InputError(
            f"{path} has a tag for each token, which a tagger learns, such as `{tagger}`"
        )
    if problem not in _OF_PROBLEM and any(option.startswith(_PAIR_OPTIONS) for option in options):
        problem = "pairs"
    data["class_path"] = _OF_PROBLEM.get(str(problem), _OF_TEXTS)
    if data["class_path"] == _OF_TEXTS and net.get("hierarchical"):
        data["init_args"] |= {"sentences": "nested", "boundary_tokens": False}


def _set_nested(model: Config, options: Sequence[str]) -> tuple[Config, list[str]]:
    """A `model` section with the options that jsonargparse would misread, and the other options.

    It reads null in a group as text, and cannot set options of a custom network, a mapping. YAML
    spells null `null`, `Null`, `NULL` and `~`; an empty string stays a string.
    """
    groups = model.get("init_args") or {}
    rest, words = [], iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        match = _GROUPED.fullmatch(name)
        if match is None:
            rest.append(word)
            continue
        text = value if equals else next(words, None)
        if text is None:
            raise InputError(f"{name} needs a value")
        custom = match[3] not in _CLASS_KEYS and "class_path" in (groups.get(match[1]) or {})
        if custom or (text and not match[2] and _load(text) is None):
            changed = {match[3]: text}
            with suppress(yaml.YAMLError):  # a text that is no YAML is a text
                changed = {match[3]: get_loader("yaml")(text)}
            group = {match[1]: {"init_args": changed} if custom else changed}
            model = _merged(model, {"init_args": group})
        else:
            rest += [word] if equals else [word, text]
    return model, rest


def _extract(
    arguments: Sequence[str], names: Collection[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and values of these options, in order, and the other arguments."""
    taken, others, words = [], [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in names:
            others.append(word)
            continue
        given = value if equals else next(words, None)
        if given is None:
            raise InputError(f"{name} needs a value")
        taken.append((name, given))
    return taken, others


def read_config(path: Path, keys: Collection[str] | None = None) -> Config:
    """Read a configuration file and the files that it names as `model`, `data` or `trainer`.

    Raises:
        InputError: A file is missing or not YAML, has a dotted key or one that is not among `keys`,
            or names a class that does not exist or, where a run stored the file, is not trusted.
    """
    config = _read(path)
    if STORED.fullmatch(path.name):
        require_trusted(path, config)
        require_migrated(path, config)
    for key in config:
        first, _, rest = key.partition(".")
        if rest:  # Lightning would discard the section's file
            raise InputError(f"{path} has the dotted key {key!r}; write {rest}: under {first}:")
    config = {
        name: _section(name, value, path.parent, f"{path}: {name}")
        for name, value in config.items()
        if value is not None or name not in _SECTIONS
    }
    valid = {*(key.partition(".")[0] for key in keys or ()), *(keys or ())}
    for key in (*config, *(f"trainer.{key}" for key in config.get("trainer", ()))):
        if keys is not None and key.removesuffix("+") not in valid:
            raise InputError(f"{path} has the unknown key {key!r}{did_you_mean(key, valid)}")
    return config


def _read(path: Path) -> Config:
    suffixes = {file.suffix for file in (path.glob("*") if path.is_dir() else [path])}
    if suffixes & {*TABLES, *SUFFIXES} and path.exists() and not is_run(path):
        model = "tagger_bilstm" if suffixes & {*SUFFIXES} else "bilstm_additive"
        raise InputError(
            f"{path} is a corpus, not a configuration; to train on it write `attnlight fit --model "
            f"{model} --data {path}`"
        )
    config = read_yaml(path, get_loader("yaml"))
    if not all(isinstance(key, str) for key in config):
        raise InputError(f"{path} is not a configuration: expected a mapping of names to values")
    return config


def _section(name: str, value: Any, folder: Path, where: str) -> Any:  # noqa: ANN401
    """A value of a configuration, read from its file if it names one, with its classes checked."""
    if name not in _SECTIONS:
        return value
    file = None
    if isinstance(value, str):
        table = name == "data" and Path(value).suffix in (*TABLES, *SUFFIXES)
        found = value if table else find_config(value, _SECTIONS[name], folder, where)
        file = folder / found
        named = file.is_file() or file.suffix in YAML_SUFFIXES
        is_corpus = table or (name == "data" and file.is_dir())
        if is_corpus:
            kind = _OF_PROBLEM["tagging"] if file.suffix in SUFFIXES else _OF_TEXTS
            value = {"class_path": kind, "init_args": {"path": str(file)}}
        else:
            value, file = (_read(file), file) if named else ({"class_path": value}, None)
    if not isinstance(value, dict):
        raise InputError(f"{where} is {value!r}; expected a mapping or a file")
    if name == "trainer":
        for key in {"callbacks", "callbacks+"} & value.keys():
            for callback in _as_list(value[key]):
                _is_test(callback, f"{where}.{key}")
    elif "class_path" in value:
        class_of(value["class_path"], _BASES[name], where)
    if file is not None:
        value = _FileSection(value)
        value.stem, value.is_corpus = file.stem, is_corpus
    return value


def _load(value: str) -> Any:  # noqa: ANN401
    """The value of an option: parsed as YAML if it is a mapping, a list or null, else unchanged."""
    try:
        content = get_loader("yaml")(value)
    except yaml.YAMLError:
        return value
    return content if isinstance(content, dict | list) or content is None else value


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _override(below: Config, above: Config) -> Config:
    """Merge a configuration over another."""
    merged = below | above
    for name in (name for name in _SECTIONS if name in below and name in above):
        lower, upper = below[name], above[name]
        if name == "trainer":
            merged[name] = trainer = lower | upper
            if "callbacks" in upper:
                before = _as_list(lower.get("callbacks"))
                kept = [one for one in before if _is_test(one, "trainer.callbacks")]
                trainer["callbacks"] = kept + _as_list(upper["callbacks"])
            for key in (key for key in upper if key.endswith("+")):
                added = _as_list(trainer.pop(key))
                trainer[key[:-1]] = _as_list(trainer.get(key[:-1])) + added
            continue
        paths = (part.get("class_path", DEFAULTS[name]) for part in (lower, upper))
        kinds = {class_of(path, _BASES[name], name) for path in paths}
        replaced = "class_path" in upper and (name == "data" or len(kinds) == 2)
        if not (replaced or isinstance(upper, _FileSection)):
            merged[name] = _merged(lower, upper)
    return merged


def _merged(below: Config, above: Config) -> Config:
    """Merge options over others: constructor arguments and their groups, key by key."""
    merged = below | above
    for key in above.keys() & below.keys() & {"init_args", "net", *GROUPS}:
        parts = below[key], above[key]
        if all(isinstance(part, dict) for part in parts) and "class_path" not in above[key]:
            merged[key] = _merged(*parts)
    return merged


def _is_test(callback: Any, where: str) -> bool:  # noqa: ANN401
    path = callback.get("class_path") if isinstance(callback, dict) else callback
    kind = class_of(path, Callback, where) if isinstance(path, str) else Callback
    return issubclass(kind, InterpretabilityTest)

"""One configuration from the files and options of a command, before the parser checks its types.

What `trainer.yaml` says lies under everything. Each `-c FILE` is merged over what came before it,
then `--model`, `--data`, `--trainer` and `--trainer.callbacks` in the order in which they are given;
all other options are the parser's and come last.

* `data`: a section that names a class or a file replaces the one before it whole. One that names
  neither changes single options.
* `model`: the same, but a section with the class of the one before it, and no file of its own,
  changes single options. Groups of them (`net`, `optimizer`, ...) are merged, unless a class is named.
* `trainer`: key by key. `callbacks+` appends; a plain `callbacks` replaces callbacks but keeps the
  interpretability tests before it.
* What the first format calls classes and options is rewritten as each part is read.
* A configuration that `fit` wrote gives `validate`, `test` and `predict` no tests.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader
from lightning.pytorch.callbacks import Callback

from attnlight import compatibility
from attnlight.callbacks import InterpretabilityTest
from attnlight.datamodules import CorpusDataModule
from attnlight.errors import InputError, did_you_mean
from attnlight.files import read_yaml
from attnlight.foreign import class_of
from attnlight.shipped import CONFIGS, find_config
from attnlight.tasks.attention import AttentionTask

Config = dict[str, Any]
DEFAULT_TRAINER = CONFIGS / "trainer.yaml"  # lies under all others
DEFAULTS = {
    "model": "attnlight.tasks.AttentionClassifier",
    "data": "attnlight.datamodules.PlantedEvidence",
}
_BASES: dict[str, type] = {"model": AttentionTask, "data": CorpusDataModule}
_SECTIONS = {"model": "models", "data": "data", "trainer": "."}  # with their folders of configs/
_CALLBACKS = "--trainer.callbacks"
_PLAIN = (*(f"--{name}" for name in _SECTIONS), "--model.class_path", "--data.class_path")
# `fit` writes all of these; the other verbs each have an argument that `fit` has not.
_OF_FIT = {"model", "data", "trainer", "ckpt_path", "overwrite"}
_NOT_OF_FIT = {"verbose", "return_predictions"}
# Options of groups: 1 the group, 2 whether it names a class, as a network of one's own, 3 the option.
_GROUPED = re.compile(
    rf"--model\.(?:init_args\.)?({'|'.join(sorted(compatibility.GROUPS))})(\.init_args)?\.(\w+)"
)


class _Whole(dict[str, Any]):
    """A section from a file of its own, which replaces the one before it."""

    stem = ""  # of the file


@dataclass(frozen=True)
class Composition:
    """What a command says.

    Attributes:
        config: The configuration.
        files: The configuration files that it was made of, without the default.
        options: The arguments that are the parser's, which come after it.
        tests: Whether an interpretability test is attached.
        corpus: Stem of the file that `data` comes from, None where it has none of its own.
    """

    config: Config
    files: list[str]
    options: list[str]
    tests: bool
    corpus: str | None


def compose(verb: str, arguments: Sequence[str], keys: Collection[str]) -> Composition:
    """Merge the configuration files of a command, and the options that replace a part of them.

    Args:
        verb: `fit`, `validate`, `test` or `predict`.
        arguments: What follows it.
        keys: The keys that a configuration may have, dotted (`trainer.max_epochs`).

    Raises:
        InputError: A file is missing or no configuration, or names a key or class that does not
            exist.
    """
    named, rest = _taken(arguments, ("-c", "--config"))
    default = read_config(DEFAULT_TRAINER)
    config, files = default, []
    for _, file in named:
        layer = read_config(Path(file), keys)
        if layer == default:
            continue
        files.append(file)
        if verb != "fit" and layer.keys() >= _OF_FIT and not layer.keys() & _NOT_OF_FIT:
            held = _listed(layer["trainer"].get("callbacks"))
            others = [item for item in held if not _is_test(item, "trainer.callbacks")]
            layer["trainer"] |= {"callbacks": others}
        config = _over(config, layer)
    replacing, options = _taken(rest, (*_PLAIN, _CALLBACKS))
    for name, value in replacing:
        section, content = name[2:].removesuffix(".class_path"), _loaded(value)
        if name == _CALLBACKS:
            section, content = "trainer", {"callbacks": content}
        config = _over(config, {section: _section(section, content, Path(), name)})
    pairs = zip(options, [*options, ""][1:], strict=True)
    options = [compatibility.option(*pair) for pair in pairs]
    config["model"], options = _nested(config.get("model", {}), options)
    corpus = getattr(config.get("data"), "stem", None)
    for name, path in DEFAULTS.items():
        config[name] = {"class_path": path} | config.get(name, {})
    callbacks = _listed(config["trainer"].get("callbacks"))
    for _, value in _taken(options, (f"{_CALLBACKS}+",))[0]:
        callbacks += _listed(_loaded(value))
    tests = [_is_test(callback, _CALLBACKS) for callback in callbacks]  # all: one may not exist
    return Composition(config, files, options, any(tests), corpus)


def _nested(model: Config, options: Sequence[str]) -> tuple[Config, list[str]]:
    """A `model` section with the options that jsonargparse would misread, and the other options.

    It reads null in a group as text, and nothing that a network of one's own is given, which is a
    mapping. YAML spells null `null`, `Null`, `NULL` and `~`; an empty text stays one.
    """
    groups = model.get("init_args") or {}
    kept, words = [], iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        found = _GROUPED.fullmatch(name)
        if found is None:
            kept.append(word)
            continue
        text = value if equals else next(words, None)
        if text is None:
            raise InputError(f"{name} needs a value")
        own = found[2] and "class_path" in (groups.get(found[1]) or {})
        if own or (text and not found[2] and _loaded(text) is None):
            changed = {found[3]: get_loader("yaml")(text)}
            group = {found[1]: {"init_args": changed} if own else changed}
            model = _merged(model, {"init_args": group})
        else:
            kept += [word] if equals else [word, text]
    return model, kept


def _taken(
    arguments: Sequence[str], names: Collection[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and values of some options, in order, and the other arguments."""
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
    """Read a configuration file, and the files that it names as `model`, `data` or `trainer`.

    Args:
        path: The file.
        keys: The keys that it may have, dotted; None: any.

    Raises:
        InputError: A file is missing or no YAML, or has a dotted or unknown key or a class that
            does not exist.
    """
    config = _read(path)
    for key in config:
        first, _, rest = key.partition(".")
        if rest:  # Lightning would discard the section's file
            raise InputError(f"{path} has the key {key!r}: write {first}: and under it {rest}:")
    config = {
        name: _section(name, value, path.parent, f"{path}: {name}")
        for name, value in config.items()
        if value is not None or name not in _SECTIONS
    }
    known = {*(key.partition(".")[0] for key in keys or ()), *(keys or ())}
    for key in (*config, *(f"trainer.{key}" for key in config.get("trainer", ()))):
        if keys is not None and key.removesuffix("+") not in known:
            raise InputError(f"{path} has the unknown key {key!r}{did_you_mean(key, known)}")
    return config


def _read(path: Path) -> Config:
    config = read_yaml(path, get_loader("yaml"))
    if not all(isinstance(key, str) for key in config):
        raise InputError(f"{path} is not a configuration: expected a mapping of names to values")
    return config


def _section(name: str, value: Any, folder: Path, where: str) -> Any:  # noqa: ANN401
    """A value of a configuration, read from its own file where it names one, its classes checked."""
    if name not in _SECTIONS:
        return value
    file = None
    if isinstance(value, str):
        file = folder / find_config(value, _SECTIONS[name], folder, where)
        named = file.is_file() or file.suffix in (".yaml", ".yml", ".json")
        value, file = (_read(file), file) if named else ({"class_path": value}, None)
    if not isinstance(value, dict):
        raise InputError(f"{where} is {value!r}; expected a mapping or a file")
    if name == "model":
        value = compatibility.section(value)
    if name == "trainer":
        for key in {"callbacks", "callbacks+"} & value.keys():
            value[key] = [compatibility.callback(item) for item in _listed(value[key])]
            for callback in value[key]:
                _is_test(callback, f"{where}.{key}")
    elif "class_path" in value:
        class_of(value["class_path"], _BASES[name], where)
    if file is not None:
        value = _Whole(value)
        value.stem = file.stem
    return value


def _loaded(value: str) -> Any:  # noqa: ANN401
    """The value of an option: YAML where it is a mapping or a list, else as it is."""
    try:
        content = get_loader("yaml")(value)
    except yaml.YAMLError:
        return value
    return content if isinstance(content, dict | list) or content is None else value


def _listed(value: Any) -> list[Any]:  # noqa: ANN401
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _over(below: Config, above: Config) -> Config:
    """One configuration over another."""
    merged = below | above
    for name in (name for name in _SECTIONS if name in below and name in above):
        held, given = below[name], above[name]
        if name == "trainer":
            merged[name] = _trainer(held, given)
            continue
        paths = (part.get("class_path", DEFAULTS[name]) for part in (held, given))
        kinds = {class_of(path, _BASES[name], name) for path in paths}
        another = "class_path" in given and (name == "data" or len(kinds) == 2)
        if not (another or isinstance(given, _Whole)):
            merged[name] = _merged(held, given)
    return merged


def _merged(below: Config, above: Config) -> Config:
    """Options over others: constructor arguments, and groups of them, one by one."""
    merged = below | above
    for key in above.keys() & below.keys() & {"init_args", *compatibility.GROUPS}:
        parts = below[key], above[key]
        if all(isinstance(part, dict) for part in parts) and "class_path" not in above[key]:
            merged[key] = _merged(*parts)
    return merged


def _trainer(below: Config, above: Config) -> Config:
    merged = dict(below)
    for key, value in sorted(above.items(), key=lambda item: item[0].endswith("+")):
        if key.endswith("+"):
            merged[key[:-1]] = _listed(merged.get(key[:-1])) + _listed(value)
        elif key == "callbacks":
            tests = [
                item for item in _listed(below.get(key)) if _is_test(item, "trainer.callbacks")
            ]
            merged[key] = tests + _listed(value)
        else:
            merged[key] = value
    return merged


def _is_test(callback: Any, where: str) -> bool:  # noqa: ANN401
    path = callback.get("class_path") if isinstance(callback, dict) else callback
    return isinstance(path, str) and issubclass(
        class_of(path, Callback, where), InterpretabilityTest
    )

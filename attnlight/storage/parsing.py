"""A parser whose error messages are one sentence."""

import re
from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from inspect import signature
from typing import Any, NoReturn

from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from attnlight.errors import InputError, did_you_mean

# Lines of jsonargparse about its internals: each type that it tried, including None.
_WORKINGS = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Given value type: .*"
    r"|(- )?Expected a <class 'NoneType'>|Given value: (NestedArg|Namespace|[\[{]).*"
    r"|(- )?Expected a path but .* invalid|Not a valid subclass of .*|Subclass types expect one of.*"
    r"|(- )?[Aa] (class path|dict) .*|(- )?Missing required keys: {'class_path'}.*",
    re.IGNORECASE,
)
_FIRST_WORDS = r"(?<=: )(Does|Expected|Given|Module|Not|Option|The|Unexpected)\b"
_UNKNOWN_OPTION = re.compile(r"(.*: )?unrecognized arguments: (--[^\s=]+).*")
_CLASS_ABOVE = re.compile(
    r"Problem with given class_path '(?:\w+\.)*(\w+)': (?=\w+: |unrecognized)"
)
_UNKNOWN_ARGUMENT = re.compile(
    r"(?:(.*?): )?Problem with given class_path '([\w.]+)': Option '(\w+)' is not accepted.*"
)
_NO_BASE = re.compile(r": the following arguments are required: base$", re.IGNORECASE)
_BASE = " needs the run, or its checkpoint, that it is a variant of: --model.base RUN"


class OneSentenceParser(LightningArgumentParser):
    """Raise `InputError` with one sentence where jsonargparse prints its usage and a long message.

    Options must be given by their full names: a prefix might match another option after the next
    release.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **({"allow_abbrev": False} | kwargs))

    @override
    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        # Lightning lets every option of a class be a file, whose classes nothing would have checked.
        names: list[str] = super().add_class_arguments(*args, **(kwargs | {"sub_configs": False}))
        return names

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # called by jsonargparse itself, which tries several types
            super().error(message, ex)
        options = [*self._option_string_actions, "--tests"]  # which `shorthand.py` reads
        raise InputError(one_sentence(message, options)) from ex


def one_sentence(message: str, options: Iterable[str] = ()) -> str:
    r"""An error message of jsonargparse as one sentence, which suggests the closest of `options`.

    Example:
        >>> one_sentence('Parser key "trainer.max_epochs":\n  Expected a <class \'int\'>')
        'trainer.max_epochs: expected int'
    """
    lines = [line.strip() for line in message.splitlines()]
    relevant = [line.removeprefix("- ") for line in lines if line and not _WORKINGS.fullmatch(line)]
    sentence = ": ".join(line.rstrip(".:") for line in dict.fromkeys(relevant))
    sentence = re.sub(r'[Pp]arser key "([\w.+-]+)"', r"\1", sentence).removeprefix("config: ")
    sentence = re.sub(r"Expected an? <class '(?:\w+\.)*(\w+)'>", r"Expected \1", sentence)
    sentence = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"Expected one of \1", sentence)
    sentence = _CLASS_ABOVE.sub(r"\1: ", sentence)
    if unknown := _UNKNOWN_OPTION.fullmatch(sentence):
        place, name = unknown[1] or "", unknown[2]
        if place:
            name = name.removeprefix("--")
            options = [x for x in _grouped_options() if x != name]  # that name is of other classes
        elif name.lstrip("-").partition(".")[0] in ("optimizer", "lr_scheduler"):
            where = (
                "the task has its own, --model.optimizer.name and other --model.optimizer options"
            )
            return f"there is no option {name}: {where}, which `attnlight fit --help` lists"
        # Of the bounds of `epochs` the upper one is meant.
        options = [option for option in options if "min_" in name or "min_" not in option]
        sections = {option for option in options if "." not in option}
        section, dot, key = name.partition(".")
        if section not in sections:
            options += [f"{known}{dot}{key}" for known in sections]
        return f"{place}there is no option {name}{did_you_mean(name, options)}"
    if unknown := _UNKNOWN_ARGUMENT.fullmatch(sentence):
        place, path, name = unknown.groups()
        prefix = f"{place}: " if place else ""
        module, _, kind = path.rpartition(".")
        valid = set(_grouped_options()) if path.startswith("attnlight.tasks.") else set()
        found = getattr(import_module(module), kind)
        bases: tuple[Any, ...] = found.__mro__ if isinstance(found, type) else ()
        for base in bases:
            if "__init__" in vars(base) and base is not object:  # it may pass arguments on
                valid.update(signature(base.__init__).parameters)
        hint = did_you_mean(name, valid - {"self", "args", "kwargs"})
        return f"{prefix}{kind} has no option {name!r}{hint}"
    sentence = re.sub(r"Problem with given class_path '(?:\w+\.)*(\w+)'", r"\1", sentence)
    sentence = _NO_BASE.sub(_BASE, sentence)
    return re.sub(_FIRST_WORDS, lambda match: match[0].lower(), sentence)


def _grouped_options() -> list[str]:
    """Every option of a task with its group, such as `optimizer.momentum`."""
    groups = [*import_module("attnlight.tasks.options").GROUPS.items()]
    groups += [("net", kind) for kind in import_module("attnlight.models.build").NETS.values()]
    return [f"{name}.{option.name}" for name, kind in groups for option in fields(kind)]

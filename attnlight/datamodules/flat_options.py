"""Constructors whose arguments are dataclasses, called with the fields of these."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from functools import wraps
from types import NoneType
from typing import Any, get_args, get_type_hints

from attnlight.errors import InputError

Constructor = Callable[..., None]


def flat_options(constructor: Constructor) -> Constructor:
    """An `__init__` that takes the fields of its arguments that are dataclasses as own options.

    So an option is declared once, in a dataclass, with its type, default and description. The
    signature and the docstring of the result list all options, no two of one name; jsonargparse
    makes the command line, its help and the keys of files from these. A dataclass may also be given
    as a whole, by the name of its argument; single options then change it.

    Raises:
        InputError: When it is called, for null in place of a value.
    """
    own, hints = inspect.signature(constructor).parameters.values(), get_type_hints(constructor)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    names: dict[str, list[str]] = {}
    for argument in own:
        kind = groups.get(argument.name)
        types = hints if kind is None else get_type_hints(kind)
        fields = [argument] if kind is None else inspect.signature(kind).parameters.values()
        names[argument.name] = [field.name for field in fields]
        options += (
            field.replace(kind=argument.kind, annotation=types.get(field.name)) for field in fields
        )
    signature = inspect.Signature(options)
    required = {
        option.name
        for option in options
        if not {NoneType, Any, option.empty} & {*get_args(option.annotation), option.annotation}
    }

    @wraps(constructor)
    def construct(self: object, *args: Any, **given: Any) -> None:  # noqa: ANN401
        whole = {name: given.pop(name) for name in groups if name in given}
        found = signature.bind_partial(self, *args, **given).arguments
        if missing := [key for key in required if found.get(key, "") is None]:
            raise InputError(f"{missing[0]} is null; give it a value, or leave it out")
        for name, kind in groups.items():
            changes = {key: found.pop(key) for key in names[name] if key in found}
            found[name] = replace(whole[name], **changes) if name in whole else kind(**changes)
        constructor(**found)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    described = [constructor, *(base for kind in groups.values() for base in kind.__mro__[::-1])]
    sections = ((inspect.getdoc(kind) or "").partition("Args:\n")[2] for kind in described)
    lines = "\n".join(section.partition("\n\n")[0] for section in sections if section)
    construct.__doc__ = f"Its options.\n\nArgs:\n{lines}"
    return construct

"""Attribution methods by name, and from configurations."""

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, get_args, get_type_hints

from attnlight.attribution.base import ATTRIBUTIONS, Attribution
from attnlight.errors import InputError, did_you_mean, require_words, words_of
from attnlight.models.options import group_of

# What tests compare unless told otherwise: methods that are defined for every model.
DEFAULT_METHODS = (
    "attention",
    "gradient_x_attention",
    "gradient",
    "input_gradient",
    "integrated_gradients",
    "occlusion",
    "random",
)


def build_attribution(spec: str | Mapping[str, Any]) -> Attribution:
    """The method of a name, or of a mapping `{name: ..., option: value, ...}`.

    Raises:
        InputError: There is no such method, it has no such option, or an option has a wrong value.
    """
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    kind = ATTRIBUTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint, known = did_you_mean(str(name), ATTRIBUTIONS), ", ".join(ATTRIBUTIONS)
        raise InputError(f"unknown attribution method {name!r}{hint}; expected one of: {known}.")
    hints = get_type_hints(kind)
    require_words(kind.name, options, hints)
    for option, value in options.items():
        declared = hints.get(option)
        kinds = [kind for kind in get_args(declared) if kind is not NoneType] or [declared]
        nullable = len(get_args(declared)) > len(kinds)
        if declared is None or words_of(declared) or (value is None and nullable):
            continue
        accepted = (int, float) if kinds == [float] else kinds[0]
        if not isinstance(value, accepted) or (isinstance(value, bool) and kinds != [bool]):
            expected = kinds[0].__name__ + " or null" * nullable
            raise InputError(f"{name}: {option} is {value!r}; expected {expected}.")
    return group_of(kind, options, kind.name)


def build_attributions(
    specs: str | Iterable[str | Mapping[str, Any]], owner: str, least: int = 1
) -> dict[str, Attribution]:
    """The methods of several names or mappings, or of one name, by label, in their order.

    Raises:
        InputError: A method cannot be built, there are fewer than `least`, or two have one label;
            the message calls them the methods of `owner`.
    """
    methods = [build_attribution(spec) for spec in ([specs] if isinstance(specs, str) else specs)]
    by_label = {method.label: method for method in methods}
    if len(methods) < least or len(by_label) < len(methods):
        raise InputError(
            f"methods of {owner} are {[method.label for method in methods]}; expected {least} or "
            "more, each with a `label` of its own."
        )
    return by_label

"""Attribution methods by name, and from configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from attnlight.attribution.attention import Attention
from attnlight.attribution.attention_contribution import AttentionContribution
from attnlight.attribution.attention_value_norm import AttentionValueNorm
from attnlight.attribution.base import Attribution
from attnlight.attribution.external import External
from attnlight.attribution.gradient import Gradient
from attnlight.attribution.gradient_x_attention import GradientXAttention
from attnlight.attribution.input_gradient import InputGradient
from attnlight.attribution.integrated_gradients import IntegratedGradients
from attnlight.attribution.occlusion import Occlusion
from attnlight.attribution.random import Random
from attnlight.errors import InputError, did_you_mean
from attnlight.models.options import group_of

ATTRIBUTIONS: dict[str, type[Attribution]] = {
    method.name: method
    for method in (
        Gradient,
        InputGradient,
        IntegratedGradients,
        Occlusion,
        Attention,
        GradientXAttention,
        AttentionContribution,
        AttentionValueNorm,
        Random,
        External,
    )
}


def build_attribution(spec: str | Mapping[str, Any]) -> Attribution:
    """The method of a name, or of a mapping `{name: ..., option: value, ...}`.

    Raises:
        InputError: There is no such method, it has no such option, or an option has a wrong value.
    """
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    kind = ATTRIBUTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = (
            f"{did_you_mean(str(name), ATTRIBUTIONS)}; expected one of: {', '.join(ATTRIBUTIONS)}"
        )
        raise InputError(f"unknown attribution method {name!r}{hint}.")
    hints = get_type_hints(kind)
    for option, value in options.items():
        hint = hints.get(option, object)
        if get_origin(hint) is Literal and value not in get_args(hint):
            words = [str(word) for word in get_args(hint)]
            nearest = f"{did_you_mean(str(value), words)}; expected one of: {', '.join(words)}"
            raise InputError(f"{name}: {option} is {value!r}{nearest}.")
        kinds = (int, float) if hint is float else hint
        number = isinstance(value, bool) and hint is not bool
        if (
            isinstance(hint, type)
            and hint is not object
            and (number or not isinstance(value, kinds))
        ):
            raise InputError(f"{name}: {option} is {value!r}; expected {hint.__name__}.")
    return group_of(kind, options, kind.name)

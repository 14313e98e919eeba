"""Calls of a model's layers in a forward pass, by which each layer can be computed again alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import LayeredModel, TextBatch
from attnlight.errors import InputError
from attnlight.probing.interception import LayerAttention, intercept
from attnlight.probing.replay import layer_modules

Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]  # with arguments and options


@dataclass(frozen=True)
class LayerCall:
    """The call of one layer in a forward pass.

    Attributes:
        number: Number of the layer, from 0.
        module: What computes the layer, see `layer_modules`.
        args, options: Arguments of the call.
        states: The layer's input, (B, N, D).
        attention: Attention of the layer in that pass.
    """

    number: int
    module: nn.Module
    args: Sequence[Any]
    options: Mapping[str, Any]
    states: Tensor
    attention: LayerAttention


@torch.no_grad()
def layer_calls(model: LayeredModel, batch: TextBatch, name: str) -> list[LayerCall]:
    """The calls of all layers in a forward pass of a batch, layer 0 first.

    Raises:
        InputError: One module computes several layers; the message says that `name` needs one for each.
    """
    modules = layer_modules(model)
    if len({*modules}) < len(modules):
        raise InputError(f"{name} needs a module for each layer; this model's layers share one.")
    with noted_calls(modules) as calls, intercept(record="all") as found:
        model(batch)
    first = {module: (args, options) for module, args, options in reversed(calls)}
    made = []
    for number, module in enumerate(modules):
        args, options = first[module]
        states = args[0] if args else options["hidden_states"]
        made.append(LayerCall(number, module, args, options, states, found[number]))
    return made


@contextmanager
def noted_calls(modules: Iterable[nn.Module]) -> Iterator[list[Call]]:
    """Within it, the calls of these modules are noted, in order."""
    calls: list[Call] = []

    def note(*call: Any) -> None:  # noqa: ANN401
        calls.append(call)

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()

"""Modules of a network whose output a pass does not use, and the network without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override


class Blank(nn.Module):
    """Zeros in place of a module's output, whose last dimension is of this size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @override
    def forward(self, *args: Any, **options: Any) -> Tensor:
        given = _given(args, options)
        dtype = given.dtype if given.is_floating_point() else torch.get_default_dtype()
        return given.new_zeros(*_tokens(given), self.size, dtype=dtype)


@torch.no_grad()
def blanks_for_unused(model: nn.Module, run: Callable[[], Tensor]) -> dict[str, Blank]:
    """A `Blank` for each module that computes states of tokens which `run`'s outcome does not depend on.

    NaN in place of a module's output says whether it does, also where its effect is 0 for now.
    """
    sizes: dict[str, int] = {}

    def note(name: str, _: nn.Module, args: Any, options: Any, output: Any) -> None:  # noqa: ANN401
        states = isinstance(output, Tensor) and output.is_floating_point()
        if states and output.shape[:-1] == _tokens(_given(args, options)):
            sizes[name] = output.shape[-1]

    modules = {name: module for name, module in model.named_modules() if name}
    handles = [
        module.register_forward_hook(partial(note, name), with_kwargs=True)
        for name, module in modules.items()
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    blanks = {}
    for name, size in sizes.items():
        handle = modules[name].register_forward_hook(
            lambda _, args, output: torch.full_like(output, torch.nan)
        )
        try:
            if run().isfinite().all():
                blanks[name] = Blank(size)
        finally:
            handle.remove()
    return blanks


def replace_modules(model: Any, changes: Mapping[str, nn.Module]) -> Any:  # noqa: ANN401
    """A network that shares all modules with this one but some, which are given by name."""
    made = copy(model)
    made._modules = dict(model._modules)
    for child in dict.fromkeys(name.partition(".")[0] for name in changes):
        below = {
            name.removeprefix(f"{child}."): module
            for name, module in changes.items()
            if name.startswith(f"{child}.")
        }
        if child in changes:
            made._modules[child] = changes[child]
        else:
            made._modules[child] = replace_modules(model._modules[child], below)
    return made


def _given(args: tuple[Any, ...], options: Mapping[str, Any]) -> Tensor:
    """The first tensor among the arguments of a call."""
    return next(part for part in (*args, *options.values()) if isinstance(part, Tensor))


def _tokens(given: Tensor) -> torch.Size:
    """The leading dimensions of states, or all of numbers of tokens."""
    return given.shape[:-1] if given.is_floating_point() else given.shape

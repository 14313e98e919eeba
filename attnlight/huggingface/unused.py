"""Modules of a network whose output a pass does not use, and the network without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
        given, tokens = _read(args, options)
        dtype = given.dtype if given.is_floating_point() else torch.get_default_dtype()
        return given.new_zeros(*tokens, self.size, dtype=dtype)


@torch.no_grad()
def blanks_for_unused(model: nn.Module, run: Callable[[], Tensor]) -> dict[str, Blank]:
    """A `Blank` for each module that computes states of tokens which `run`'s outcome does not depend on.

    NaN in place of a module's output says whether it does, also where its effect is 0 for now.
    """
    sizes: dict[str, int] = {}

    def note(name: str, _: nn.Module, args: Any, options: Any, output: Any) -> None:  # noqa: ANN401
        states = isinstance(output, Tensor) and output.is_floating_point()
        if states and output.shape[:-1] == _read(args, options)[1]:
            sizes[name] = output.shape[-1]

    modules = {name: module for name, module in model.named_modules() if name}
    with ExitStack() as hooks:
        for name, module in modules.items():
            noting = partial(note, name)
            hooks.enter_context(module.register_forward_hook(noting, with_kwargs=True))
        run()
    blanks = {}
    for name, size in sizes.items():
        with modules[name].register_forward_hook(
            lambda *call: torch.full_like(call[-1], torch.nan)
        ):
            if run().isfinite().all():
                blanks[name] = Blank(size)
    return blanks


def replace_modules(model: Any, changes: Mapping[str, nn.Module]) -> Any:  # noqa: ANN401
    """A network that shares all modules with this one but some, which are given by name."""
    made = copy(model)
    made._modules = dict(model._modules)
    for child in dict.fromkeys(name.partition(".")[0] for name in changes):
        start = f"{child}."
        below = {n.removeprefix(start): m for n, m in changes.items() if n.startswith(start)}
        if child in changes:
            made._modules[child] = changes[child]
        else:
            made._modules[child] = replace_modules(model._modules[child], below)
    return made


def _read(args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Tensor, torch.Size]:
    """The first tensor of a call's arguments, and the shape of its tokens: of states without the last."""
    given = next(part for part in (*args, *options.values()) if isinstance(part, Tensor))
    return given, given.shape[:-1] if given.is_floating_point() else given.shape

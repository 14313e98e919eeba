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
def blanks_for_unused(model: nn.Module, run: Callable[[int], Tensor]) -> dict[str, Blank]:
    """A `Blank` for each module that computes states of tokens which the outcome does not depend on.

    NaN in place of a module's output says whether it does, also where its effect is 0 for now: each
    module's in a row of its own, so that one pass asks for all of them.

    Args:
        model: The network.
        run: Gives the outcomes (K, C) of a pass over so many equal rows, K.
    """
    sizes: dict[str, int] = {}
    shared: list[str] = []  # of which all rows read one output, such as that of their positions

    def note(name: str, _: nn.Module, args: Any, options: Any, output: Any) -> None:  # noqa: ANN401
        states = isinstance(output, Tensor) and output.is_floating_point()
        if states and output.shape[:-1] == _read(args, options)[1]:
            sizes[name] = output.shape[-1]
            if len(output) != 2:
                shared.append(name)

    modules = {name: module for name, module in model.named_modules() if name}
    with ExitStack() as hooks:
        for name, module in modules.items():
            noting = partial(note, name)
            hooks.enter_context(module.register_forward_hook(noting, with_kwargs=True))
        run(2)
    unused = set[str]()
    for names in ([name for name in sizes if name not in shared], *([name] for name in shared)):
        with ExitStack() as hooks:
            for row, name in enumerate(names):
                hooks.enter_context(modules[name].register_forward_hook(partial(_spoil, row)))
            finite = run(len(names)).isfinite().all(-1)
        unused |= {name for name, known in zip(names, finite.tolist(), strict=True) if known}
    return {name: Blank(size) for name, size in sizes.items() if name in unused}


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


def _spoil(row: int, _: nn.Module, args: Any, output: Tensor) -> Tensor:  # noqa: ANN401
    """A module's output with NaN in one row."""
    return output.index_fill(0, torch.tensor([row], device=output.device), torch.nan)


def _read(args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Tensor, torch.Size]:
    """The first tensor of a call's arguments, and the shape of its tokens: of states without the last."""
    given = next(part for part in (*args, *options.values()) if isinstance(part, Tensor))
    return given, given.shape[:-1] if given.is_floating_point() else given.shape

"""Recording and replacing the attention of a model's layers.

A module that computes attention takes part by passing its weights through `interception_of(module)`
where that is not None, once its number is known (`number_layers`).
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from attnlight.errors import InputError
from attnlight.probing.patches import Patch, expanded

_NUMBERS = "_attnlight_layers"  # attribute of attention modules, which their copies keep


@dataclass(frozen=True)
class LayerAttention:
    """Attention of one layer in the last forward pass.

    Attributes:
        weights: After softmax and patches, before dropout, (B, H, Q, N).
        values: What the weights are over, (B, H, N, D / H); shared ones once for each head.
        allowed: Items that each query may reach, (B, H, Q, N) bool, an expanded view.
    """

    weights: Tensor
    values: Tensor
    allowed: Tensor


@dataclass
class _Interception:
    """What one `intercept` asks for, and what it has found."""

    record: Collection[int] | Literal["all"]
    patch: Mapping[int, Patch]
    found: dict[int, LayerAttention] = field(default_factory=dict)
    calls: Counter[nn.Module] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)

    def layer(self, module: nn.Module) -> int:
        """The number of the layer that a module computes now: shared modules compute several."""
        numbers = vars(module).get(_NUMBERS)
        if numbers is None:
            name = type(module).__name__
            raise InputError(f"{name} has no number; call attention_layers(model) first.")
        self.calls[module] += 1
        number: int = numbers[(self.calls[module] - 1) % len(numbers)]
        self.seen.add(number)
        return number


@dataclass(frozen=True)
class Intercepted:
    """What is asked of the layer that a module computes now."""

    patches: Sequence[Patch]
    recorders: Sequence[tuple[_Interception, int]]

    def __call__(self, weights: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """The weights to use; arguments are the attributes of `LayerAttention`."""
        for patch in self.patches:
            weights = expanded(patch(weights, allowed), weights)
        self.record(LayerAttention(weights, values, allowed))
        return weights

    def record(self, attention: LayerAttention) -> None:
        """Give the layer's attention to all who record it."""
        for one, layer in self.recorders:
            one.found[layer] = attention


class _Thread(threading.local):
    """Interceptions of a thread, outermost first; during a dry pass, the modules called."""

    active: tuple[_Interception, ...] = ()
    calls: list[nn.Module] | None = None


_THREAD = _Thread()


@contextmanager
def holding(thread: threading.local, **values: object) -> Iterator[None]:
    """Within it, attributes of an object of threads have these values in this thread."""
    before = {name: getattr(thread, name) for name in values}
    vars(thread).update(values)
    try:
        yield
    finally:
        vars(thread).update(before)


def is_intercepting() -> bool:
    """Whether this thread is inside `intercept`."""
    return bool(_THREAD.active)


def interception_of(module: nn.Module) -> Intercepted | None:
    """What is asked of the layer that a module computes now; None: nothing.

    A module calls it once for each attention that it computes.
    """
    if _THREAD.calls is not None:
        _THREAD.calls.append(module)
    asked = [(one, one.layer(module)) for one in _THREAD.active]
    patches = [one.patch[layer] for one, layer in asked if layer in one.patch]
    recorders = [(one, layer) for one, layer in asked if one.record == "all" or layer in one.record]
    return Intercepted(patches, recorders) if patches or recorders else None


@torch.no_grad()
def number_layers(forward: Callable[[], object]) -> list[nn.Module]:
    """Number the attention modules that a forward pass computes, in this order, which is returned.

    A module that computes several layers is there several times. Copies keep the numbers.
    """
    layers: list[nn.Module] = []
    with holding(_THREAD, active=(), calls=layers):
        forward()
    for module in layers:
        vars(module)[_NUMBERS] = [number for number, one in enumerate(layers) if one is module]
    return layers


@contextmanager
def intercept(
    record: Collection[int] | Literal["all"] = (), patch: Mapping[int, Patch] | None = None
) -> Iterator[dict[int, LayerAttention]]:
    """Record and replace attention weights of the forward passes of this thread.

    Interceptions nest: patches of the outer one come first, so that the inner one's win, and both
    record the weights that are used in the end. Gradients flow through what is recorded and given.
    Gradient checkpointing must be off: what it computes anew in `backward` is not intercepted.

    Args:
        record: Numbers of the layers to record, or "all".
        patch: What replaces the weights, by layer (`attnlight.probing.patches`).

    Yields:
        Recorded attention by layer, filled by each forward pass.

    Raises:
        InputError: The model's layers are not numbered, or a layer or head does not exist.
    """
    own = _Interception(record, patch or {})
    with holding(_THREAD, active=(*_THREAD.active, own)):
        yield own.found
    asked = {*own.patch, *(() if record == "all" else record)}
    if not own.seen and (asked or record):
        raise InputError("no attention was computed by a model of attention_layers(model).")
    if missing := sorted(asked - own.seen):
        raise InputError(f"there is no layer {missing[0]}; layers are 0 to {max(own.seen)}.")

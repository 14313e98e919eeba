"""Divergence from distributions that are fixed, its gradient in closed form.

Training takes it at every step and needs no more than the digits of single precision. The
divergences of `divergence.py` keep all digits of a small one, at several times the cost.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override

Divergence = Literal["kl", "js", "tvd"]
_BLOCK = 1 << 15  # numbers at once on a CPU: what a divergence makes on its way stays in the cache


def divergence_from(fixed: Tensor, p: Tensor, kind: Divergence) -> Tensor:
    """Divergence of p over the last dimension, with a gradient for p alone.

    Args:
        fixed: (R, ..., N), each row summing to 1; for `kl` positive wherever p is.
        p: (R, ..., N), each row summing to 1.
        kind: `kl`, of p from `fixed`, or `js`, in nats, or `tvd`.

    Returns:
        (R, ...), to a few units in the last place of 1. Its gradient is `log(p / fixed)`, half of
        `log(p / mean)`, or half the sign of the difference; a p below the smallest normal number
        counts as that in it.
    """
    result: Tensor = _FromFixed.apply(fixed, p, kind)  # type: ignore[no-untyped-call]
    return result


class _FromFixed(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, fixed: Tensor, p: Tensor, kind: Divergence) -> Tensor:
        size = max(1, len(p))
        if p.device.type == "cpu" and len(p):
            size = max(1, _BLOCK // p[0].numel())
        blocks = zip(torch.split(fixed, size), torch.split(p, size), strict=True)
        values, slopes = zip(*(_KINDS[kind](other, own) for other, own in blocks), strict=True)
        ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:  # noqa: ANN401
        (slope,) = ctx.saved_tensors
        return None, gradient.unsqueeze(-1) * slope, None


def _kl(fixed: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    slope = _log(p) - _log(fixed)
    return (p * slope - (p - fixed)).sum(-1), slope


def _js(fixed: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    mean = _log((p + fixed) / 2)
    slope = (_log(p) - mean) / 2
    return (p * slope + fixed * ((_log(fixed) - mean) / 2)).sum(-1), slope


def _tvd(fixed: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    moved = p - fixed
    return moved.abs().sum(-1) / 2, moved.sign() / 2


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=torch.finfo(p.dtype).tiny).log()


_KINDS = {"kl": _kl, "js": _js, "tvd": _tvd}

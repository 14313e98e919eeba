"""The papers' optimisers, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from attnlight.errors import InputError

WeightDecay = float | dict[str, float]


def build_optimizer(
    parts: Mapping[str, nn.Module],
    *,
    name: Literal["adam", "adamw", "sgd"],
    learning_rate: float,
    weight_decay: WeightDecay,
    amsgrad: bool,
    fused: bool,
    momentum: float,
) -> Optimizer:
    """One optimiser with a parameter group per part of the model.

    Args:
        parts: The model's parts by name.
        name: The optimiser.
        learning_rate: Its learning rate.
        weight_decay: One for all parts, or by part; a part left out has none.
        amsgrad: The AMSGrad variant of Adam and AdamW.
        fused: The fused implementation of Adam and AdamW.
        momentum: Momentum of SGD.

    Raises:
        InputError: `weight_decay` names a part that the model lacks.
    """
    groups = _groups(parts, weight_decay)
    if name == "sgd":
        return SGD(groups, lr=learning_rate, momentum=momentum)
    kind: type[Adam] = {"adam": Adam, "adamw": AdamW}[name]
    return kind(groups, lr=learning_rate, amsgrad=amsgrad, fused=fused)


def _groups(parts: Mapping[str, nn.Module], weight_decay: WeightDecay) -> list[dict[str, Any]]:
    decay = weight_decay if isinstance(weight_decay, dict) else dict.fromkeys(parts, weight_decay)
    unknown = sorted(set(decay) - set(parts))
    if unknown:
        raise InputError(
            f"weight_decay names the part {unknown[0]!r}; the model has {', '.join(parts)}."
        )
    groups = (
        {
            "params": [p for p in part.parameters() if p.requires_grad],
            "weight_decay": decay.get(name, 0.0),
        }
        for name, part in parts.items()
    )
    return [group for group in groups if group["params"]]

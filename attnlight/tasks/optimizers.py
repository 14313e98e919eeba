"""The papers' optimisers and their schedule, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from attnlight.errors import InputError

PLATEAU_MONITOR = "val/accuracy"
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


def with_plateau(optimizer: Optimizer, factor: float) -> OptimizerLRSchedulerConfig:
    """The optimiser and Serrano & Smith's schedule, as `configure_optimizers` returns them.

    Args:
        optimizer: The optimiser.
        factor: What the learning rate is multiplied by after each epoch whose validation accuracy
            is no new best.

    Raises:
        InputError: `factor` is not between 0 and 1.
    """
    if not 0 < factor < 1:
        raise InputError(f"plateau_factor is {factor}; it must be between 0 and 1.")
    plateau = ReduceLROnPlateau(optimizer, mode="max", factor=factor, patience=0)
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": plateau, "monitor": PLATEAU_MONITOR},
    }


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

"""The papers' optimisers and their schedule, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from attnlight.errors import InputError

PLATEAU_MONITOR = "val/accuracy"
BETAS = 0.9, 0.999  # PyTorch's own of Adam and AdamW
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
    betas: tuple[float, float] = BETAS,
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
        betas: Decay rates of Adam's and AdamW's running means.

    Raises:
        InputError: `weight_decay` names a part that the model lacks.
    """
    groups = _groups(parts, weight_decay)
    if name == "sgd":
        return SGD(groups, lr=learning_rate, momentum=momentum)
    kind: type[Adam] = {"adam": Adam, "adamw": AdamW}[name]
    return kind(groups, lr=learning_rate, betas=betas, amsgrad=amsgrad, fused=fused)


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


def with_noam(optimizer: Optimizer, warmup: int, size: int) -> OptimizerLRSchedulerConfig:
    """The optimiser and the schedule of Vaswani et al. (2017), as `configure_optimizers` returns them.

    At step s, from 1, the learning rate is multiplied by D^-0.5 min(s^-0.5, s W^-1.5).

    Args:
        optimizer: The optimiser.
        warmup: Steps W for which the learning rate rises.
        size: Size D of the model's states.

    Raises:
        InputError: `warmup` is not positive.
    """
    if warmup < 1:
        raise InputError(f"warmup_steps is {warmup}; it must be at least 1.")

    def factor(steps: int) -> float:
        step = steps + 1
        return float(size**-0.5 * min(step**-0.5, step * warmup**-1.5))

    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
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

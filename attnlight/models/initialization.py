"""How a model's parameters start."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Initialization = Literal["default", "xavier"]


@torch.no_grad()
def initialize(model: nn.Module, how: Initialization) -> None:
    """Start a model's affine maps and recurrent networks anew.

    `xavier` is Serrano and Smith's: Xavier-uniform weights of affine maps and from a recurrent
    network's input, orthogonal ones from its state, biases of zero (their GRUs start some of them
    at 1, meant for the forget gate of an LSTM). Convolutions and embeddings stay as they are.

    Args:
        model: Changed in place.
        how: `default` leaves everything as torch starts it.
    """
    if how == "default":
        return
    for module in model.modules():
        if not isinstance(module, nn.Linear | nn.RNNBase):
            continue
        for name, parameter in module.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.xavier_uniform_(parameter)

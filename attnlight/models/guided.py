"""Attention that is given, as to the guided MLP of Wiegreffe and Pinter (2019), 3.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import erase_each

# Attention (R, H, N) for a batch of texts, which it knows by their dataset index.
Guide = Callable[[TextBatch], Tensor]


def no_guide(batch: TextBatch) -> Tensor:
    """The guide of a model before there is a corpus.

    Raises:
        InputError: Always.
    """
    raise InputError(
        "the attention of this model is another model's, given for the texts of its corpus "
        "alone: it reads them through `test` or `predict`, and no raw text."
    )


def leave_out_given(batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
    """Logits (R, N, C) without each item, NaN off the mask and where nothing is left.

    A guide knows whole texts alone: the attention that it gave the other items is renormalised. The
    model must read each item alone, so that nothing else changes.

    Args:
        batch: The texts.
        output: What the model said of them.
        budget: Not used: nothing is encoded anew.
    """
    assert output.item_logits is not None
    logits = erase_each(output.weights, output.item_logits, output.bias, output.mask)
    alone = output.mask.sum(-1, keepdim=True) < 2
    return logits.masked_fill((~output.mask | alone).unsqueeze(-1), torch.nan)


def ask_guide(
    network: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[()], dict[str, Any]]:
    """Arguments of a network's call, with the attention of its `guide` where it is given none.

    A forward pre-hook of `AttentionModel`s that do not ask their guide themselves.
    """
    given = dict(zip(("batch", "weights", "embeddings"), arguments, strict=False)) | options
    if given.get("weights") is None:
        given["weights"] = network.guide(given["batch"])  # type: ignore[operator]
    return (), given

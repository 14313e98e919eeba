"""Attention supplied by a guide, as for the MLP of Wiegreffe and Pinter (2019), 3.4."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models.readout import readout_of

# Attention (R, H, N) for a batch of texts, identified by their dataset index.
Guide = Callable[[TextBatch], Tensor]


def no_guide(batch: TextBatch) -> Tensor:
    """The guide of a model that has no corpus yet: it always raises `InputError`."""
    raise InputError(
        "this model takes its attention from another model, for the texts of its corpus only, and "
        "reads no raw text: use `test` or `predict`."
    )


def leave_one_out_guided(
    model: Any,  # noqa: ANN401
    batch: TextBatch,
    output: AttentionOutput,
    budget: int,
    only: Tensor | None = None,
) -> Tensor:
    """Logits (R, N, C) without each item; NaN off the mask and for the only item of a row.

    A guide has attention for complete texts only: its weights of the other items are renormalised.
    The model must encode each item alone, so that a deletion changes nothing else; `budget` and `only`
    are not used, since no text is encoded again.
    """
    logits = readout_of(batch, output, model).erase()
    alone = output.mask.sum(-1, keepdim=True) < 2
    return logits.masked_fill((~output.mask | alone).unsqueeze(-1), torch.nan)


def apply_guide(
    network: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[()], dict[str, Any]]:
    """A forward pre-hook that gives a network the attention of its `guide` unless it has weights."""
    call = dict(zip(("batch", "weights", "embeddings"), arguments, strict=False)) | options
    if call.get("weights") is None:
        call["weights"] = network.guide(call["batch"])  # type: ignore[operator]
    return (), call

"""Predictions with some items of a context left out, by sets that a seed draws."""

from typing import Literal

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, HasAblation, TextBatch
from attnlight.errors import InputError
from attnlight.functional.random import draw_keys
from attnlight.probing.subsets import subset_logits

Way = Literal["removed", "masked", "hidden"]
# What a token takes from items: its weights, the norms of what they weigh, or its row of the rollout.
Reading = Literal["attention", "value_norm", "rollout"]


def random_subsets(items: Tensor, index: Tensor, draws: int, seed: int) -> Tensor:
    """Sets of items that stay, (R, K, N) bool: each stays with probability 1/2, and at least one does.

    They depend on seed, dataset index (R,) and the order of the items (R, N) bool alone.
    """
    ordinal = (items.cumsum(-1) - 1).clamp(min=0)
    keys = draw_keys(seed, index, torch.zeros_like(index), draws, items.shape[1])
    keys = keys.gather(-1, ordinal.unsqueeze(1).expand_as(keys))
    kept = (keys >= 0) & items.unsqueeze(1)
    lowest = torch.iinfo(keys.dtype).min
    largest = keys.masked_fill(~items.unsqueeze(1), lowest).argmax(-1, keepdim=True)
    only = torch.zeros_like(kept).scatter(-1, largest, True) & items.unsqueeze(1)
    return torch.where(kept.any(-1, keepdim=True), kept, only)


def single_subsets(items: Tensor) -> Tensor:
    """Sets of items that stay where each is left out alone, (R, N, N) bool, of items (R, N) bool."""
    single = torch.eye(items.shape[1], dtype=torch.bool, device=items.device)
    return items.unsqueeze(1) & ~single


def ablated(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    kept: Tensor,
    way: Way = "removed",
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits (R, K, C) where the items of K sets (R, K, N) bool stay, and their cost, (R, K).

    Rows are the texts.

    The cost is the number of tokens that are computed as a share of the complete text's. `way` and
    `budget` are those of `huggingface.ablation.ablated_logits`; other models than those with
    `ablated_logits` read the shortened text, and so leave items out by removal alone.

    Raises:
        InputError: The model does not leave items out in this way.
    """
    if isinstance(model, HasAblation):
        return model.ablated_logits(batch, kept, way, budget)
    if way != "removed":
        name = type(model).__name__
        raise InputError(
            f"{name} leaves items out by removal only: set `way` to removed, not {way}."
        )
    rows = torch.arange(len(output.rows), device=kept.device)
    logits = subset_logits(model, batch, output, rows, kept, "delete", budget)
    words = batch.mask if batch.mask.ndim == 2 else batch.mask.sum(-1)
    return logits, (kept * words.unsqueeze(1)).sum(-1) / words.sum(-1, keepdim=True).double()

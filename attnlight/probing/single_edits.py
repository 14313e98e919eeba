"""Predictions after each single edit of a text."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import AttentionModel, TextBatch
from attnlight.functional.alignment import align
from attnlight.probing.leave_one_out import TOKENS
from attnlight.probing.removal import take_items

# Block of each item of P texts (P, N) and of P others (P, M), long, -1 on padding; which are edits, (P, K).
Blocks = tuple[Tensor, Tensor, Tensor]


def aligned_blocks(first: TextBatch, second: TextBatch) -> Blocks:
    """Blocks of P texts and of P others, by `align`; sentences are items as a whole."""
    pairs = zip(_items(first), _items(second), strict=True)
    found = [align(one, other) for one, other in pairs]
    sizes = first.tokens.shape[1], second.tokens.shape[1], max(len(x.edited) for x in found)
    one, other, edited = (
        torch.tensor([row + [-1] * (size - len(row)) for row in rows], device=first.tokens.device)
        for rows, size in zip(zip(*found, strict=True), sizes, strict=True)
    )
    return one, other, edited == 1


def item_blocks(first: TextBatch, second: TextBatch, edits: bool) -> tuple[Tensor, Tensor]:
    """Block of each item of P texts, (P, N), and of P others, (P, M), long, -1 on padding.

    Of edits they are those of `align`, else the numbers of the items.
    """
    masks = [x.mask if x.mask.ndim == 2 else x.mask.any(-1) for x in (first, second)]
    found = [(mask.cumsum(-1) - 1).clamp(min=0) for mask in masks]
    if edits:
        pairs = zip(aligned_blocks(first, second), found, strict=False)
        found = [blocks.gather(1, numbers) for blocks, numbers in pairs]
    one, two = (x.masked_fill(~mask, -1) for x, mask in zip(found, masks, strict=True))
    return one, two


def _items(batch: TextBatch) -> list[list[Hashable]]:
    """The items of each text: ids of a token, or of all tokens of a sentence."""
    texts = (batch.tokens * batch.mask).reshape(*batch.tokens.shape[:2], -1).tolist()
    return [[tuple(filter(None, item)) for item in text if any(item)] for text in texts]


@torch.no_grad()
def single_edit_logits(
    model: AttentionModel,
    batch: TextBatch,
    other: TextBatch,
    blocks: Blocks,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits (P, C) of texts, and after each of their edits alone, (P, K, C), float64.

    The latter are NaN for blocks that are no edits, and where no item would remain.

    Args:
        model: A model of one row per text, in evaluation mode.
        batch: P texts.
        other: The P texts that all edits would make of them.
        blocks: Block of each item of a text, of each item of the other, and which are edits, as of
            `aligned_blocks`.
        budget: Tokens encoded at once; None: chosen by device. It changes no result.
    """
    own, others, edited = blocks
    both, by_block = _beside(batch, other), torch.cat([own, others], dim=1)
    text, block = edited.nonzero().unbind(-1)
    of_block = by_block[text] == block[:, None]
    second = torch.arange(by_block.shape[1], device=own.device) >= own.shape[1]
    chosen = (by_block[text] >= 0) & (of_block == second)
    order = by_block[text].masked_fill(~chosen, edited.shape[1]).argsort(dim=1, stable=True)
    real = chosen.gather(1, order)
    attended = both.attendable().flatten(2).any(-1) if both.mask.ndim > 2 else both.attendable()
    remain = (attended[text] & chosen).any(-1).nonzero().squeeze(-1)
    budget = TOKENS.of(own) if budget is None else budget
    width = both.mask[0].numel()
    whole = model(batch).logits.double()  # under autocast those of an output have another precision
    logits = whole.new_full((*edited.shape, whole.shape[-1]), torch.nan)
    for part in torch.split(remain, max(1, budget // max(1, width))) if len(remain) else ():
        longest = int(real[part].sum(-1).max())
        copies = take_items(both, text[part], order[part, :longest], real[part, :longest])
        logits[text[part], block[part]] = model(copies).logits.double()
    return whole, logits


def _beside(first: TextBatch, second: TextBatch) -> TextBatch:
    """The first texts, followed in each by the items of the second one."""
    size = max(first.tokens.shape[-1], second.tokens.shape[-1])
    columns = [{"tokens": x.tokens, "mask": x.mask, **x.extras} for x in (first, second)]
    joined = {}
    for name, one in columns[0].items():
        parts = one, columns[1][name]
        wide = [pad(x, (0, size - x.shape[2])) if x.ndim > 2 else x for x in parts]
        joined[name] = torch.cat(wide, dim=1)
    return replace(first, tokens=joined.pop("tokens"), mask=joined.pop("mask"), extras=joined)

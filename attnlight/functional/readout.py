"""Logits of any attention, by algebra on weights and item logits (no encoder, no states)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.functional.draws import permutations

# Keys of a block of shuffles: on a CPU enough to make the cost of the calls small, on an
# accelerator enough to fill it.
_CPU_KEYS, _ACCELERATOR_KEYS = 1 << 20, 1 << 22


def read(weights: Tensor, item_logits: Tensor) -> Tensor:
    """Logits that attention reads out, `sum over heads and items of weights * item_logits`.

    Args:
        weights: (B, N), or (B, K, N) for K candidate attentions; with heads (B, H, N) or
            (B, H, K, N).
        item_logits: (B, N, C), or with heads (B, H, N, C); finite everywhere, padding included.

    Returns:
        (B, C), or (B, K, C) for K candidates.

    Example:
        >>> read(torch.tensor([[0.25, 0.75]]), torch.tensor([[[0.0, 4.0], [0.0, 8.0]]]))
        tensor([[0., 7.]])
    """
    single = weights.ndim == item_logits.ndim - 1
    candidates = weights.unsqueeze(-2) if single else weights
    # Classes first: a product with a handful of rows is several times as fast as with columns.
    logits = (item_logits.mT @ candidates.mT).mT
    if item_logits.ndim == 4:
        logits = logits.sum(1)
    return logits.squeeze(-2) if single else logits


def _blocks(lengths: list[int], draws: int, limit: int) -> Iterator[list[int]]:
    """Row numbers in blocks of at most `limit` keys or one row, like lengths together."""
    block: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if block and (len(block) + 1) * draws * lengths[row] > limit:
            yield block
            block = []
        block.append(row)
    if block:
        yield block


def _shuffles(
    mask: Tensor, rows: Tensor, draws: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of rows with the places (r, L) of their attendable items and shuffles (r, K, L)."""
    lengths = mask.sum(-1)
    places = mask.byte().sort(dim=-1, descending=True, stable=True).indices
    limit = _CPU_KEYS if mask.device.type == "cpu" else _ACCELERATOR_KEYS
    for block in _blocks(lengths.tolist(), draws, limit):
        chosen = torch.tensor(block, device=mask.device)
        shuffles = permutations(lengths[chosen], rows[chosen], draws, seed)
        yield chosen, places[chosen, : shuffles.shape[-1]], shuffles


def _shuffled(weights: Tensor, places: Tensor, shuffles: Tensor) -> Tensor:
    """Weights (r, H, N) of the items at places (r, L), under shuffles (r, K, L): (r, H, K, L)."""
    heads = weights.shape[1]
    compact = weights.gather(-1, places[:, None].expand(-1, heads, -1))
    rows, draws, _ = shuffles.shape
    wide = compact.unsqueeze(2).expand(-1, -1, draws, -1)
    return wide.gather(-1, shuffles.unsqueeze(1).expand(rows, heads, -1, -1))


def permuted_logits(
    weights: Tensor, item_logits: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int
) -> Tensor:
    """Logits under K random shuffles of the attention among the items it may reach.

    The permutation test of Jain and Wallace (2019), section 4.2.1. All heads of a row are shuffled
    alike. A row's shuffles depend on the seed, the row and its number of attendable items alone.

    Args:
        weights: (R, H, N), 0 off the mask.
        item_logits: (R, H, N, C).
        mask: What attention may reach, (R, N) bool.
        rows: Dataset index and position of each row, (R, 2) long.
        draws: Number of shuffles K.
        seed: Any integer.

    Returns:
        (R, K, C).
    """
    logits = item_logits.new_zeros(len(weights), draws, item_logits.shape[-1])
    for chosen, places, shuffles in _shuffles(mask, rows, draws, seed):
        items = item_logits[chosen[:, None], :, places].transpose(1, 2)
        logits[chosen] = read(_shuffled(weights[chosen], places, shuffles), items)
    return logits


def permuted_weights(weights: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """The shuffled attention itself, for readouts that are not affine.

    The same shuffles as those of `permuted_logits`, and the same arguments.

    Returns:
        (R, H, K, N), 0 off the mask.
    """
    shuffled = weights.new_zeros(*weights.shape[:2], draws, weights.shape[-1])
    for chosen, places, shuffles in _shuffles(mask, rows, draws, seed):
        block = _shuffled(weights[chosen], places, shuffles)
        wide = places[:, None, None].expand(block.shape)
        shuffled[chosen] = shuffled[chosen].scatter(-1, wide, block)
    return shuffled

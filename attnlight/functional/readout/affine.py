"""Logits of any attention, by algebra on weights and item logits (no encoder, no states)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.functional._cpu import Scratch
from attnlight.functional.attribution.leave_one_out import blocks
from attnlight.functional.random import draw_states, shuffles
from attnlight.functional.ranking import item_places

# Keys of a block of shuffles: on a CPU enough to make the cost of the calls small, on an
# accelerator enough to fill it.
_CPU_KEYS, _ACCELERATOR_KEYS = 1 << 19, 1 << 22
_SCRATCH = Scratch()


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


def _shuffles(
    weights: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of rows (r,), the places (r, L) of their items, and weights (r, H, K, L) shuffled.

    The weights are overwritten by the next block.
    """
    lengths, places, heads = mask.sum(-1), item_places(mask), weights.shape[1]
    # Drawn once for rows that follow each other and share their draws, as a sentence's tokens do.
    drawn_for = torch.cat([rows, lengths.unsqueeze(1)], dim=1)
    keys, group = torch.unique_consecutive(drawn_for, dim=0, return_inverse=True)
    states = draw_states(seed, keys[:, 0], keys[:, 1], draws)
    on_cpu = mask.device.type == "cpu"
    # Blocks share memory, unless a graph keeps what is in it for its backward pass.
    scratch = _SCRATCH if on_cpu and not torch.is_grad_enabled() else None
    order = lengths.argsort(stable=True)
    limit = _CPU_KEYS if on_cpu else _ACCELERATOR_KEYS
    for block in blocks(lengths[order].tolist(), limit // draws):
        chosen = order[block]
        if len(keys) == len(rows):
            drawn = shuffles(lengths[chosen], states[chosen], scratch)
        else:
            groups, member = torch.unique(group[chosen], return_inverse=True)
            drawn = shuffles(keys[groups, 2], states[groups], scratch)[member]
        items = places[chosen, : drawn.shape[-1]]
        compact = weights[chosen].gather(-1, items[:, None].expand(-1, heads, -1))
        shape = len(chosen), heads, *drawn.shape[1:]
        if scratch is None or drawn.dtype != torch.int32:
            wide = compact.unsqueeze(2).expand(shape)
            yield chosen, items, wide.gather(-1, drawn.long().unsqueeze(1).expand(shape))
            continue
        # From one line of numbers: on a CPU half the work of gathering from each row.
        starts = torch.arange(len(chosen) * heads, dtype=torch.int32).mul_(drawn.shape[-1])
        index = scratch.take("index", shape, drawn.dtype, drawn.device)
        torch.add(drawn.unsqueeze(1), starts.view(-1, heads, 1, 1), out=index)
        shuffled = scratch.take("shuffled", shape, weights.dtype, weights.device)
        torch.index_select(compact.flatten(), 0, index.flatten(), out=shuffled.flatten())
        yield chosen, items, shuffled


def permuted_logits(
    weights: Tensor,
    item_logits: Tensor,
    mask: Tensor,
    rows: Tensor,
    draws: int,
    seed: int,
    by_head: bool = False,
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
        by_head: Give what each head adds to the logits, whose sum over heads they are.

    Returns:
        (R, K, C), or (R, H, K, C) by head.
    """
    heads, classes = item_logits.shape[1], item_logits.shape[-1]
    shape = (heads, draws, classes) if by_head else (draws, classes)
    logits = item_logits.new_zeros(len(weights), *shape)
    columns = item_logits.mT  # so that classes lie first for `read`
    for chosen, places, shuffled in _shuffles(weights, mask, rows, draws, seed):
        wide = places[:, None, None].expand(-1, heads, classes, -1)
        items = columns[chosen].gather(-1, wide).mT
        if by_head:
            parts = read(shuffled.flatten(0, 1), items.flatten(0, 1))
            logits[chosen] = parts.view(len(chosen), *shape)
        else:
            logits[chosen] = read(shuffled, items)
    return logits


def permuted_weights(weights: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """The shuffled attention itself, for readouts that are not affine.

    The same shuffles as those of `permuted_logits`, and the same arguments.

    Returns:
        (R, H, K, N), 0 off the mask.
    """
    shuffled = weights.new_zeros(*weights.shape[:2], draws, weights.shape[-1])
    for chosen, places, block in _shuffles(weights, mask, rows, draws, seed):
        wide = places[:, None, None].expand(block.shape)
        shuffled[chosen] = shuffled[chosen].scatter(-1, wide, block)
    return shuffled

"""Logits of any attention from weights and item logits, without the encoder."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.functional._cpu import Budget, Scratch, blocks
from attnlight.functional.random import draw_states, shuffles
from attnlight.functional.ranking import item_places

# Keys of a block of shuffles: on a CPU enough to amortise the calls, on an accelerator enough to
# fill it.
_KEYS = Budget(1 << 19, 1 << 22)
_SCRATCH = Scratch()


def read(weights: Tensor, item_logits: Tensor) -> Tensor:
    """Logits of attention, `sum over heads and items of weights * item_logits`.

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
    # Classes first: a product with few rows is several times as fast as one with few columns.
    logits = (item_logits.mT @ candidates.mT).mT
    if item_logits.ndim == 4:
        logits = logits.sum(1)
    return logits.squeeze(-2) if single else logits


def _shuffles(
    weights: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of rows (r,), the places (r, L) of their items, and shuffled weights (r, H, K, L).

    The weights are overwritten by the next block.
    """
    lengths, places, heads = mask.sum(-1), item_places(mask), weights.shape[1]
    # Drawn once for consecutive rows that share their draws, such as the tokens of a sentence.
    draw_inputs = torch.cat([rows, lengths.unsqueeze(1)], dim=1)
    keys, group = torch.unique_consecutive(draw_inputs, dim=0, return_inverse=True)
    states = draw_states(seed, keys[:, 0], keys[:, 1], draws)
    # Blocks share memory, unless autograd needs it for the backward pass.
    scratch = _SCRATCH if mask.is_cpu and not torch.is_grad_enabled() else None
    order = lengths.argsort(stable=True)
    sizes = lengths[order].tolist()
    for block in blocks(sizes, _KEYS.of(mask) // draws):
        members, longest = order[block], sizes[block.stop - 1]
        if len(keys) == len(rows):
            orders = shuffles(lengths[members], states[members], longest, scratch)
        else:
            groups, member = torch.unique(group[members], return_inverse=True)
            orders = shuffles(keys[groups, 2], states[groups], longest, scratch)[member]
        items = places[members, : orders.shape[-1]]
        compact = weights[members].gather(-1, items[:, None].expand(-1, heads, -1))
        shape = len(members), heads, *orders.shape[1:]
        if scratch is None or orders.dtype != torch.int32:
            expanded = compact.unsqueeze(2).expand(shape)
            yield members, items, expanded.gather(-1, orders.long().unsqueeze(1).expand(shape))
            continue
        # Indexing a flat tensor takes half as long on a CPU as gathering from each row.
        starts = torch.arange(len(members) * heads, dtype=torch.int32).mul_(orders.shape[-1])
        index = scratch.take("index", shape, orders.dtype, orders.device)
        torch.add(orders.unsqueeze(1), starts.view(-1, heads, 1, 1), out=index)
        shuffled = scratch.take("shuffled", shape, weights.dtype, weights.device)
        torch.index_select(compact.flatten(), 0, index.flatten(), out=shuffled.flatten())
        yield members, items, shuffled


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
    alike. A row's shuffles depend only on the seed, the row and its number of attendable items.

    Args:
        weights: (R, H, N), 0 off the mask.
        item_logits: (R, H, N, C).
        mask: Items that attention may reach, (R, N) bool.
        rows: Dataset index and position of each row, (R, 2) long.
        draws: Number of shuffles K.
        seed: Any integer.
        by_head: Return the contribution of each head; the logits are their sum over heads.

    Returns:
        (R, K, C), or (R, H, K, C) by head.
    """
    heads, classes = item_logits.shape[1], item_logits.shape[-1]
    shape = (heads, draws, classes) if by_head else (draws, classes)
    logits = item_logits.new_zeros(len(weights), *shape)
    columns = item_logits.mT  # classes first, as `read` needs them
    for chosen, places, shuffled in _shuffles(weights, mask, rows, draws, seed):
        index = places[:, None, None].expand(-1, heads, classes, -1)
        items = columns[chosen].gather(-1, index).mT
        if by_head:
            by_head_logits = read(shuffled.flatten(0, 1), items.flatten(0, 1))
            logits[chosen] = by_head_logits.view(len(chosen), *shape)
        else:
            logits[chosen] = read(shuffled, items)
    return logits


def permuted_weights(weights: Tensor, mask: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """Shuffled attention, for readouts that are not affine.

    Shuffles and arguments are those of `permuted_logits`.

    Returns:
        (R, H, K, N), 0 off the mask.
    """
    shuffled = weights.new_zeros(*weights.shape[:2], draws, weights.shape[-1])
    for chosen, places, block in _shuffles(weights, mask, rows, draws, seed):
        index = places[:, None, None].expand(block.shape)
        shuffled[chosen] = shuffled[chosen].scatter(-1, index, block)
    return shuffled

"""Predictions from some of a text's items: the others are deleted or replaced, and it is read again."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, HasGuide, TextBatch
from attnlight.functional._cpu import blocks
from attnlight.functional.readout.instances import (
    empty_logits,
    require_rows_of_tokens,
    rows_are_texts,
)
from attnlight.probing.leave_one_out import last_places, text_costs, tokens_at_once
from attnlight.probing.removal import Token, keep_items, replace_items

Replacement = Literal[Token, "delete"]
# On a CPU no set is more than so many times as long as the shortest that it is read with: padding
# takes as long as tokens. An accelerator reads more at once in about the same time.
_TIMES = 1.5


@torch.no_grad()
def subset_logits(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    rows: Tensor,
    kept: Tensor,
    replacement: Replacement | Tensor = "delete",
    budget: int | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """Logits of rows when only some items of their texts remain.

    Each text is encoded and attended to again, once for each set of items that remain of it: equal
    sets of a row, and of rows that are tokens of one text, share an encoding. Texts of similar length
    are encoded together. Boundary tokens, queries and allowed classes stay. A model with a `guide`,
    whose attention is for complete texts, gets the weights of the remaining items, renormalised.

    Args:
        model: The model, in evaluation mode.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: The model's output for the batch, one row per text or per token.
        rows: The r rows to predict, (r,) long.
        kept: K sets of remaining items for each of them, (r, K, N) bool. A row that is a token must
            be among them.
        replacement: Delete the other items, so that the text is shorter, or replace their tokens by
            the unknown token, by the padding token or by those of a tensor like `batch.tokens`, see
            `replace_items`.
        budget: Tokens encoded at once, at least one text; None chooses by device. It bounds memory
            and does not affect results.
        known: Logits without each item and, last, of the complete text, (R, N + 1, C); NaN where they
            are not known. Such sets are not read again.

    Returns:
        (r, K, C) float64; `empty_logits` where items are deleted and none remains.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    one_row_per_text = rows_are_texts(batch, output)
    text_mask = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    text, position = torch.arange(len(batch), device=rows.device), torch.zeros_like(rows)
    of_items = batch.target is None and not one_row_per_text
    grid = text_mask if batch.target is None else batch.target >= 0  # of rows that are tokens
    row_of_token = text[:, None].expand_as(grid)
    is_row = torch.zeros_like(grid)
    if not one_row_per_text:
        text = require_rows_of_tokens(batch, output)
        position = output.rows[rows, 1]
        is_row[text, output.rows[:, 1]] = True
        row_of_token = torch.zeros_like(grid, dtype=torch.long)
        row_of_token[text, output.rows[:, 1]] = torch.arange(len(text), device=rows.device)
    removed = (output.mask[rows].unsqueeze(1) & ~kept).flatten(0, 1)  # (Q, N)
    query_rows = torch.arange(len(rows), device=rows.device).repeat_interleave(kept.shape[1])
    logits = output.logits.double()[rows[query_rows]]  # all are replaced
    asked = torch.ones_like(query_rows, dtype=torch.bool)
    delete = isinstance(replacement, str) and replacement == "delete"
    if delete:
        asked = (output.mask[rows[query_rows]] & ~removed).any(-1)
    if not (asked.is_cpu and asked.all()):
        empty = empty_logits(model, output).double().expand(len(output.rows), -1)
        logits = torch.where(asked.unsqueeze(-1), logits, empty[rows[query_rows]])
    if known is not None:
        count, place = removed.sum(-1), removed.byte().argmax(-1)
        place = place.masked_fill(count == 0, removed.shape[1])
        found = known[rows[query_rows], place].to(logits)
        read = asked & (count < 2) & ~found.isnan().any(-1)
        logits, asked = torch.where(read.unsqueeze(-1), found, logits), asked & ~read
    asked = asked.nonzero().squeeze(-1)
    if not len(asked):
        return logits.view(*kept.shape[:2], -1)

    # Each set of a text once, by ascending length of what the encoder reads.
    removed, query_rows = removed[asked], query_rows[asked]
    first, copy_of = _distinct(text[rows[query_rows]], removed)
    texts, removed = text[rows[query_rows[first]]], removed[first]
    places = torch.arange(text_mask.shape[1], device=rows.device)
    remaining = places <= last_places(text_mask)[texts, None]
    if delete:
        remaining = remaining & ~removed
    lengths = remaining.sum(-1)
    if not one_row_per_text:
        lengths = text_costs(lengths, is_row.sum(-1)[texts], output)
    lengths, order = lengths.sort(stable=True)
    texts, removed, remaining = texts[order], removed[order], remaining[order]
    copy_of, by_copy = order.argsort()[copy_of].sort(stable=True)

    budget = tokens_at_once(output, budget)
    width = batch.mask[0, 0].numel() if batch.mask.ndim > 2 else 1
    guided = isinstance(model, HasGuide) and model.guide is not None
    sizes = lengths.tolist()
    parts = list(blocks(sizes, budget // width, _TIMES if rows.is_cpu else math.inf))
    stops = copy_of.new_tensor([0, *(block.stop for block in parts)])
    edges = torch.searchsorted(copy_of, stops).tolist()
    for block, start, stop in zip(parts, edges[:-1], edges[1:], strict=True):
        longest = sizes[block.stop - 1] if one_row_per_text else None
        part, source = keep_items(batch, texts[block], remaining[block], longest)
        if isinstance(replacement, Tensor):
            drawn = replacement[texts[block, None], source]
            part = replace_items(part, removed[block].gather(1, source), drawn)
        elif replacement != "delete":
            part = replace_items(part, removed[block].gather(1, source), replacement)
        # Rows of the shortened texts: their text in the block, and their token.
        if one_row_per_text:
            number = torch.arange(len(source), device=rows.device)
            token = torch.zeros_like(number)
        else:
            left = is_row[texts[block]]
            number, token = (left & remaining[block] if of_items else left).nonzero().unbind(-1)
        weights = None
        if guided:
            full = output.weights[row_of_token[texts[block]][number, token]]
            index = source[number].unsqueeze(1).expand(-1, full.shape[1], -1)
            real = remaining[block].gather(1, source)[number]
            weights = full.gather(-1, index) * real.unsqueeze(1)
            total = weights.sum(-1, keepdim=True)
            weights = weights / total.clamp(min=torch.finfo(total.dtype).tiny)
        found = model(part, weights=weights).logits.double()
        place = torch.zeros(len(source), grid.shape[1], dtype=torch.long, device=rows.device)
        place[number, token] = torch.arange(len(number), device=rows.device)
        members = by_copy[start:stop]
        own = place[copy_of[start:stop] - block.start, position[query_rows[members]]]
        logits[asked[members]] = found[own]
    return logits.view(*kept.shape[:2], -1)


def _distinct(texts: Tensor, removed: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct pairs of a text (Q,) and a set (Q, N): the first query of each, and each query's."""
    if not texts.is_cpu:
        pairs = torch.cat([texts[:, None], removed.long()], dim=1)
        pairs, each = torch.unique(pairs, dim=0, return_inverse=True)
        places = torch.arange(len(texts), device=texts.device)
        none = places.new_full((len(pairs),), len(texts))
        return none.scatter_reduce(0, each, places, "amin"), each
    packed = np.packbits(removed.numpy(), axis=1)
    numbers = texts.numpy().astype(np.int64)[:, None].view(np.uint8)
    keys = np.ascontiguousarray(np.concatenate([numbers, packed], axis=1))
    _, first, copy_of = np.unique(
        keys.view(np.dtype((np.void, keys.shape[1]))).ravel(),
        return_index=True,
        return_inverse=True,
    )
    return torch.from_numpy(first), torch.from_numpy(copy_of)

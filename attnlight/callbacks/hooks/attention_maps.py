"""Attention of all layers for some texts, as columns of a record."""

from collections.abc import Iterator

import pyarrow as pa
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, LayeredModel, TextBatch
from attnlight.functional.readout.instances import row_texts
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import layer_attention, read_shares

TOKENS = 64  # of longer texts no map is recorded


def attention_maps(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, chosen: Tensor
) -> dict[str, pa.Array]:
    """Columns of the attention between the tokens of some texts; null for all others.

    Where items are words, weights are sums over the pieces that are attended to, and means over
    those that attend. Of each of the `chosen` texts, (B,) bool, the first row is recorded, if it
    has at most 64 tokens.

    Returns:
        `maps`: weights (L, H, M, N) in this order, layer 0 first; of a model of sentences those of
        its words, where L, H and M are 1. `maps_shape`: these four numbers. `maps_read`: the share of
        each token's last state in what the row reads, (N,); null for a model of sentences.
    """
    text = row_texts(batch, output)
    short = FlatTexts.of(batch).batch.mask.sum(-1) <= TOKENS
    first = torch.cat([text.new_ones(min(len(text), 1)), text.diff()]) != 0
    rows = (first & (chosen & short)[text]).nonzero().squeeze(-1)
    maps: list[Tensor | None] = [None] * len(text)
    read: list[Tensor | None] = [None] * len(text)
    if len(rows):
        found = _of_texts(model, batch.select(text[rows]), output.select(text[rows], rows))
        for row, (weights, shares) in zip(rows.tolist(), found, strict=False):
            maps[row], read[row] = weights, shares
    shapes = pa.array([m if m is None else [*m.shape] for m in maps], pa.list_(pa.int32()))
    return {"maps": _lists(maps), "maps_shape": shapes, "maps_read": _lists(read)}


def _of_texts(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The map of each text, one row each, and what the row reads; nothing of other models."""
    flat = FlatTexts.of(batch)
    if isinstance(model, LayeredModel) and model.attention_layers:
        shares = flat.sums(read_shares(model, batch, output))
        seen = batch.mask if flat.places is None else batch.mask.any(-1)
        layers = torch.stack([one.weights.double() for one in layer_attention(model, batch)], 1)
        attending = flat.batch.mask.double()
        pieces = flat.sums(attending).clamp(min=1)[:, None, None, :, None]
        by_item = flat.sums(layers * attending[:, None, None, :, None])
        between = flat.sums(by_item.mT).mT / pieces  # of all layers between items, (B, L, H, N, N)
        for weights, share, real in zip(between, shares, seen, strict=True):
            yield weights[..., real, :][..., real], share[real]
    elif output.layers:
        words = flat.tokens(output.layers[0])
        for weights, real in zip(words, flat.batch.mask, strict=True):
            yield weights[real].view(1, 1, 1, -1), None


def _lists(values: list[Tensor | None]) -> pa.Array:
    """Each row's numbers in one list."""
    lists = [
        None if one is None else one.detach().float().flatten().cpu().numpy() for one in values
    ]
    return pa.array(lists, pa.list_(pa.float32()))

"""What keeping the log ratios of pairs of several classes says of the most different attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.functional.divergence import total_variation
from attnlight.functional.edges import log_ratio_bounds
from attnlight.functional.readout import read
from attnlight.functional.slab import furthest_in_slab, js_from, one_item_js
from attnlight.functional.sorting import first_of_each

# Pairs of classes, each of one row, that are solved for at once; pairs of all rows that are checked
# at once.
_SOLVED, _CHECKED = 1 << 13, 1 << 20
# What rounding may add to the distance between predictions at a vertex.
_ROUNDING = 1e-12


def furthest_by_pairs(
    own: Tensor, items: Tensor, mask: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The best attention and the least bound from each pair of classes alone.

    A prediction within epsilon keeps the log ratio of each pair of classes in bounds, and for one
    pair the attention of largest JS is known exactly. The least of these JS bounds every adversary.
    Pairs that the lightest item alone keeps in bounds say nothing, since no attention is further
    than that; so do pairs of classes which are both of a probability up to epsilon.

    Args:
        own: The model's attention, (R, N) float64, 0 off the mask.
        items: Item logits (R, N, C) float64, finite.
        mask: What attention may reach, (R, N) bool, something in each row.
        epsilon: Largest total variation distance between the predictions.

    Returns:
        The attention (R, N) of largest JS among the pairs' that keeps the prediction, `own` where
        none does, and the least JS of any pair, (R,).
    """
    prediction = read(own, items).softmax(-1)
    alone = one_item_js(own).masked_fill(~mask, -1.0)
    upper, light = alone.max(-1)
    best, best_js = own.clone(), torch.zeros_like(upper)
    for row, c, d in _binding(items, prediction, light, epsilon):
        low, high = log_ratio_bounds(prediction[row, c], prediction[row, d], epsilon)
        place = torch.arange(len(row), device=row.device)
        e = items[row, :, c] - items[row, :, d]
        vertex = furthest_in_slab(own[row], e, low, high, mask[row])
        js = js_from(own[row], vertex)
        upper = upper.scatter_reduce(0, row, js, "amin")
        place = place[js > best_js[row]]
        asked = row[place]
        logits = read(vertex[place], items[asked])
        kept = total_variation(logits.softmax(-1), prediction[asked]) <= epsilon + _ROUNDING
        place, asked = place[kept], asked[kept]
        top = best_js.scatter_reduce(0, asked, js[place], "amax")
        won = (js[place] == top[asked]).nonzero().squeeze(-1)
        won = won[first_of_each(asked[won])]
        best[asked[won]] = vertex[place[won]]
        best_js = top
    return best, upper


def _binding(
    items: Tensor, prediction: Tensor, light: Tensor, epsilon: float
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row and classes c and d of pairs that the lightest item (R,) does not keep in bounds."""
    rows, classes = prediction.shape
    c, d = torch.triu_indices(classes, classes, 1, device=items.device)
    lightest = items[torch.arange(rows, device=items.device), light]
    for part in torch.split(torch.arange(rows, device=items.device), max(1, _CHECKED // len(c))):
        low, high = log_ratio_bounds(prediction[part][:, c], prediction[part][:, d], epsilon)
        lead = lightest[part][:, c] - lightest[part][:, d]
        row, pair = ((lead < low) | (lead > high)).nonzero().unbind(-1)
        for some in torch.split(torch.arange(len(row), device=row.device), _SOLVED):
            yield part[row[some]], c[pair[some]], d[pair[some]]

"""An upper bound on JS for several classes, from the log ratio of each pair of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.functional.adversary.exact import furthest_in_slab, js_from, one_item_js
from attnlight.functional.adversary.multiclass import log_ratio_bounds
from attnlight.functional.readout.affine import read

# Pairs of classes, each of one row, that are solved for at once; pairs of all rows that are checked
# at once.
_SOLVED, _CHECKED = 1 << 13, 1 << 20


def bound_by_pairs(own: Tensor, items: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """What the JS of no attention exceeds that keeps the prediction: the least over pairs of classes.

    A prediction within epsilon keeps the log ratio of each pair of classes in bounds, and for one
    pair the largest JS is known exactly. Pairs that the lightest item alone keeps in bounds say
    nothing, since no attention is further than that; so do pairs of classes which are both of a
    probability up to epsilon.

    Args:
        own: The model's attention, (R, N) float64, 0 off the mask.
        items: Item logits (R, N, C) float64, finite.
        mask: What attention may reach, (R, N) bool, something in each row.
        epsilon: Largest total variation distance between the predictions.

    Returns:
        (R,) float64, in nats.
    """
    prediction = read(own, items).softmax(-1)
    upper, light = one_item_js(own).masked_fill(~mask, -1.0).max(-1)
    for row, c, d in _binding(items, prediction, light, epsilon):
        low, high = log_ratio_bounds(prediction[row, c], prediction[row, d], epsilon)
        e = items[row, :, c] - items[row, :, d]
        vertex = furthest_in_slab(own[row], e, low, high, mask[row])
        upper = upper.scatter_reduce(0, row, js_from(own[row], vertex), "amin")
    return upper


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

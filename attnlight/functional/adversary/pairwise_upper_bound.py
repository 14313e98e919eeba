"""An upper bound on JS for several classes, from the log ratio of each pair of classes."""

import torch
from torch import Tensor

from attnlight.functional.adversary.exact import js_from, max_js_attention, one_item_js
from attnlight.functional.adversary.multiclass import log_ratio_bounds
from attnlight.functional.readout.affine import read

# Pairs of a row and a class pair solved at once; pairs checked at once.
_SOLVED, _CHECKED = 1 << 13, 1 << 20


def pairwise_upper_bound(original: Tensor, items: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """Upper bound on the JS of every attention that preserves the prediction, by pairs of classes.

    A prediction within epsilon has the log ratio of each pair of classes in bounds, and for a
    single pair the largest JS is exact; the bound is the minimum over pairs. Pairs whose log ratio
    stays in bounds under all attention on the lightest item give no bound, since no attention has a
    larger JS; nor do pairs of classes with probabilities both up to epsilon.

    Arguments are those of `linear_program_attention`; each row needs an item.

    Returns:
        (R,) float64, in nats.
    """
    prediction = read(original, items).softmax(-1)
    upper, lightest_item = one_item_js(original).masked_fill(~mask, -1.0).max(-1)
    rows, classes = torch.arange(len(original), device=original.device), items.shape[-1]
    first, second = torch.triu_indices(classes, classes, 1, device=original.device)
    for part in torch.split(rows, max(1, _CHECKED // len(first))):
        p, q = prediction[part][:, first], prediction[part][:, second]
        low, high = log_ratio_bounds(p, q, epsilon)
        lightest_logits = items[part, lightest_item[part]]
        log_ratio = lightest_logits[:, first] - lightest_logits[:, second]
        row, pair = ((log_ratio < low) | (log_ratio > high)).nonzero().unbind(-1)
        for block in torch.split(torch.arange(len(row), device=original.device), _SOLVED):
            instance, bounds = part[row[block]], (row[block], pair[block])
            e = items[instance, :, first[pair[block]]] - items[instance, :, second[pair[block]]]
            limits = low[bounds][:, None], high[bounds][:, None]
            vertex, _ = max_js_attention(original[instance], e, *limits, mask[instance])
            upper = upper.scatter_reduce(0, instance, js_from(original[instance], vertex), "amin")
    return upper

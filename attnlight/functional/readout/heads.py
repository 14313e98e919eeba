"""Heads as rows: one head varies, the others keep their original attention.

For an affine readout the other heads' logits are added to the item logits, which is exact;
otherwise the readout is evaluated on all heads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.functional.readout.opaque import ReadoutFunction, at_once

# From ascending row numbers (r,) long to a readout of candidates of these rows only.
PartReadout = Callable[[Tensor], ReadoutFunction]


def flatten_heads(weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with heads as rows, and the mask of each.

    Args:
        weights: (B, N), or (B, H, N).
        mask: Items that attention may reach, (B, N) bool.

    Returns:
        Weights (R, N) float64, R = B H, 0 off the mask and each row normalised to sum to 1, and the
        mask of each row, (R, N).
    """
    by_head = weights if weights.ndim == 3 else weights.unsqueeze(1)
    reach = mask.unsqueeze(1).expand(by_head.shape)
    original = by_head.detach().double().masked_fill(~reach, 0.0)
    original = original / original.sum(-1, keepdim=True).clamp(min=torch.finfo(original.dtype).tiny)
    return original.flatten(0, 1), reach.flatten(0, 1)


def flatten_item_logits(original: Tensor, item_logits: Tensor, reach: Tensor) -> Tensor:
    """Item logits with heads as rows, the logits of the other heads added.

    Args:
        original: Weights from `flatten_heads`, (R, N).
        item_logits: (B, N, C), or (B, H, N, C).
        reach: Mask from `flatten_heads`, (R, N).

    Returns:
        (R, N, C) float64, 0 off the mask.
    """
    single = item_logits.ndim == 3
    items = (item_logits if single else item_logits.flatten(0, 1)).detach().double()
    items = items.masked_fill(~reach.unsqueeze(-1), 0.0)
    if single or item_logits.shape[1] == 1:
        return items
    logits = (
        (original.unsqueeze(-1) * items).sum(1).reshape(*item_logits.shape[:2], items.shape[-1])
    )
    others = logits.sum(1, keepdim=True) - logits
    conditioned: Tensor = items + others.flatten(0, 1).unsqueeze(1)
    return conditioned


def head_readout(readout: ReadoutFunction, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """A readout of candidates for single heads, the others with their original attention.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: The model's attention (B, N), or (B, H, N).

    Returns:
        From attentions (R, K, N), R = B H, to logits (R, K, C) float64.
    """
    original = (weights if weights.ndim == 3 else weights.unsqueeze(1)).detach()
    heads = original.shape[1]
    changed = torch.eye(heads, dtype=torch.bool, device=original.device)[:, :, None, None]

    def read(attentions: Tensor) -> Tensor:
        count, items = attentions.shape[1:]
        by_head = attentions.to(original.dtype).reshape(-1, 1, heads, count, items)
        attention = torch.where(changed, by_head, original[:, :, None, None])  # (B, H, H, K, N)
        return readout(attention.flatten(2, 3)).double().reshape(len(attentions), count, -1)

    return read


@dataclass
class CandidateReadout:
    """Logits of candidate attentions, any number of them per row.

    Rows with similar numbers of candidates are evaluated together: numbers are rounded up to a
    power of 2, above 8 to a multiple of a quarter of it, since one readout per number would cost
    more than the padding.

    Args:
        readout: From candidates (B, H, K, N) of all rows to logits (B, K, C).
        weights: The model's attention (B, H, N).
        part: Gives the readout of a subset of rows; None: every call evaluates all rows.
        by_head: Rows are the R = B H heads, each varied alone.
        classes: Number of classes, which bounds what is evaluated at once; 0: few.
    """

    readout: ReadoutFunction
    weights: Tensor
    part: PartReadout | None = None
    by_head: bool = False
    classes: int = 0

    def original(self) -> Tensor:
        """Logits (R, C) float64 of the original attention."""
        logits = self.readout(self.weights.unsqueeze(2)).squeeze(1).double()
        return logits.repeat_interleave(self.weights.shape[1], dim=0) if self.by_head else logits

    def read(self, rows: Tensor, attentions: Tensor) -> Tensor:
        """Logits (E, C) float64 of E candidates.

        Args:
            rows: Row of each candidate, in any order, (E,) long.
            attentions: The candidates, (E, H, N); by head (E, N), or (E, 1, N).
        """
        if not len(rows):
            return self.original()[:0]
        heads = rows % self.weights.shape[1]
        if self.by_head:
            rows, attentions = rows // self.weights.shape[1], attentions.flatten(1)
        ascending = bool((rows[1:] >= rows[:-1]).all())
        order = None if ascending else rows.argsort(stable=True)
        counts = torch.bincount(rows, minlength=len(self.weights))
        first = counts.cumsum(0) - counts
        logits: Tensor | None = None
        for group, width in self._groups(counts):
            # Rows with fewer candidates are padded; padded entries are discarded.
            slots = torch.arange(width, device=rows.device)
            real = slots < counts[group, None]
            places = (first[group, None] + slots).clamp(max=len(rows) - 1)
            places = places if order is None else order[places]
            attention = attentions[places].to(self.weights.dtype)  # (r, W, H, N)
            if self.by_head:
                context = self.weights[group].unsqueeze(1).repeat(1, width, 1, 1)
                index = heads[places][..., None, None].expand(-1, -1, 1, context.shape[-1])
                attention = context.scatter_(2, index, attention.unsqueeze(2))
            readout = self.readout if self.part is None else self.part(group)
            values = readout(attention.transpose(1, 2))[real].double()
            logits = values.new_empty(len(rows), values.shape[-1]) if logits is None else logits
            logits[places[real]] = values
        assert logits is not None
        return logits

    def _groups(self, counts: Tensor) -> list[tuple[Tensor, int]]:
        """Groups of rows (r,) to evaluate together, each with its number of candidates per row."""
        nonempty = counts.nonzero().squeeze(-1)
        if self.part is None:
            return [(torch.arange(len(counts), device=counts.device), int(counts.max()))]
        doubled = 2 ** counts[nonempty].double().log2().ceil().long()
        step = torch.where(doubled > 8, doubled // 4, doubled)
        widths, groups = (counts[nonempty] + step - 1) // step * step, []
        for width in torch.unique(widths).tolist():
            size = at_once(self.weights, self.classes, width)
            groups += [(rows, width) for rows in torch.split(nonempty[widths == width], size)]
        return groups


def head_divergences(weights: Tensor, base: Tensor) -> Tensor:
    """Jensen-Shannon divergence between each pair of heads of two models, summed over rows.

    Attention is (R, H, N), each row summing to 1, 0 off its mask. Sums over parts of the rows add up to
    the sum over all. Computed as the entropy of the mean minus the mean of the entropies, with an error
    near 1e-13 per row.

    Returns:
        (H, H) float64 in nats: entry [b, h] is for head b of the base and head h of the model.
    """
    weights, base = weights.double(), base.double()
    means = [(weights + base[:, [head]]) / 2 for head in range(base.shape[1])]
    entropies, base_entropies, *mean_entropies = (
        torch.special.entr(attention).sum(-1).sum(0) for attention in (weights, base, *means)
    )
    halves = (entropies + base_entropies[:, None]) / 2
    divergences: Tensor = (torch.stack(mean_entropies) - halves).clamp(min=0)
    return divergences

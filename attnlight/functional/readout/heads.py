"""Heads taken one by one, the others held as they are: each head of a row becomes a row.

Item logits then have the other heads' logits added, which is exact; where the readout is not affine
the other heads' attention is read along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.functional.readout.opaque import ReadCandidates

# From some rows (r,) long, ascending, to the readout of their candidates alone.
PartReadout = Callable[[Tensor], ReadCandidates]

# Attention weights of candidates that are read at once: 8 MiB in single precision.
_WEIGHTS = 1 << 21


def own_attention(weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with heads as rows, and what it may reach.

    Args:
        weights: (B, N), or (B, H, N).
        mask: What attention may reach, (B, N) bool.

    Returns:
        Weights (R, N) float64, 0 off the mask and otherwise summing to 1, R = B H, and the mask of
        each, (R, N).
    """
    wide = weights if weights.ndim == 3 else weights.unsqueeze(1)
    reach = mask.unsqueeze(1).expand(wide.shape)
    own = wide.detach().double().masked_fill(~reach, 0.0)
    own = own / own.sum(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
    return own.flatten(0, 1), reach.flatten(0, 1)


def own_items(own: Tensor, item_logits: Tensor, reach: Tensor) -> Tensor:
    """Item logits with heads as rows, those of the other heads read and added.

    Args:
        own: Weights as `own_attention` gives them, (R, N).
        item_logits: (B, N, C), or (B, H, N, C).
        reach: As `own_attention` gives it, (R, N).

    Returns:
        (R, N, C) float64, 0 off the mask.
    """
    single = item_logits.ndim == 3
    items = (item_logits if single else item_logits.flatten(0, 1)).detach().double()
    items = items.masked_fill(~reach.unsqueeze(-1), 0.0)
    if single or item_logits.shape[1] == 1:
        return items
    logits = (own.unsqueeze(-1) * items).sum(1).reshape(*item_logits.shape[:2], items.shape[-1])
    others = logits.sum(1, keepdim=True) - logits
    folded: Tensor = items + others.flatten(0, 1).unsqueeze(1)
    return folded


def head_readout(readout: ReadCandidates, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """A readout of attentions of each head alone, beside the model's own in the others.

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
        blocks = attentions.to(original.dtype).reshape(-1, 1, heads, count, items)
        wide = torch.where(changed, blocks, original[:, :, None, None])  # (B, H, H, K, N)
        logits = readout(wide.flatten(2, 3)).double()
        return logits.reshape(len(attentions), count, -1)

    return read


@dataclass
class Candidates:
    """Reads candidate attentions, however many of each row.

    Rows with like numbers of candidates are read together: up to a power of 2, from 8 on in steps of
    a quarter of it, since a readout for each number would cost more than it saves.

    Args:
        readout: From candidates (B, H, K, N) of all rows to logits (B, K, C).
        weights: The model's attention (B, H, N).
        part: The readouts of some rows alone; None: all rows are read whichever are asked about.
        by_head: Rows are the R = B H heads, each by itself beside the others as they are.
    """

    readout: ReadCandidates
    weights: Tensor
    part: PartReadout | None = None
    by_head: bool = False

    def own(self) -> Tensor:
        """Logits (R, C) float64 of the model's own attention."""
        logits = self.readout(self.weights.unsqueeze(2)).squeeze(1).double()
        return logits.repeat_interleave(self.weights.shape[1], dim=0) if self.by_head else logits

    def read(self, rows: Tensor, attentions: Tensor) -> Tensor:
        """Logits (E, C) float64.

        Args:
            rows: Which of the R rows each candidate is of, in any order, (E,) long.
            attentions: The candidates, (E, H, N); of heads by themselves (E, N), or (E, 1, N).
        """
        if not len(rows):
            return self.own()[:0]
        heads = rows % self.weights.shape[1]
        if self.by_head:
            rows, attentions = rows // self.weights.shape[1], attentions.flatten(1)
        ascending = bool((rows[1:] >= rows[:-1]).all())
        order = None if ascending else rows.argsort(stable=True)
        counts = torch.bincount(rows, minlength=len(self.weights))
        first = counts.cumsum(0) - counts
        logits: Tensor | None = None
        for members, width in self._packs(counts):
            # Rows with fewer candidates are padded; padded entries are discarded.
            slots = torch.arange(width, device=rows.device)
            own = slots < counts[members, None]
            places = (first[members, None] + slots).clamp(max=len(rows) - 1)
            places = places if order is None else order[places]
            wide = attentions[places].to(self.weights.dtype)  # (r, W, H, N)
            if self.by_head:
                beside = self.weights[members].unsqueeze(1).repeat(1, width, 1, 1)
                index = heads[places][..., None, None].expand(-1, -1, 1, beside.shape[-1])
                wide = beside.scatter_(2, index, wide.unsqueeze(2))
            readout = self.readout if self.part is None else self.part(members)
            found = readout(wide.transpose(1, 2))[own].double()
            logits = found.new_empty(len(rows), found.shape[-1]) if logits is None else logits
            logits[places[own]] = found
        assert logits is not None
        return logits

    def _packs(self, counts: Tensor) -> list[tuple[Tensor, int]]:
        """Rows (r,) that are read together, and of how many candidates each."""
        asked = counts.nonzero().squeeze(-1)
        if self.part is None:
            return [(torch.arange(len(counts), device=counts.device), int(counts.max()))]
        doubled = 2 ** counts[asked].double().log2().ceil().long()
        step = torch.where(doubled > 8, doubled // 4, doubled)
        widths, packs = (counts[asked] + step - 1) // step * step, []
        for width in torch.unique(widths).tolist():
            size = max(1, _WEIGHTS // (width * self.weights[0].numel()))
            packs += [(rows, width) for rows in torch.split(asked[widths == width], size)]
        return packs


def head_divergences(weights: Tensor, base: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each head of one model from each of another, summed over rows.

    Sums of parts of the rows add up to that of all. Taken as the entropy of the mean less the mean
    of the entropies, to 1e-13 or so a row, which sums of many rows do not notice.

    Args:
        weights: Attention (R, H, N), each row summing to 1, 0 off its mask.
        base: The other model's, (R, H, N).

    Returns:
        (H, H) float64 in nats: of head b of the base and head h of the model at [b, h].
    """
    own, other = weights.double(), base.double()
    means = [(own + other[:, [head]]) / 2 for head in range(other.shape[1])]
    of_own, of_other, *of_means = (
        torch.special.entr(attention).sum(-1).sum(0) for attention in (own, other, *means)
    )
    apart = (of_own + of_other[:, None]) / 2
    found: Tensor = (torch.stack(of_means) - apart).clamp(min=0)
    return found

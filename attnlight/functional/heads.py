"""Heads taken one by one, the others held as they are: each head of a row becomes a row.

Item logits then have the other heads' logits added, which is exact; where the readout is not affine
the other heads' attention is read along.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnlight.functional.candidates import Readout

# From some rows (r,) long, ascending, to the readout of their candidates alone.
PartReadout = Callable[[Tensor], Readout]

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
    logits = (own.unsqueeze(-1) * items).sum(1).reshape(*item_logits.shape[:2], -1)
    others = logits.sum(1, keepdim=True) - logits
    folded: Tensor = items + others.flatten(0, 1).unsqueeze(1)
    return folded


def head_readout(readout: Readout, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """A readout of attentions of each head alone, beside the model's own in the others.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: The model's attention (B, N), or (B, H, N).

    Returns:
        From attentions (R, K, N), R = B H, to logits (R, K, C) float64.
    """
    held = (weights if weights.ndim == 3 else weights.unsqueeze(1)).detach()
    heads = held.shape[1]
    changed = torch.eye(heads, dtype=torch.bool, device=held.device)[:, :, None, None]

    def read(attentions: Tensor) -> Tensor:
        count, items = attentions.shape[1:]
        blocks = attentions.to(held.dtype).reshape(-1, 1, heads, count, items)
        wide = torch.where(changed, blocks, held[:, :, None, None])  # (B, H, H, K, N)
        logits = readout(wide.flatten(2, 3)).double()
        return logits.reshape(len(attentions), count, -1)

    return read


class Candidates:
    """Reads candidate attentions, however many of each row.

    Rows with like numbers of candidates are read together, so that few are read in vain.

    Args:
        readout: From candidates (B, H, K, N) of all rows to logits (B, K, C).
        weights: The model's attention (B, H, N).
        part: The readouts of some rows alone; None: all rows are read whichever are asked about.
    """

    def __init__(self, readout: Readout, weights: Tensor, part: PartReadout | None = None) -> None:
        self.held = weights.detach()
        self._readout, self._part = readout, part

    def own(self) -> Tensor:
        """Logits (B, C) float64 of the model's own attention."""
        return self._readout(self.held.unsqueeze(2)).squeeze(1).double()

    def read(self, rows: Tensor, attentions: Tensor) -> Tensor:
        """Logits (E, C) float64.

        Args:
            rows: Which of the B rows each candidate is of, in any order, (E,) long.
            attentions: The candidates, (E, H, N).
        """
        if not len(rows):
            return self.own()[:0]
        counts = torch.bincount(rows, minlength=len(self.held))
        order = rows.argsort(stable=True)
        slots = torch.empty_like(order)
        first = (counts.cumsum(0) - counts)[rows[order]]
        slots[order] = torch.arange(len(rows), device=rows.device) - first
        asked, found = [], []
        place = torch.empty_like(counts)
        for members, width in self._packs(counts):
            place.fill_(-1)[members] = torch.arange(len(members), device=members.device)
            some = (place[rows] >= 0).nonzero().squeeze(-1)
            wide = self.held.new_zeros(len(members), self.held.shape[1], width, self.held.shape[2])
            where = (place[rows[some]], slots[some])
            wide[where[0], :, where[1]] = attentions[some].to(wide.dtype)
            readout = self._readout if self._part is None else self._part(members)
            asked.append(some)
            found.append(readout(wide)[where].double())
        logits = torch.cat(found)
        return torch.empty_like(logits).index_copy(0, torch.cat(asked), logits)

    def _packs(self, counts: Tensor) -> list[tuple[Tensor, int]]:
        """Rows (r,) that are read together, and of how many candidates each."""
        asked = counts.nonzero().squeeze(-1)
        if self._part is None:
            return [(torch.arange(len(counts), device=counts.device), int(counts.max()))]
        widths, packs = _widths(counts[asked]), []
        for width in torch.unique(widths).tolist():
            size = max(1, _WEIGHTS // (width * self.held[0].numel()))
            packs += [(rows, width) for rows in torch.split(asked[widths == width], size)]
        return packs


def _widths(counts: Tensor) -> Tensor:
    """How many candidates are read for rows with so many, (r,): 1, 2, 4, 8, 12, 16, 24, 32, 48, ...

    One readout for each number would cost more than it saves.
    """
    doubled = 2 ** counts.double().log2().ceil().long()
    step = torch.where(doubled > 8, doubled // 4, doubled)
    return (counts + step - 1) // step * step


class HeadCandidates:
    """Reads candidates of single heads, however many of each, the other heads held as they are.

    Args:
        readout: From candidates (B, H, K, N) of all rows to logits (B, K, C).
        weights: The model's attention (B, N), or (B, H, N).
        part: The readouts of some rows alone; None: all rows are read whichever are asked about.
    """

    def __init__(self, readout: Readout, weights: Tensor, part: PartReadout | None = None) -> None:
        wide = weights if weights.ndim == 3 else weights.unsqueeze(1)
        self._candidates = Candidates(readout, wide, part)

    def own(self) -> Tensor:
        """Logits (R, C) float64 of the model's own attention, R = B H."""
        heads = self._candidates.held.shape[1]
        return self._candidates.own().repeat_interleave(heads, dim=0)

    def read(self, heads: Tensor, attentions: Tensor) -> Tensor:
        """Logits (E, C) float64.

        Args:
            heads: Which of the R = B H heads each candidate is of, in any order, (E,) long.
            attentions: The candidates, (E, N).
        """
        held = self._candidates.held
        rows = heads // held.shape[1]
        wide = held[rows]
        places = (torch.arange(len(heads), device=heads.device), heads % held.shape[1])
        wide[places] = attentions.to(held.dtype)
        return self._candidates.read(rows, wide)

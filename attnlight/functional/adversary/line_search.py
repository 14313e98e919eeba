"""Where a straight way between two attentions leaves what is allowed, found for many at once.

By false position with Illinois' correction (Dowell and Jarratt, 1971), and a halving now and then,
so that the worst case stays bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

# Of an interval, how near its ends a trial may be; the widest that is not searched further.
_MARGIN, _NARROW = 1e-3, 1e-9


@dataclass
class Ways:
    """E ways, each from an attention that is allowed to one that is not.

    Attributes:
        heads: Whose attention it is, (E,) long.
        starts: (E, N).
        ends: (E, N).
        inside: Share of the end that is known to be allowed, (E,).
        outside: Share of the end that is known not to be, (E,).
        low: A number at most 0 that says how far within `inside` is, (E,).
        high: A number above 0 that says how far beyond `outside` is, (E,).
        js: JS from the model's own attention at `inside`, (E,).
        end_js: The same of the ends, (E,).
    """

    heads: Tensor
    starts: Tensor
    ends: Tensor
    inside: Tensor
    outside: Tensor
    low: Tensor
    high: Tensor
    js: Tensor
    end_js: Tensor
    share: Tensor | None = None

    def take(self, where: Tensor) -> Ways:
        """The ways where `where` (E,) bool holds."""
        return Ways(**_taken(self, where))

    def bound(self) -> Tensor:
        """What JS is nowhere above between `inside` and `outside`, (E,): it is convex."""
        rest = (self.outside - self.inside) / (1 - self.inside).clamp(min=_NARROW)
        return torch.lerp(self.js, torch.maximum(self.js, self.end_js), rest.clamp(max=1.0))

    def next(self, *, halve: bool) -> Tensor:
        """Attentions (E, N) to try, between `inside` and `outside`."""
        self.share = _trial(self.inside, self.outside, self.low, self.high, halve)
        return torch.lerp(self.starts, self.ends, self.share.unsqueeze(-1))

    def narrow(self, excess: Tensor, js: Tensor) -> None:
        """Take what was found at the trial: above 0 where it is not allowed, and JS, each (E,)."""
        assert self.share is not None
        kept = excess <= 0
        self.js = torch.where(kept, js, self.js)
        # The end that stays counts half, so that it does not stay for long.
        self.high = torch.where(kept, self.high / 2, excess)
        self.low = torch.where(kept, excess.clamp(max=-_NARROW), self.low / 2)
        self.inside = torch.where(kept, self.share, self.inside)
        self.outside = torch.where(kept, self.outside, self.share)


@dataclass
class Straddles:
    """E mixtures of two items, one of which lowers a number and the other of which raises it.

    Attributes:
        row: (E,) long.
        i: The item that lowers it, (E,) long.
        j: The item that raises it, (E,) long.
        first: Share of item j at which it is below 0, (E,).
        last: Share of item j at which it is above 0, (E,).
        below: The number at `first`, (E,).
        above: The number at `last`, (E,).
    """

    row: Tensor
    i: Tensor
    j: Tensor
    first: Tensor
    last: Tensor
    below: Tensor
    above: Tensor

    def take(self, where: Tensor) -> Straddles:
        """The mixtures where `where` (E,) bool holds, but those that are narrowed down."""
        return Straddles(**_taken(self, where & (self.last - self.first > _NARROW)))

    def next(self, *, halve: bool) -> Tensor:
        """Shares (E,) of item j to try."""
        return _trial(self.first, self.last, self.below, self.above, halve)

    def narrow(self, share: Tensor, lead: Tensor) -> None:
        """Take the number (E,) that was found at a share (E,)."""
        falls = lead < 0
        self.above = torch.where(falls, self.above / 2, lead)
        self.below = torch.where(falls, lead, self.below / 2)
        self.first = torch.where(falls, share, self.first)
        self.last = torch.where(falls, self.last, share)


def _trial(first: Tensor, last: Tensor, low: Tensor, high: Tensor, halve: bool) -> Tensor:
    """A share (E,) between two, where a line through the numbers at them is 0, or halfway."""
    if halve:
        return (first + last) / 2
    part = -low / (high - low)
    # An infinite number says nothing of where 0 is.
    part = torch.where(part.isfinite(), part, 0.5).clamp(_MARGIN, 1 - _MARGIN)
    return torch.lerp(first, last, part)


def _taken(columns: Ways | Straddles, where: Tensor) -> dict[str, Any]:
    held = {field.name: getattr(columns, field.name) for field in fields(columns)}
    return {name: None if column is None else column[where] for name, column in held.items()}

"""Roots of functions along segments, for many segments at once.

Regula falsi with the Illinois modification (Dowell and Jarratt, 1971) and occasional bisection,
which bounds the number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NARROW = 1e-9  # width at which a bracket counts as converged
_MARGIN = 1e-3  # least distance of a trial from the ends, relative to the width


@dataclass
class Brackets:
    """E brackets of a root: two shares of a segment's end at which the function has opposite signs.

    Attributes:
        inside: Share at which the function is at most 0, (E,).
        outside: Share at which it is above 0, (E,).
        low: Its value at `inside`, (E,).
        high: Its value at `outside`, (E,).
        columns: Other columns of the segments, (E, ...).
    """

    inside: Tensor
    outside: Tensor
    low: Tensor
    high: Tensor
    columns: tuple[Tensor, ...]

    def take(self, where: Tensor) -> Brackets:
        """The brackets selected by `where`, (E,) bool."""
        ends = self.inside[where], self.outside[where], self.low[where], self.high[where]
        return Brackets(*ends, columns=tuple(column[where] for column in self.columns))

    def trial(self, *, halve: bool) -> Tensor:
        """Trial shares (E,): the root of the line through both values, or the midpoint."""
        if halve:
            return (self.inside + self.outside) / 2
        part = -self.low / (self.high - self.low)
        # An infinite value carries no information on the root.
        part = torch.where(part.isfinite(), part, 0.5).clamp(_MARGIN, 1 - _MARGIN)
        return torch.lerp(self.inside, self.outside, part)

    def narrow(self, share: Tensor, value: Tensor) -> None:
        """Replace one end of each bracket by a share (E,) and the value (E,) there."""
        nonpositive = value <= 0
        # Halving the value at the retained end makes this end move soon (Illinois).
        self.high = torch.where(nonpositive, self.high / 2, value)
        self.low = torch.where(nonpositive, value.clamp(max=-NARROW), self.low / 2)
        self.inside = torch.where(nonpositive, share, self.inside)
        self.outside = torch.where(nonpositive, self.outside, share)

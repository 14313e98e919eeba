"""Where a function of the share of a segment crosses 0, found for many segments at once.

By false position with Illinois' correction (Dowell and Jarratt, 1971), and a halving now and then,
which bounds the number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NARROW = 1e-9  # the widest bracket that is not searched further
_MARGIN = 1e-3  # of a bracket, how near its ends a trial may be


@dataclass
class Brackets:
    """E brackets of a root: two shares of a segment's end, with values of both signs there.

    Attributes:
        inside: Share at which the function is at most 0, (E,).
        outside: Share at which it is above 0, (E,).
        low: Its value at `inside`, (E,).
        high: Its value at `outside`, (E,).
        columns: Further columns of the segments, (E, ...).
    """

    inside: Tensor
    outside: Tensor
    low: Tensor
    high: Tensor
    columns: tuple[Tensor, ...]

    def take(self, where: Tensor) -> Brackets:
        """The brackets where `where` (E,) bool holds."""
        return Brackets(
            inside=self.inside[where],
            outside=self.outside[where],
            low=self.low[where],
            high=self.high[where],
            columns=tuple(column[where] for column in self.columns),
        )

    def trial(self, *, halve: bool) -> Tensor:
        """Shares (E,) to try: where a line through the two values is 0, or halfway."""
        if halve:
            return (self.inside + self.outside) / 2
        part = -self.low / (self.high - self.low)
        # An infinite value does not show where the root is.
        part = torch.where(part.isfinite(), part, 0.5).clamp(_MARGIN, 1 - _MARGIN)
        return torch.lerp(self.inside, self.outside, part)

    def narrow(self, share: Tensor, value: Tensor) -> None:
        """Replace one end of each bracket by a share (E,) and the value (E,) there."""
        kept = value <= 0
        # The value at the end that stays is halved, so that this end moves soon, too.
        self.high = torch.where(kept, self.high / 2, value)
        self.low = torch.where(kept, value.clamp(max=-NARROW), self.low / 2)
        self.inside = torch.where(kept, share, self.inside)
        self.outside = torch.where(kept, self.outside, share)

"""Where a straight way between two attentions leaves what is allowed, found for many at once.

By false position with Illinois' correction (Dowell and Jarratt, 1971), and a halving now and then,
so that the worst case stays bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NARROW = 1e-9  # the widest bracket that is not searched further
_MARGIN = 1e-3  # of a bracket, how near its ends a trial may be


@dataclass
class Brackets:
    """E shares of an end of a way, each between one at which a number is below 0 and one above.

    Attributes:
        inside: Share at which the number is at most 0, (E,).
        outside: Share at which it is above 0, (E,).
        low: The number at `inside`, (E,).
        high: The number at `outside`, (E,).
        columns: What else there is of each, (E, ...).
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
        """Shares (E,) to try: where a line through the numbers at the ends is 0, or halfway."""
        if halve:
            return (self.inside + self.outside) / 2
        part = -self.low / (self.high - self.low)
        # An infinite number does not show where 0 is.
        part = torch.where(part.isfinite(), part, 0.5).clamp(_MARGIN, 1 - _MARGIN)
        return torch.lerp(self.inside, self.outside, part)

    def narrow(self, share: Tensor, number: Tensor) -> None:
        """Take the numbers (E,) that were found at shares (E,)."""
        kept = number <= 0
        # The end that stays counts half, so that it does not stay for long.
        self.high = torch.where(kept, self.high / 2, number)
        self.low = torch.where(kept, number.clamp(max=-NARROW), self.low / 2)
        self.inside = torch.where(kept, share, self.inside)
        self.outside = torch.where(kept, self.outside, share)

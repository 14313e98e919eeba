"""Texts whose items are words of several tokens, as rows of tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.functional.ranking import item_places

# In `AttentionOutput.memory` where items are words: the part of each word's weight that each of its
# tokens has, (B, H, N).
SHARE = "share"


@dataclass(frozen=True)
class FlatTexts:
    """Texts with their tokens in one row each; of a batch whose items are tokens, the batch itself.

    Attributes:
        batch: The B texts of N tokens.
        item: Item of each token, (B, N) long.
        count: Number of items of a text, with padding.
        places: Place of each token among those of all items, (B, N) long; None: tokens are items.
    """

    batch: TextBatch
    item: Tensor
    count: int
    places: Tensor | None = None

    @classmethod
    def of(cls, batch: TextBatch) -> FlatTexts:
        """The texts of a batch, (B, N), or (B, W, P) of W items with P tokens each."""
        texts, count = batch.tokens.shape[:2]
        if batch.tokens.ndim == 2:
            every = torch.arange(count, device=batch.tokens.device).expand(texts, -1)
            return cls(batch, every, count)
        mask = batch.mask.flatten(1)
        longest = int(mask.sum(-1).amax()) if texts else 0
        places = item_places(mask)[:, :longest]
        flat = cls(batch, places // batch.tokens.shape[2], count, places)
        columns = {name: flat.tokens(values) for name, values in batch.extras.items()}
        tokens, real = flat.tokens(batch.tokens), mask.gather(1, places)
        return replace(flat, batch=replace(batch, tokens=tokens * real, mask=real, extras=columns))

    def tokens(self, values: Tensor) -> Tensor:
        """Values of the tokens (B, N, ...) from those of a batch like the one that was given."""
        if self.places is None:
            return values
        texts = torch.arange(len(values), device=values.device)[:, None]
        return values.flatten(1, 2)[texts, self.places]

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the tokens of each item, (B, ..., W), of values (B, ..., N), 0 on padding."""
        if self.places is None:
            return values
        zeros = values.new_zeros(*values.shape[:-1], self.count)
        return zeros.scatter_add(-1, self._item_of(values), values)

    def means(self, states: Tensor) -> Tensor:
        """Means over the tokens of each item, (B, W, D), of states (B, N, D)."""
        if self.places is None:
            return states
        real = self.batch.mask.to(states).unsqueeze(1)
        return (self.sums(states.mT * real) / self.sums(real).clamp(min=1)).mT

    def of_items(self, values: Tensor) -> Tensor:
        """The value of each token's item, (B, ..., N), from values of items (B, ..., W)."""
        return values if self.places is None else values.gather(-1, self._item_of(values))

    def shares(self, weights: Tensor, reached: Tensor) -> Tensor:
        """Part of each item's weight that its tokens have, (B, H, N); equal parts of a weight of 0.

        Args:
            weights: Of the tokens, (B, H, N), 0 on those that are not reached.
            reached: Tokens that have weight, (B, N) bool.
        """
        total = self.of_items(self.sums(weights))
        equal = reached / self.of_items(self.sums(reached.to(weights))).clamp(min=1)
        tiny = torch.finfo(weights.dtype).tiny
        return torch.where(total > 0, weights / total.clamp(min=tiny), equal.unsqueeze(1))

    def _item_of(self, values: Tensor) -> Tensor:
        """Item of each token in the shape of values (B, ..., N or W), whose last size is N."""
        between = [1] * (values.ndim - 2)
        return self.item.view(len(self.item), *between, -1).expand(*values.shape[:-1], -1)

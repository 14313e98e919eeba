"""Training texts of which some words are erased, so that the model knows texts without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnlight.errors import InputError
from attnlight.functional.random import draw_keys
from attnlight.functional.ranking import first_items, random_rankings


@dataclass(frozen=True)
class ErasedWords:
    """Erasure of words of training texts, anew in each epoch (after Madsen et al., 2024).

    Args:
        texts: Probability that words of a text are erased, above 0 and at most 1.
        share: Share of its words, rounded down, so that at least one remains: a number between 0 and
            1, or `uniform`: drawn from 0 to 1 for each text.
        replacement: Delete the words, or replace them by the unknown token.

    Raises:
        InputError: `texts` or `share` is out of range.
    """

    texts: float = 0.5
    share: float | Literal["uniform"] = "uniform"
    replacement: Literal["delete", "unk"] = "delete"

    def __post_init__(self) -> None:
        if not 0 < self.texts <= 1:
            raise InputError(
                f"erased_words.texts is {self.texts}; it must be above 0 and at most 1."
            )
        if self.share != "uniform" and not 0 < self.share < 1:
            raise InputError(
                f"erased_words.share is {self.share}; it must be `uniform` or lie between 0 and 1: "
                "at least one word of a text remains."
            )

    def draw(self, words: Tensor, index: Tensor, epoch: int, seed: int) -> Tensor:
        """The words of each text that are erased in an epoch, (B, N) bool.

        A function of the seed, the epoch and the dataset row alone; all sets of a size are equally
        likely.

        Args:
            words: The words of each text, (B, N) bool.
            index: Dataset row of each text, (B,) long.
            epoch: Number of the epoch.
            seed: Any integer.
        """
        rows, lengths = torch.stack([index, torch.full_like(index, epoch)], dim=1), words.sum(-1)
        keys = draw_keys(seed, *rows.T, 2, 2)[:, 1]  # the first draw orders the words
        chosen, share = (((keys >> 11) & ((1 << 53) - 1)).double() * 2.0**-53).T
        if self.share != "uniform":
            share = torch.full_like(share, self.share)
        # Of 0.29 * 100 words 29, although the product is smaller in floating point.
        counts = (share * lengths + 1e-9).long().clamp(max=lengths - 1) * (chosen < self.texts)
        return first_items(random_rankings(words, rows, 1, seed)[:, 0], counts)

"""Which words of training texts are erased."""

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
        share: Share of its words, rounded down, between 0 and 1; `uniform`: drawn for each text.
        replacement: Delete the words, or replace them by the unknown token.

    Raises:
        InputError: `texts` or `share` is out of range.
    """

    texts: float = 0.5
    share: float | Literal["uniform"] = "uniform"
    replacement: Literal["delete", "unk"] = "delete"

    def __post_init__(self) -> None:
        if not 0 < self.texts <= 1:
            raise InputError(f"erased_words.texts is {self.texts}; it must be in (0, 1].")
        if self.share != "uniform" and not 0 < self.share < 1:
            raise InputError(
                f"erased_words.share is {self.share}; it must be `uniform` or between 0 and 1, so that "
                "a text keeps a word."
            )

    def draw(self, words: Tensor, index: Tensor, epoch: int, seed: int) -> Tensor:
        """Those of the `words` (B, N) bool that are erased; all sets of a size are equally likely.

        A function of seed, epoch and dataset row, `index` (B,) long, alone; of one word or more one
        at least remains.
        """
        epochs, lengths = torch.full_like(index, epoch), words.sum(-1)
        keys = draw_keys(seed, index, epochs, 2, 2)[:, 1]  # the first draw orders the words
        chosen, share = (((keys >> 11) & ((1 << 53) - 1)).double() * 2.0**-53).T
        if self.share != "uniform":
            share = torch.full_like(share, self.share)
        # Of 0.29 * 100 words 29, although the product is smaller in floating point.
        counts = (share * lengths + 1e-9).long().clamp(max=lengths - 1) * (chosen < self.texts)
        orders = random_rankings(words, torch.stack([index, epochs], dim=1), 1, seed)
        return first_items(orders[:, 0], counts)

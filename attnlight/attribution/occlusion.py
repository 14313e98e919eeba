"""Occlusion: how much the prediction changes without an item."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.data.word_sampler import word_replacements
from attnlight.errors import require_at_least
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.probing.leave_one_out import (
    complete_logits,
    deletion_effects,
    text_costs,
    tokens_at_once,
)
from attnlight.probing.removal import replaced_embeddings
from attnlight.probing.row_gradients import text_blocks


@dataclass
class Occlusion(Attribution):
    """The log odds of the text minus those without the item, one item at a time.

    Deleted items are those of `functional.left_out_logits`: NaN for the only item of a text, and for
    the token that the row itself is. With a replacement every item has a score.

    Args:
        replacement: What replaces the item: an unknown word, padding, the zero vector (each stays in
            the mask, without features of the removed word), or nothing: `delete` shortens the text.
            `resample` replaces each of its tokens by words of the corpus (`WordSampler`), and takes
            the mean of the log odds over draws.
        budget: Tokens encoded at once; None: chosen by device. It changes no result.
        resamples: Draws of `resample`, each of which costs as much as `unk`.
        seed: Seed of these draws.
    """

    name = "occlusion"
    signed = True

    replacement: Literal["zero", "pad", "unk", "delete", "resample"] = "unk"
    budget: int | None = None
    resamples: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, budget=self.budget, resamples=self.resamples)
        self.passes = self.resamples if self.replacement == "resample" else 1

    @override
    @torch.no_grad()
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        if self.replacement == "delete":
            return deletion_effects(model, batch, output, target, self.budget), {}
        odds = self._replaced(model, batch, output, target)
        complete = complete_logits(model, batch, output)
        return log_odds(complete, target).unsqueeze(-1) - odds, {}

    def _replaced(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Tensor:
        """Log odds (R, N) with each item replaced, mean over draws; arbitrary off the mask."""
        tokens = tokens_at_once(output, self.budget)
        odds = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
        for part, _, rows, size in text_blocks(batch, output, tokens):
            original, text = model.embed(part), texts_of_rows(output.rows[rows])
            items = torch.zeros_like(output.mask[: len(part), :size])
            items = items.index_copy(0, text, output.mask[rows, :size])
            first = torch.searchsorted(text, torch.arange(len(part), device=text.device))
            most = text.new_tensor(part.mask[:1].numel()), text.bincount().max()
            chunks = torch.split(items.nonzero(), max(1, tokens // int(text_costs(*most, output))))
            drawn = self.replacement, self.word_sampler, part, self.resamples, self.seed
            kinds = word_replacements(*drawn)
            for kind in kinds:
                replaced = replaced_embeddings(model, part, kind)
                for chosen_items in chunks:
                    texts, places = chosen_items.unbind(-1)
                    chosen = torch.arange(size, device=text.device) == places[:, None]
                    chosen = chosen.view(*chosen.shape, *[1] * (original.ndim - 2))
                    embeddings = torch.where(chosen, replaced[texts], original[texts])
                    found = model(part.select(texts), embeddings=embeddings)
                    copy = texts_of_rows(found.rows)
                    place_in_copy = torch.arange(len(copy), device=copy.device)
                    place_in_copy = place_in_copy - torch.searchsorted(copy, copy)
                    row = rows[first[texts[copy]] + place_in_copy]
                    odds[row, places[copy]] += log_odds(found.logits, target[row]) / len(kinds)
        return odds

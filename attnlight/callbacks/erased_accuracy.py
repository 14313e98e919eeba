"""Does the model predict well without some words, as faithfulness by erasure assumes?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.predictions import row_labels
from attnlight.data.word_sampler import word_replacements
from attnlight.errors import InputError
from attnlight.functional.ranking import first_items, random_rankings
from attnlight.functional.readout.instances import other_items
from attnlight.models.readout import Readout
from attnlight.probing.subsets import Replacement, subset_logits


class ErasedAccuracy(InterpretabilityTest):
    """Accuracy on complete texts, and with random items erased.

    `correct` is whether the prediction is the label, `correct_<per cent>` the same after that share of
    the items is erased, rounded down and never all. All sets of a size are equally likely; larger
    shares of a draw contain smaller ones. The own token of a row of a tagger remains. Undefined without
    a label.

    Args:
        shares: Shares of the items, whole per cent from 0.01 to 0.99.
        replacement: What becomes of erased items, as in `Faithfulness`.
        draws: Random orders of the items; columns are means over them.
        resamples: Draws of `resample`; columns are means over them too.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    def __init__(
        self,
        shares: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
        replacement: Replacement | Literal["resample"] = "delete",
        draws: int = 1,
        resamples: int = 8,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, draws=draws, resamples=resamples)
        percents = {percent / 100: percent for percent in range(1, 100)}
        if not shares or not set(shares) <= percents.keys():
            raise InputError(
                f"shares of {self.name} are {list(shares)}; expected whole per cent, from 0.01 to 0.99."
            )
        self.percents = [percents[share] for share in shares]
        self.replacement = replacement
        self.draws, self.resamples = draws, resamples
        self.measures = ("correct", *(f"correct_{percent}" for percent in self.percents))
        self.metadata = {"shares": list(shares), "replacement": replacement, "draws": draws}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        items, rows = other_items(batch, output), torch.arange(len(output.rows)).to(output.rows)
        lengths, label = items.sum(-1, keepdim=True), row_labels(batch, output)
        label = torch.full_like(rows, -1) if label is None else label
        counts = lengths * torch.tensor(self.percents).to(rows) // 100
        counts = counts.clamp(max=(lengths - 1).clamp(min=0))
        orders = random_rankings(items, output.rows, self.draws, self.seed)
        erased = items[:, None, None] & first_items(orders.unsqueeze(2), counts.unsqueeze(1))
        kept = output.mask.unsqueeze(1) & ~erased.flatten(1, 2)  # (R, D S, N)
        drawn = self.replacement, self.word_sampler, batch, self.resamples, self.seed
        each = [
            subset_logits(readout.model, batch, output, rows, kept, kind, self.budget)
            for kind in word_replacements(*drawn)
        ]
        right = (torch.stack(each).argmax(-1) == label[:, None]).double().mean(0)
        whole = (output.logits.argmax(-1) == label).double().unsqueeze(-1)
        correct = torch.cat([whole, right.view(len(rows), self.draws, -1).mean(1)], dim=1)
        correct = correct.masked_fill(label[:, None] < 0, torch.nan)
        return dict(zip(self.measures, correct.T, strict=True))

"""Does shuffling attention change the output? (Jain & Wallace 2019, 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.errors import InputError
from attnlight.functional import js_divergence, total_variation
from attnlight.functional._cpu import sorted_keys
from attnlight.models.readout import Readout

# Rows whose shuffles are compared at once: what stays in the cache of a CPU.
_ROWS = 64


class AttentionPermutation(InterpretabilityTest):
    """Shuffle each text's attention over its items and measure how far the prediction moves.

    Columns: `median_tvd` and `median_js` (nats), the median over the shuffles of the total
    variation distance and Jensen-Shannon divergence between the predictions with shuffled and
    with own attention; `flip_rate`, the share of shuffles that change the predicted class. The
    shuffles are a function of seed, index and draw number alone, the same for all heads and, in a
    tagger, for all tokens of a sentence. A text of one item has nothing to shuffle: all three are
    0, up to rounding.

    These shuffle all heads together. Where there are several, `<column>_by_head` (R, H) is of each
    head shuffled alone, the others held, by the first `head_draws` of the shuffles.

    Args:
        draws: Shuffles K per instance; the paper takes 100.
        head_draws: Of these, how many shuffle each head alone, where there are several.
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances, chosen by a seeded hash; None: all.
        seed: Seed of the shuffles and of the choice of instances.
        figures: Draw the violins of `median_tvd` by maximum attention (the paper's figure).
    """

    measures = ("median_tvd", "median_js", "flip_rate")

    def __init__(
        self,
        draws: int = 100,
        head_draws: int = 25,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
    ) -> None:
        super().__init__(every_n_epochs, max_instances, seed, figures)
        for option, number in (("draws", draws), ("head_draws", head_draws)):
            if number < 1:
                raise InputError(f"{option} of {self.name} is {number}; it must be at least 1.")
        self.draws = draws
        self.head_draws = head_draws

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        return {"draws": self.draws, "head_draws": min(self.head_draws, self.draws)}

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Tensor]:
        together, alone = readout.permute(self.draws, self.head_draws, self.seed)
        columns = _moved(together, output.probabilities)
        by_head = [_moved(logits, output.probabilities) for logits in alone]
        if not by_head:
            return columns
        return columns | {
            f"{name}_by_head": torch.stack([one[name] for one in by_head], dim=-1)
            for name in columns
        }


def _moved(logits: Tensor, own: Tensor) -> dict[str, Tensor]:
    """Columns (R,) of logits (R, K, C) against the own probabilities (R, C)."""
    found = []
    pieces = torch.split(logits, _ROWS), torch.split(own.unsqueeze(1), _ROWS)
    for part, before in zip(*pieces, strict=True):
        # Classes are few: a CPU is several times as fast along the shuffles as along the classes.
        shuffled = part.mT.contiguous().softmax(-2).mT
        flipped = shuffled.contiguous().argmax(dim=-1) != before.argmax(dim=-1)
        columns = {
            "median_tvd": _median(total_variation(shuffled, before)),
            "median_js": _median(js_divergence(shuffled, before)),
            "flip_rate": flipped.to(shuffled.dtype).mean(dim=-1),
        }
        found.append(columns)
    return {name: torch.cat([columns[name] for columns in found]) for name in found[0]}


def _median(values: Tensor) -> Tensor:
    """Median over the last dimension, the mean of the two middle values where K is even."""
    ascending, middle = sorted_keys(values), values.shape[-1] // 2
    if values.shape[-1] % 2:
        return ascending[..., middle]
    return ascending[..., middle - 1 : middle + 1].mean(dim=-1)

"""Does shuffling attention change the output? (Jain & Wallace 2019, 4.2.1)."""

from itertools import chain
from typing import Any

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.functional import js_divergence, total_variation
from attnlight.functional._cpu import sorted_keys
from attnlight.models.readout import Readout

_ELEMENTS = 1 << 17  # probabilities of shuffles compared at once: so many fit a CPU's cache
_SHUFFLED = ("median_tvd", "median_js", "flip_rate")


class AttentionPermutation(InterpretabilityTest):
    """Shuffle each text's attention over its items, or make it uniform, and measure the change.

    Columns: `median_tvd` and `median_js` (nats), the median over the shuffles of the total
    variation distance and Jensen-Shannon divergence between the predictions with shuffled and
    with original attention; `flip_rate`, the share of shuffles that change the predicted class. The
    shuffles are a function of seed, index and draw number alone, the same for all heads and, in a
    tagger, for all tokens of a sentence. `uniform_tvd` is the total variation distance between the
    predictions with uniform attention of all heads and with the original one. For a text of one item
    all four are 0, up to rounding.

    These shuffle all heads together. With several heads, `<column>_by_head` (R, H) of the first
    three is of each head shuffled alone, the others fixed, by the first `head_draws` of the shuffles.

    Args:
        draws: Shuffles K per instance; the paper uses 100.
        head_draws: Number of these shuffles that are applied to single heads, if there are several.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    joins_batches = True
    measures = (*_SHUFFLED, "uniform_tvd")

    def __init__(self, draws: int = 100, head_draws: int = 25, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._require_at_least(1, draws=draws, head_draws=head_draws)
        self.draws = draws
        self.head_draws = head_draws
        self.metadata = {"draws": draws, "head_draws": min(head_draws, draws)}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        all_heads, single_heads = readout.permute(self.draws, self.head_draws, self.seed)
        size = max(1, _ELEMENTS // (self.draws * output.logits.shape[-1]))
        original = torch.split(output.probabilities.unsqueeze(1), size)
        measured = []
        for logits in chain([all_heads], single_heads):
            parts = []
            for part, before in zip(torch.split(logits, size), original, strict=True):
                # Classes are few: a CPU is several times as fast along the shuffles.
                shuffled = part.mT.contiguous().softmax(-2).mT
                flipped = shuffled.contiguous().argmax(dim=-1) != before.argmax(dim=-1)
                moved = [total_variation(shuffled, before), js_divergence(shuffled, before)]
                middle, odd = flipped.shape[-1] // 2, flipped.shape[-1] % 2
                # The median: of an even number of shuffles the mean of the two middle values.
                window = slice(middle, middle + 1) if odd else slice(middle - 1, middle + 1)
                medians = [sorted_keys(values)[..., window].mean(dim=-1) for values in moved]
                parts.append((*medians, flipped.to(shuffled.dtype).mean(dim=-1)))
            measured.append([torch.cat(column) for column in zip(*parts, strict=True)])
        columns = dict(zip(_SHUFFLED, measured[0], strict=True))
        if len(measured) > 1:
            by_head = (torch.stack(heads, dim=-1) for heads in zip(*measured[1:], strict=True))
            named = zip(_SHUFFLED, by_head, strict=True)
            columns |= {f"{name}_by_head": column for name, column in named}
        equal = output.mask.to(output.weights.dtype) / readout.lengths.clamp(min=1).unsqueeze(-1)
        uniform = equal[:, None, None].expand(-1, output.weights.shape[1], -1, -1)
        distance = total_variation(
            readout.candidates(uniform).softmax(-1), readout.logits.softmax(-1).unsqueeze(1)
        ).squeeze(1)
        return columns | {"uniform_tvd": distance.masked_fill(readout.lengths == 0, 0.0)}

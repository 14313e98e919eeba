"""Random scores, which every other method must beat."""

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.ranking import random_rankings


@dataclass
class Random(Attribution):
    """A uniform random order of the items of each row, as scores from 1 down to 1 / L.

    It depends only on the seed, the row's index and position, and its number of items L.

    Args:
        seed: Any integer.
    """

    name = "random"
    signed = False

    seed: int = 0

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        order = random_rankings(output.mask, output.rows, 1, self.seed).squeeze(1)
        ranks = order.argsort(-1).double()  # 0 for the first
        return 1 - ranks / output.mask.sum(-1, keepdim=True), {}

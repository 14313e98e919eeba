"""Integrated gradients (Sundararajan, Taly and Yan, 2017), to a given completeness."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import require_at_least
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.probing.embedding_line import EmbeddingLine
from attnlight.probing.removal import Token, replaced_embeddings
from attnlight.probing.row_gradients import TOKENS, text_blocks

# Differences of log odds below this count as this: the error is relative to the difference.
_SMALLEST = 0.1


@dataclass
class IntegratedGradients(Attribution):
    """Gradient of the log odds averaged on the line from a baseline, times the way from there.

    The scores of a row should sum to its log odds minus those of the baseline, where all words are
    replaced and the rest of the text stays. The integral is taken at Gauss-Legendre nodes. As long
    as a row's sum is not right, the parts of its line whose sums are furthest off are halved, each
    half with as many nodes: log odds that change within a hundredth of the line would need thousands
    of nodes on the whole of it. Columns: `completeness_error`, the error of the sum divided by the
    difference, or by 0.1 if that is larger; `steps`, the number of nodes; and `incomplete`, 1 where
    the error still exceeds the tolerance.

    Args:
        baseline: What replaces the words, see `replaced_embeddings`.
        tolerance: Largest completeness error.
        steps: Nodes on the line at first, and then on each part of it.
        max_steps: Nodes at most.

    Raises:
        InputError: Nodes are fewer than one, or the tolerance is negative.
    """

    name = "integrated_gradients"
    signed = True

    baseline: Literal["zero", Token] = "zero"
    tolerance: float = 1e-3
    steps: int = 16
    max_steps: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, tolerance=self.tolerance)
        require_at_least(1, steps=self.steps)
        self.passes = 3 * self.steps + 2  # at least
        require_at_least(self.steps, max_steps=self.max_steps)

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        scores = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
        errors, steps = scores.new_zeros(len(scores)), scores.new_zeros(len(scores))
        tokens = TOKENS.of(scores)
        for part, _, rows, items in text_blocks(batch, output, tokens):
            start, end = replaced_embeddings(model, part, self.baseline), model.embed(part).detach()
            text = texts_of_rows(output.rows[rows])
            line = EmbeddingLine(model, part, start, end - start, target[rows], text, tokens)
            mask = output.mask[rows, :items]
            scores[rows, :items], errors[rows], number = self._integral(line, mask)
            steps[rows] = number.double() * self.steps
        incomplete = (errors > self.tolerance).double()
        return scores, {"completeness_error": errors, "steps": steps, "incomplete": incomplete}

    def _integral(self, line: EmbeddingLine, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (R, N), completeness errors (R,) and numbers of parts (R,) of all rows.

        Parts of lines are in step with each other: their rows (Q,), their ends (Q, 2) as shares of
        the line, the log odds there (Q, 2), and their sums (Q, N).
        """
        row = torch.arange(len(mask), device=mask.device)
        ends = mask.new_tensor([0, 1], dtype=torch.float64).repeat(len(row), 1)
        odds = torch.stack([line.odds(row, place) for place in ends.unbind(-1)], -1)
        wanted = odds[:, 1] - odds[:, 0]
        scale = wanted.abs().clamp(min=_SMALLEST)
        sums = line.integrals(row, ends, self.steps)
        while True:
            missing = sums.masked_fill(~mask[row], 0.0).sum(-1) - (odds[:, 1] - odds[:, 0])
            error = torch.zeros_like(wanted).index_add(0, row, missing).abs() / scale
            number = torch.bincount(row, minlength=len(mask))
            free = (self.max_steps // self.steps - number).masked_fill(error <= self.tolerance, 0)
            # Of parts that are off by less than an even share, the sum could not be off as it is.
            off = missing.abs() >= (self.tolerance * scale / number)[row]
            furthest = missing.abs().argsort(descending=True, stable=True)
            furthest = furthest[off[furthest]]
            furthest = furthest[row[furthest].argsort(stable=True)]
            ordered = row[furthest]
            rank = torch.arange(len(ordered), device=row.device) - torch.searchsorted(
                ordered, ordered
            )
            halved = furthest[rank < free[ordered]]
            if not len(halved):
                return sums.new_zeros(mask.shape).index_add(0, row, sums), error, number
            middle = ends[halved].mean(-1)
            at_middle = line.odds(row[halved], middle)
            kept = torch.ones_like(row, dtype=torch.bool).index_fill(0, halved, value=False)
            halves, of_halves = (
                torch.cat(
                    [
                        torch.stack([values[halved, 0], new], -1),
                        torch.stack([new, values[halved, 1]], -1),
                    ]
                )
                for values, new in ((ends, middle), (odds, at_middle))
            )
            new_row = row[halved].repeat(2)
            sums = torch.cat([sums[kept], line.integrals(new_row, halves, self.steps)])
            row = torch.cat([row[kept], new_row])
            ends, odds = torch.cat([ends[kept], halves]), torch.cat([odds[kept], of_halves])

"""Integrated gradients (Sundararajan, Taly and Yan, 2017), to a given completeness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import require_at_least
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.attribution.removal import Token, replaced_embeddings
from attnlight.functional.attribution.row_gradients import (
    ACCELERATOR_TOKENS,
    CPU_TOKENS,
    row_gradients,
    text_blocks,
)
from attnlight.functional.readout.instances import texts_of_rows

# Differences of log odds below this count as this: the error is relative to the difference.
_SMALLEST = 0.1


@dataclass
class IntegratedGradients(Attribution):
    """Gradient of the log odds averaged on the line from a baseline, times the way from there.

    The scores of a row should sum to its log odds minus those of the baseline, where all words are
    replaced and the rest of the text stays. The integral is taken at Gauss-Legendre nodes, whose
    number is doubled for the rows where that sum is not yet right. Columns: `completeness_error`,
    the error of the sum divided by the difference, or by 0.1 if that is larger; `steps`, the number
    of nodes; and `incomplete`, 1 where the error still exceeds the tolerance.

    Args:
        baseline: What replaces the words, see `replaced_embeddings`.
        tolerance: Largest completeness error.
        steps: Nodes at first.
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
        require_at_least(self.steps, max_steps=self.max_steps)

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        scores = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
        errors, steps = scores.new_zeros(len(scores)), scores.new_zeros(len(scores))
        tokens = CPU_TOKENS if scores.device.type == "cpu" else ACCELERATOR_TOKENS
        for part, _, rows, items in text_blocks(batch, output, tokens):
            mask, number = output.mask[rows, :items], self.steps
            start, end = replaced_embeddings(model, part, self.baseline), model.embed(part).detach()
            with torch.no_grad():
                odds = [
                    log_odds(model(part, embeddings=values).logits, target[rows])
                    for values in (end, start)
                ]
            difference = odds[0] - odds[1]
            pending = torch.ones_like(rows, dtype=torch.bool)
            text = texts_of_rows(output.rows[rows])
            while pending.any() and number <= self.max_steps:
                texts = torch.unique(text[pending])
                own = torch.isin(text, texts)
                found = _integral(
                    model,
                    part.select(texts),
                    (start[texts], end[texts]),
                    target[rows][own],
                    number,
                    tokens,
                    pending[own],
                )
                chosen = rows[pending]
                scores[chosen, :items] = found[pending[own]]
                total = scores[chosen, :items].masked_fill(~mask[pending], 0.0).sum(-1)
                wanted = difference[pending]
                errors[chosen] = (total - wanted).abs() / wanted.abs().clamp(min=_SMALLEST)
                steps[chosen] = number
                pending = torch.zeros_like(pending).masked_scatter(
                    pending, errors[chosen] > self.tolerance
                )
                number *= 2
        incomplete = (errors > self.tolerance).double()
        return scores, {"completeness_error": errors, "steps": steps, "incomplete": incomplete}


def _integral(
    model: AttentionModel,
    batch: TextBatch,
    ends: tuple[Tensor, Tensor],
    target: Tensor,
    steps: int,
    tokens: int,
    wanted: Tensor,
) -> Tensor:
    """Integrated gradients (R, N) float64 of the wanted rows (R,) at so many nodes.

    As many nodes are computed together as fit in `tokens` tokens, at least one.
    """
    nodes, weights = (
        torch.from_numpy(values / 2).to(target.device)
        for values in np.polynomial.legendre.leggauss(steps)
    )
    start, end = ends
    way, texts = end - start, torch.arange(len(batch), device=target.device)
    size, scores = max(1, tokens // max(batch.mask.numel(), 1)), torch.zeros(())
    for node, weight in zip(torch.split(nodes, size), torch.split(weights, size), strict=True):
        count = len(node)
        at = torch.cat([start + way * (0.5 + float(place)) for place in node])
        ways = way.repeat(count, *[1] * (way.ndim - 1))
        # The copies of a text are never rows of one text: positions start again.
        found = row_gradients(
            model,
            batch.select(texts.repeat(count)),
            at,
            target.repeat(count),
            lambda gradient, _, ways=ways: (gradient * ways).sum(-1, dtype=torch.float64),  # type: ignore[misc]
            wanted=wanted.repeat(count),
        )
        scores = scores.to(found) + torch.einsum(
            "k,krn->rn", weight, found.view(count, -1, found.shape[-1])
        )
    return scores

"""Sizes of gradients: how much the prediction moves with each item's embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation, sum_over_words, text_blocks
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.instances import texts_of_rows

# Tokens, with padding, whose gradients are taken together.
CPU_TOKENS, ACCELERATOR_TOKENS = 1 << 12, 1 << 16
# From gradients and embeddings (B, ..., E) to scores of tokens (B, ...).
Score = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Gradient(Attribution):
    """L2 norm of the gradient of the log odds by each item's embedding (Simonyan et al., 2014)."""

    name = "gradient"
    signed = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        scores = gradient_scores(
            model, batch, output, target, lambda gradient, _: gradient.double().norm(dim=-1)
        )
        return scores, {}


def gradient_scores(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    target: Tensor,
    score: Score,
    detached: bool = False,
) -> Tensor:
    """Scores of items (R, N) float64 from gradients of the log odds, block by block.

    Args:
        model: The model, in evaluation mode.
        batch: B texts of N items.
        output: The model's output for them.
        target: Class of each row, (R,) long.
        score: From gradients and embeddings to scores of tokens.
        detached: Hold the last layer's attention fixed.
    """
    scores = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
    tokens = CPU_TOKENS if output.mask.device.type == "cpu" else ACCELERATOR_TOKENS
    for part, _, rows, items in text_blocks(batch, output, tokens):
        weights = output.weights[rows, :, :items].detach() if detached else None
        embeddings = model.embed(part).detach()
        own = target[rows]
        scores[rows, :items] = row_gradients(model, part, embeddings, own, score, weights)
    return scores


def row_gradients(
    model: AttentionModel,
    batch: TextBatch,
    embeddings: Tensor,
    target: Tensor,
    score: Score,
    weights: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Tensor:
    """Scores of items (R, N) float64 from the gradient of each row's log odds.

    Texts are independent: one backward pass serves one row of each.

    Args:
        model: The model, in evaluation mode.
        batch: B texts of N items.
        embeddings: Embeddings at which the gradient is taken, (B, N, E) or (B, S, N, E).
        target: Class of each row, (R,) long.
        score: From gradients and `embeddings` to scores of tokens.
        weights: Attention (R, H, N) that is held fixed in place of the model's.
        wanted: Rows to compute, (R,) bool; the others are 0. None: all.
    """
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = embeddings.detach().requires_grad_()
        output = model(batch, weights=weights, embeddings=embeddings)
        odds = log_odds(output.logits, target)
    text = texts_of_rows(output.rows)
    chosen = torch.arange(len(text), device=text.device)
    if wanted is not None:
        chosen = chosen[wanted]
    own = text[chosen]
    slot = torch.arange(len(own), device=text.device) - torch.searchsorted(own, own)
    at = embeddings.detach()
    scores = odds.new_zeros(len(text), output.mask.shape[1])
    slots = int(slot.max()) + 1 if len(slot) else 0
    for number in range(slots):
        rows = chosen[slot == number]
        one_each = torch.zeros_like(odds).index_fill(0, rows, 1.0)
        (gradient,) = torch.autograd.grad(
            odds, embeddings, one_each, retain_graph=number < slots - 1
        )
        scores[rows] = sum_over_words(score(gradient, at), batch).double()[text[rows]]
    return scores

"""Gradient times input: the first-order effect of each item's embedding on the prediction."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.attribution.leave_one_out import blocks, last_places
from attnlight.functional.masking import allowed_classes
from attnlight.functional.readout.instances import (
    require_rows_of_tokens,
    rows_are_texts,
    texts_of_rows,
)

# Tokens, with padding, whose gradients are taken together: larger blocks are no faster on a CPU.
_CPU_TOKENS, _ACCELERATOR_TOKENS = 1 << 10, 1 << 16


def input_gradient(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, *, detached: bool = True
) -> Tensor:
    """Gradient times embedding of each item, summed over class probabilities.

    Jain and Wallace (2019), section 4.1: the absolute value of `sum over e of dp_c / dE_e E_e`,
    summed over classes c. Here it is divided by the total probability s of all classes but the
    winner, which is constant over the items of a text: probability gradients vanish for nearly
    certain predictions, whereas log-odds gradients still rank items. With q_c = p_c / s and D_c the
    gradient times embedding of the logit of class c minus the winner's, the result is
    `(1 - s) |sum q_c D_c| + sum q_c |D_c - s sum q_k D_k|`, summed over all classes but the
    winner. For two classes this is 2 (1 - s) |D|, from one backward pass; C classes take C - 1.

    Where rows are tokens or sentences the result is |D|, the gradient times embedding of the log
    odds of the row's predicted class: it equals that of this class's probability up to a factor
    that is constant over the items of a row. One backward pass serves one row of each text.

    For an item that is a sentence the products are summed over its words, boundary tokens excluded,
    before absolute values are taken.

    Args:
        model: The model, in evaluation mode.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: The model's output for the batch, one row per text or per token.
        detached: Hold attention fixed (the last layer's, if there are several), as published;
            otherwise the gradient flows through it too.

    Returns:
        (R, N) float64; 0 off the mask and where only one class is allowed, NaN where a logit is NaN
        or the largest is infinite.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    fixed = ~output.mask | (allowed_classes(output.logits).sum(-1, keepdim=True) < 2)
    if not rows_are_texts(batch, output):
        return _token_gradients(model, batch, output, detached).masked_fill(fixed, 0.0)
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = model.embed(batch).detach().requires_grad_()
        weights = output.weights.detach() if detached else None
        logits = model(batch, weights=weights, embeddings=embeddings).logits
        classes, winner = logits.shape[1], logits.argmax(-1, keepdim=True)
        others = (winner + torch.arange(1, classes, device=logits.device)) % classes
        leads = (logits.gather(1, others) - logits.gather(1, winner)).sum(0)
        products = []
        for place, lead in enumerate(leads):
            retain = place < classes - 2
            (gradient,) = torch.autograd.grad(lead, embeddings, retain_graph=retain)
            products.append((gradient * embeddings).detach().double().sum(-1))
    effects = torch.stack(products)  # D_c: (C - 1, B, N), or (C - 1, B, S, N)
    if effects.ndim == 4:
        effects = effects.masked_fill(~batch.attendable(), 0.0).sum(-1)
    logits = logits.detach().double()
    rival_probabilities = logits.gather(1, others).softmax(-1).T.unsqueeze(-1)  # (C - 1, B, 1)
    rival_mass = logits.softmax(-1).gather(1, others).sum(-1)[:, None]
    mean = (rival_probabilities * effects).sum(0)
    spread = (rival_probabilities * (effects - rival_mass * mean).abs()).sum(0)
    return ((1 - rival_mass) * mean.abs() + spread).masked_fill(fixed, 0.0)


def _token_gradients(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, detached: bool
) -> Tensor:
    """Importance (R, N) of items to rows that are tokens, by blocks of texts of similar length."""
    text = require_rows_of_tokens(batch, output)
    text_mask = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    ends = last_places(text_mask) + 1
    order = ends.argsort(stable=True)
    importance = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
    tokens = _CPU_TOKENS if output.mask.device.type == "cpu" else _ACCELERATOR_TOKENS
    budget = tokens * text_mask.numel() // max(batch.mask.numel(), 1)
    for block in blocks(ends[order].tolist(), budget):
        texts = order[block].sort().values
        rows, items = torch.isin(text, texts).nonzero().squeeze(-1), int(ends[texts].max())
        # Without the padding that only longer texts need.
        part = batch.select(texts).trim(items)
        weights = output.weights[rows, :, :items].detach() if detached else None
        importance[rows, :items] = _log_odds_effects(model, part, weights).abs()
    return importance


def _log_odds_effects(model: AttentionModel, batch: TextBatch, weights: Tensor | None) -> Tensor:
    """Gradient times embedding of the log odds of each token's predicted class, (R, N) float64."""
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = model.embed(batch).detach().requires_grad_()
        output = model(batch, weights=weights, embeddings=embeddings)
        winner = output.logits.argmax(-1, keepdim=True)
        others = output.logits.scatter(-1, winner, -torch.inf).logsumexp(-1)
        odds = output.logits.gather(-1, winner).squeeze(-1) - others
    text = texts_of_rows(output.rows)
    first = torch.searchsorted(text, text)
    slot = torch.arange(len(text), device=text.device) - first
    effects = embeddings.new_zeros(len(text), embeddings.shape[1], dtype=torch.float64)
    for number in range(int(slot.max()) + 1 if len(slot) else 0):
        # Texts are independent: one backward pass serves one token of each.
        rows = (slot == number).nonzero().squeeze(-1)
        chosen = torch.zeros_like(odds).index_fill(0, rows, 1.0)
        (gradient,) = torch.autograd.grad(odds, embeddings, chosen, retain_graph=True)
        effect = (gradient * embeddings).detach().double().sum(-1)
        if effect.ndim == 3:
            effect = effect.masked_fill(~batch.attendable(), 0.0).sum(-1)
        effects[rows] = effect[text[rows]]
    return effects

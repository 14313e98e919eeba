"""Gradient times input: the first-order effect of each item's embedding on the prediction."""

from typing import Literal

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.masking import allowed_classes
from attnlight.functional.readout.instances import rows_are_texts
from attnlight.probing.row_gradients import gradient_scores


def input_gradient(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    *,
    detached: bool = True,
    classes: Literal["all", "predicted"] = "all",
) -> Tensor:
    """Gradient times embedding of each item, summed over class probabilities.

    Jain and Wallace (2019), section 4.1: the absolute value of `sum over e of dp_c / dE_e E_e`,
    summed over classes c. Here it is divided by the total probability s of all classes but the
    winner, which is constant over the items of a text: probability gradients vanish for nearly
    certain predictions, whereas log-odds gradients still rank items. With q_c = p_c / s and D_c the
    gradient times embedding of the logit of class c minus the winner's, the result is
    `(1 - s) |sum q_c D_c| + sum q_c |D_c - s sum q_k D_k|`, summed over all classes but the
    winner. For two classes this is 2 (1 - s) |D|, from one backward pass; C classes take C - 1.

    Where rows are tokens or sentences, or with `predicted`, the result is |D|, the gradient times
    embedding of the log odds of the row's predicted class: it equals that of this class's probability up
    to a factor that is constant over the items of a row. One backward pass serves one row of each text.

    For an item that is a sentence the products are summed over its words, boundary tokens excluded,
    before absolute values are taken.

    Args:
        model: The model, in evaluation mode.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: The model's output for the batch, one row per text or per token.
        detached: Hold attention fixed (the last layer's, if there are several), as published;
            otherwise the gradient flows through it too.
        classes: Sum over all classes, as published, or explain the log odds of the predicted one, in
            one backward pass.

    Returns:
        (R, N) float64; 0 off the mask and where only one class is allowed, NaN where a logit is NaN
        or the largest is infinite.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    fixed = ~output.mask | (allowed_classes(output.logits).sum(-1, keepdim=True) < 2)
    if classes == "predicted" or not rows_are_texts(batch, output):
        winner = output.logits.argmax(-1)
        effects = gradient_scores(model, batch, output, winner, detached=detached)
        return effects.abs().masked_fill(fixed, 0.0)
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = model.embed(batch).detach().requires_grad_()
        weights = output.weights.detach() if detached else None
        logits = model(batch, weights=weights, embeddings=embeddings).logits
        count, winner = logits.shape[1], logits.argmax(-1, keepdim=True)
        others = (winner + torch.arange(1, count, device=logits.device)) % count
        leads = (logits.gather(1, others) - logits.gather(1, winner)).sum(0)
        products = []
        for place, lead in enumerate(leads):
            retain = place < count - 2
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

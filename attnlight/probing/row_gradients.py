"""Gradients of each row's log odds, where rows are texts or tokens of texts."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional._cpu import Budget, blocks
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.instances import (
    require_rows_of_tokens,
    rows_are_texts,
    texts_of_rows,
)
from attnlight.probing.leave_one_out import last_places

# Tokens, with padding, whose gradients are taken together: larger blocks are no faster on a CPU, and
# of smaller ones, of a few long texts, each step of a recurrent network costs more a text.
TOKENS = Budget(1 << 11, 1 << 16)
# From gradients and embeddings (B, ..., E) to scores of tokens (B, ...).
Score = Callable[[Tensor, Tensor], Tensor]


def text_of_rows(batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Place in the batch of each row's text, (R,); rows are texts, or tokens of each.

    Raises:
        InputError: They are neither.
    """
    if rows_are_texts(batch, output):
        return torch.arange(len(batch), device=batch.index.device)
    return require_rows_of_tokens(batch, output)


def text_blocks(
    batch: TextBatch, output: AttentionOutput, tokens: int
) -> Iterator[tuple[TextBatch, Tensor, Tensor, int]]:
    """All texts of a batch by blocks of similar length, of at most so many tokens or of one text.

    Yields:
        The n texts without the padding that only longer ones need; their places in the batch, (n,)
        long; places of their rows in the output, (r,) long, ascending; the most items of a text.
    """
    text = text_of_rows(batch, output)
    text_mask = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    ends = last_places(text_mask) + 1
    order = ends.argsort(stable=True)
    budget = tokens * text_mask.numel() // max(batch.mask.numel(), 1)
    lengths = ends[order].tolist()
    for block in blocks(lengths, budget):
        items = lengths[block.stop - 1]
        if block.stop - block.start == len(batch):
            every = torch.arange(max(len(batch), len(text)), device=text.device)
            yield batch.trim(items), every[: len(batch)], every[: len(text)], items
            return
        texts = order[block].sort().values
        rows = torch.isin(text, texts).nonzero().squeeze(-1)
        yield batch.select(texts).trim(items), texts, rows, items


def product(gradient: Tensor, embeddings: Tensor) -> Tensor:
    """Gradient times embedding of each token, float64."""
    return (gradient * embeddings).sum(-1, dtype=torch.float64)


def gradient_scores(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    target: Tensor,
    score: Score = product,
    detached: bool = False,
) -> Tensor:
    """Scores of items (R, N) float64 from gradients of the log odds, block by block.

    Arguments are those of `row_gradients`; `detached` holds the last layer's attention fixed.
    """
    scores = output.logits.new_zeros(output.mask.shape, dtype=torch.float64)
    for part, _, rows, items in text_blocks(batch, output, TOKENS.of(output.mask)):
        weights = output.weights[rows, :, :items].detach() if detached else None
        at, own = model.embed(part).detach(), target[rows]
        scores[rows, :items] = row_gradients(model, part, at, own, score, weights)
    return scores


def counted_tokens(batch: TextBatch) -> Tensor:
    """Tokens whose scores count for their item, shape of the mask.

    Boundary tokens do not count among the tokens of an item that has others.
    """
    if batch.mask.ndim == 2:
        return torch.ones_like(batch.mask)
    inner = batch.attendable()
    return inner | (batch.mask & ~inner.any(-1, keepdim=True))


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
        wanted: Numbers of the rows to compute, ascending; the others are 0. None: all.
    """
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = embeddings.detach().requires_grad_()
        output = model(batch, weights=weights, embeddings=embeddings)
        odds = log_odds(output.logits, target)
    text = texts_of_rows(output.rows)
    chosen = torch.arange(len(text), device=text.device) if wanted is None else wanted
    own = text[chosen]
    slot = torch.arange(len(own), device=text.device) - torch.searchsorted(own, own)
    at = embeddings.detach()
    scores = odds.new_zeros(len(text), output.mask.shape[1])
    counted = counted_tokens(batch)
    alone = len(text) == len(batch)  # each text has one row
    slots = (1 if alone else int(slot.max()) + 1) if len(slot) else 0
    for number in range(slots):
        rows = chosen if alone else chosen[slot == number]
        one_each = torch.zeros_like(odds).index_fill(0, rows, 1.0)
        (gradient,) = torch.autograd.grad(
            odds, embeddings, one_each, retain_graph=number < slots - 1
        )
        found = score(gradient, at)
        found = found if found.ndim == 2 else found.masked_fill(~counted, 0.0).sum(-1)
        scores[rows] = found.double()[text[rows]]
    return scores

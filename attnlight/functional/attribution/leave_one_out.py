"""Leave-one-out: what a model predicts after an item is deleted and the rest is encoded anew."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.readout.instances import require_rows_of_tokens, rows_are_texts

# Tokens encoded at once where the caller does not say: some hundred megabytes of activations on a
# CPU, where more is not faster; enough to fill an accelerator.
_CPU_TOKENS, _ACCELERATOR_TOKENS = 1 << 14, 1 << 18


def leave_one_out(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, budget: int | None = None
) -> Tensor:
    """How far the prediction moves when each item is deleted.

    Total variation distance between the predictions with and without the item, the text encoded
    and attended to anew. For two classes that is the absolute difference of probability of Jain and
    Wallace (2019), section 4.1; for C classes C / 2 times their mean over classes. It keeps its
    digits where a prediction is nearly certain.

    Args:
        model: The model, in evaluation mode. Where it has a method `leave_one_out(batch, output,
            budget)` that gives the logits (R, N, C) of the shortened texts, that is used.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: What the model said of them: one row per text, or one per token, for all of which a
            deletion is encoded once.
        budget: Tokens encoded at once, at least one text; None suits the device. It bounds memory
            and changes no result.

    Returns:
        (R, N) float64; 0 off the mask, NaN for the item of a text that has no other, and for the
        token that a row is itself: without it there is no prediction to compare.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    with torch.no_grad():
        logits = left_out_logits(model, batch, output, budget)
        # Not those of `output`: under autocast they are of another precision.
        moved = prediction_change(logits, model(batch).logits)
    return moved.masked_fill(~output.mask, 0.0)


@torch.no_grad()
def left_out_logits(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, budget: int | None = None
) -> Tensor:
    """Logits (R, N, C) after each item is deleted; NaN off the mask and where no row is left.

    The arguments and errors of `leave_one_out`.
    """
    if budget is None:
        on_cpu = output.mask.device.type == "cpu"
        budget = _CPU_TOKENS if on_cpu else _ACCELERATOR_TOKENS
    faster = getattr(model, "leave_one_out", None)
    if faster is None:
        return reencode(model, batch, output, budget)
    logits: Tensor = faster(batch, output, budget)
    return logits


def prediction_change(logits: Tensor, own: Tensor) -> Tensor:
    """Total variation distance of other predictions from one, with all its digits.

    The winning class's probability moves by what the others gain or lose, and is not subtracted
    from one that is nearly 1 itself.

    Args:
        logits: Of K other predictions, (R, K, C).
        own: (R, C).

    Returns:
        (R, K) float64, NaN where a logit is.
    """
    change = logits.double().softmax(-1) - own.double().softmax(-1).unsqueeze(1)
    winner = own.argmax(-1)[:, None, None].expand(*change.shape[:-1], 1)
    change = change.scatter(-1, winner, 0.0)
    return (change.abs().sum(-1) + change.sum(-1).abs()) / 2


def reencode(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, budget: int
) -> Tensor:
    """Logits after each item is deleted, from the shortened texts themselves.

    Texts of like length are encoded together, whichever row of the batch they come from, and a
    shortened text once for all rows that are left of it.

    Args:
        model: Any model of one row per text, or per token.
        batch: B texts of N items.
        output: What the model said of them; its mask says what may be deleted.
        budget: Tokens encoded at once, at least one text.

    Returns:
        (R, N, C); NaN off the mask, where nothing is left and for the token that a row is itself.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    logits = output.logits.new_full((*output.mask.shape, output.logits.shape[-1]), torch.nan)
    seen = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    ends = last_places(seen) + 1
    tokens = batch.mask[0, 0].numel() if len(batch) and batch.mask.ndim > 2 else 1
    whole, items = rows_are_texts(batch, output), output.mask
    if not whole:
        text, position = require_rows_of_tokens(batch, output), output.rows[:, 1]
        row_at = position.new_zeros(seen.shape)
        row_at[text, position] = torch.arange(len(text), device=text.device)
        is_row = torch.zeros_like(seen).index_put((text, position), seen.new_ones(()))
        alone = is_row & (is_row.sum(-1, keepdim=True) == 1)
        items = torch.zeros_like(seen).index_copy(0, text, output.mask)
    for texts, places in deletions(items, ends, budget // tokens):
        if not whole:  # without its only row a text has no prediction to compare
            texts, places = (found[~alone[texts, places]] for found in (texts, places))
        if not len(texts):
            continue
        shortened = without(batch, texts, places, int(ends[texts].max()))
        left = model(shortened).logits.to(logits.dtype)
        rows = texts
        if not whole:
            # Not from the rows of the shortened: of neighbours, which may be one text, a single row
            # at different places does not tell.
            short, place = is_row[texts].nonzero().unbind(-1)
            short, place = (found[place != places[short]] for found in (short, place))
            rows, places = row_at[texts[short], place], places[short]
        logits[rows, places] = left
    return logits


def last_places(mask: Tensor) -> Tensor:
    """Place of the last item of each row of a mask (B, N), -1 where there is none."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * places).amax(-1) - 1


def deletions(mask: Tensor, ends: Tensor, budget: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of texts (r,) and of the items (r,) to delete from them, texts of like length together.

    A text with a single item is left out: nothing would be left of it.

    Args:
        mask: Items that may be deleted, (B, N) bool.
        ends: Length of each text, (B,).
        budget: Items of a block, r times its longest text; a block has one text at least.
    """
    texts, places = (mask & (mask.sum(-1, keepdim=True) > 1)).nonzero().unbind(-1)
    order = ends[texts].argsort(stable=True)
    texts, places = texts[order], places[order]
    for block in blocks(ends[texts].tolist(), budget):
        yield texts[block], places[block]


def blocks(lengths: list[int], budget: int) -> Iterator[slice]:
    """Cut ascending lengths into runs whose number times last length is at most the budget, or 1."""
    start = 0
    for place, length in enumerate(lengths):
        if place > start and (place + 1 - start) * length > budget:
            yield slice(start, place)
            start = place
    if lengths:
        yield slice(start, len(lengths))


def without(batch: TextBatch, texts: Tensor, places: Tensor, items: int) -> TextBatch:
    """A batch of r texts, each without one of its items.

    Args:
        batch: B texts.
        texts: Which texts, (r,); a text may come several times.
        places: The item to delete from each, (r,).
        items: How many items of the batch to keep, the deleted one included: its longest text.

    Returns:
        The shortened texts, unlabelled, of `items` - 1 items.
    """
    kept = torch.arange(items - 1, device=places.device)
    kept = kept + (kept >= places[:, None])
    place = texts[:, None], kept
    return TextBatch(
        index=batch.index[texts],
        tokens=batch.tokens[place],
        mask=batch.mask[place],
        query=None if batch.query is None else batch.query[texts],
        query_mask=None if batch.query_mask is None else batch.query_mask[texts],
        extras={name: values[place] for name, values in batch.extras.items()},
    )

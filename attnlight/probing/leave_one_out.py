"""Leave-one-out: predictions after an item is deleted and the remaining text is re-encoded."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, HasLeaveOneOut, TextBatch
from attnlight.functional._cpu import Budget, blocks
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.instances import require_rows_of_tokens, rows_are_texts
from attnlight.probing.removal import take_items
from attnlight.probing.shared_results import shared

# Default number of tokens encoded at once: some hundred megabytes of activations on a CPU, where
# larger batches are not faster; enough to fill an accelerator.
TOKENS = Budget(1 << 14, 1 << 18)
_LOGITS = 1 << 11  # that count as much as a token
_ROUNDING = 8  # units in the last place of a logit


def leave_one_out(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    budget: int | None = None,
    only: Tensor | None = None,
) -> Tensor:
    """Total variation distance between the predictions with and without each item.

    The shortened text is re-encoded and attention recomputed. For two classes the distance is the
    absolute difference of probability of Jain and Wallace (2019), section 4.1; for C classes it is
    C / 2 times their mean over classes. It is accurate where a prediction is nearly certain.

    Args:
        model: The model, in evaluation mode. Where it has a method `leave_one_out(batch, output,
            budget)` that gives the logits (R, N, C) of the shortened texts, that is used.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: The model's output for the batch: one row per text, or one per token; the rows of a
            text share the encoding of each deletion.
        budget: Tokens encoded at once, at least one text; None chooses by device. It bounds memory
            and does not affect results.
        only: The items (R, N) bool that are deleted, where rows are texts; None: all.

    Returns:
        (R, N) float64; 0 off the mask, NaN for the only item of a text and for the token that the
        row itself is: deleting it leaves no prediction to compare. NaN for items not in `only`.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each.
    """
    with torch.no_grad():
        logits = left_out_logits(model, batch, output, budget, only)
        complete = complete_logits(model, batch, output)
        change = prediction_change(logits, complete)
    return _beyond_rounding(change, logits, complete).masked_fill(~output.mask, 0.0)


def tokens_at_once(output: AttentionOutput, budget: int | None) -> int:
    """The budget, or the default number of tokens that are encoded at once on an output's device."""
    return budget or TOKENS.of(output.mask)


def text_costs(lengths: Tensor, rows: Tensor, output: AttentionOutput) -> Tensor:
    """What texts (r,) take of a budget: their `lengths` in tokens, or the logits of their `rows`, if more."""
    return torch.maximum(lengths, rows * output.logits.shape[-1] // _LOGITS)


def deletion_effects(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    target: Tensor,
    budget: int | None = None,
    only: Tensor | None = None,
) -> Tensor:
    """Decrease of the log odds of each row's `target` (R,) when an item is deleted, (R, N) float64.

    NaN as of `leave_one_out`; of no meaning where the target is the only allowed class. Other arguments
    and errors are those of `leave_one_out`.
    """
    logits = left_out_logits(model, batch, output, budget, only)
    complete = complete_logits(model, batch, output)
    effects = log_odds(complete, target).unsqueeze(-1) - log_odds(logits, target)
    return _beyond_rounding(effects, logits, complete)


def _beyond_rounding(change: Tensor, logits: Tensor, complete: Tensor) -> Tensor:
    """The change (R, N), 0 in rows where no logit of a shortened text moves by more than rounding does.

    Ranks of rounding errors would depend on the batch. `logits` are (R, N, C), those of the complete
    texts (R, C).
    """
    unit = torch.finfo(torch.promote_types(logits.dtype, torch.float32)).eps
    complete = complete.unsqueeze(1)
    moved = (logits - complete).abs() > _ROUNDING * unit * complete.abs().clamp(min=1)
    return change.masked_fill(~moved.flatten(1).any(-1, keepdim=True) & ~change.isnan(), 0.0)


@shared
@torch.no_grad()
def left_out_logits(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    budget: int | None = None,
    only: Tensor | None = None,
) -> Tensor:
    """Logits (R, N, C) after each item is deleted; NaN off the mask and where no row remains.

    Tests of the same texts share one tensor, so do not write to it; with `only`, each call has its own.
    Arguments and errors are those of `leave_one_out`.
    """
    budget, chosen = tokens_at_once(output, budget), () if only is None else (only,)
    if isinstance(model, HasLeaveOneOut):
        logits = model.leave_one_out(batch, output, budget, *chosen)
    else:
        logits = reencode(model, batch, output, budget, *chosen)
    return logits if only is None else logits.masked_fill(~only.unsqueeze(-1), torch.nan)


@shared
@torch.no_grad()
def complete_logits(model: AttentionModel, batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Logits (R, C) of the complete texts, read again; those of `output`, except under autocast.

    There these have another precision than the logits of changed texts. Tests of the same texts
    share them: do not write to them.
    """
    return model(batch).logits


def prediction_change(logits: Tensor, original: Tensor) -> Tensor:
    """Total variation distance of K predictions from the original one, to full precision.

    The change of the winning class's probability is the negative sum of the other changes, which
    avoids subtracting two numbers that are both nearly 1.

    Args:
        logits: Logits of the K predictions, (R, K, C).
        original: Logits of the original prediction, (R, C).

    Returns:
        (R, K) float64, NaN where a logit is.
    """
    change = logits.double().softmax(-1) - original.double().softmax(-1).unsqueeze(1)
    winner = original.argmax(-1)[:, None, None].expand(*change.shape[:-1], 1)
    change = change.scatter(-1, winner, 0.0)
    return (change.abs().sum(-1) + change.sum(-1).abs()) / 2


def reencode(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    budget: int,
    only: Tensor | None = None,
) -> Tensor:
    """Logits after each item is deleted, by encoding every shortened text.

    Texts of similar length are encoded together, and each shortened text once for all its rows.
    Arguments and errors are those of `leave_one_out`.

    Returns:
        (R, N, C); NaN off the mask, where no item remains, and for the row's token itself.
    """
    logits = output.logits.new_full((*output.mask.shape, output.logits.shape[-1]), torch.nan)
    text_mask = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    ends = costs = last_places(text_mask) + 1
    tokens = batch.mask[0, 0].numel() if len(batch) and batch.mask.ndim > 2 else 1
    one_row_per_text, items = rows_are_texts(batch, output), output.mask
    of_items = batch.target is None and not one_row_per_text
    only = only if one_row_per_text else None
    if not one_row_per_text:
        text, position = require_rows_of_tokens(batch, output), output.rows[:, 1]
        grid = text_mask if batch.target is None else batch.target >= 0
        row_of_token = position.new_zeros(grid.shape)
        row_of_token[text, position] = torch.arange(len(text), device=text.device)
        is_row = torch.zeros_like(grid).index_put((text, position), grid.new_ones(()))
        only_row = is_row & (is_row.sum(-1, keepdim=True) == 1)
        items = torch.zeros_like(text_mask).index_copy(0, text, output.mask)
        costs = text_costs(ends, is_row.sum(-1), output)
    for texts, places, cost in deletions(items, costs, budget // tokens, only):
        if of_items:  # deleting its only row leaves a text without a prediction
            compared = ~only_row[texts, places]
            texts, places = texts[compared], places[compared]
        if not len(texts):
            continue
        longest = cost if one_row_per_text else text_mask.shape[1]
        at = torch.arange(longest - 1, device=ends.device)
        kept = at + (at >= places[:, None])
        shortened = take_items(batch, texts, kept, at < ends[texts, None] - 1)
        shortened_logits = model(shortened).logits.to(logits.dtype)
        rows = texts
        if not one_row_per_text:
            # Not derived from the rows of the shortened texts: neighbours may be copies of one
            # text, and one row each at different places does not separate them.
            shortened_row, place = is_row[texts].nonzero().unbind(-1)
            others = (place != places[shortened_row]) | (not of_items)
            shortened_row, place = shortened_row[others], place[others]
            rows, places = row_of_token[texts[shortened_row], place], places[shortened_row]
        logits[rows, places] = shortened_logits
    return logits


def last_places(mask: Tensor) -> Tensor:
    """Place of the last item of each row of a mask (B, N), -1 for an empty row."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(-1) - 1


def deletions(
    mask: Tensor, costs: Tensor, budget: int, only: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Blocks of texts (r,), of the items (r,) to delete from them, and the cost of the last text.

    They are sorted by the texts' costs.

    Items (B, N) bool may be deleted from texts of some `costs` (B,), such as their lengths. A text with a
    single item is skipped: deleting it would leave an empty text. If `only` (B, N) bool is given, no other
    items are deleted. A block has at least one text, else r times the cost of its last text is within
    the budget.
    """
    wanted = mask & (mask.sum(-1, keepdim=True) > 1)
    texts, places = (wanted if only is None else wanted & only).nonzero().unbind(-1)
    order = costs[texts].argsort(stable=True)
    texts, places = texts[order], places[order]
    sorted_costs = costs[texts].tolist()
    for block in blocks(sorted_costs, budget):
        yield texts[block], places[block], sorted_costs[block.stop - 1]

"""Predictions for texts in which items or the names of classes are swapped, or single edits are made."""

from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import AttentionModel, TextBatch
from attnlight.functional.alignment import align
from attnlight.probing.leave_one_out import TOKENS
from attnlight.probing.removal import take_items

# Block of each item of P texts (P, N) and of P others (P, M), long, -1 on padding; which are edits, (P, K).
Blocks = tuple[Tensor, Tensor, Tensor]


@torch.no_grad()
def swap_flips(
    model: AttentionModel, batch: TextBatch, evidence: Tensor, names: Tensor
) -> tuple[Tensor, Tensor]:
    """Share of swaps of class names that change the prediction, within and outside the evidence.

    The swappable classes of a text are those that it may be answered with and that its query does
    not name, S of them in a cycle by their numbers: swap k, from 1 to S - 1, replaces the name of a
    class by that of the k-th class after it. Names of other classes stay, since the query refers to
    them. Within the evidence only the names of the text's label are replaced, outside of it those
    of all swappable classes. Query and allowed classes stay.

    Each copy of a text is encoded again, at most as many at a time as `batch` has texts. A copy
    equal to its text is not encoded, and its prediction is unchanged.

    Args:
        model: A model of one row per text, in evaluation mode.
        batch: B labelled texts.
        evidence: Tokens of the evidence, bool, the shape of the tokens.
        names: Token id of each class's name, (C,) long, all different.

    Returns:
        Within and outside the evidence, each (B,) float64: NaN where the text has no label, fewer
        than two swappable classes, a label that is not swappable, or evidence that does not name it.
    """
    assert batch.labels is not None
    labels, classes = batch.labels, torch.arange(len(names), device=names.device)
    swappable = classes.new_ones(len(batch), len(names)).bool()
    if batch.allowed_classes is not None:
        swappable &= batch.allowed_classes
    if batch.query is not None:
        swappable &= (batch.query.unsqueeze(-1) != names).all(1)
    count = swappable.sum(-1)
    # Classes by their place in the cycle, and the place of each class.
    cycle = swappable.byte().sort(dim=-1, descending=True, stable=True).indices
    place = swappable.cumsum(-1) - 1

    # The class that each token names, -1 where it names none.
    ascending, by_name = names.sort()
    nearest = torch.searchsorted(ascending, batch.tokens.contiguous()).clamp(max=len(names) - 1)
    named = torch.where(ascending[nearest] == batch.tokens, by_name[nearest], -1)
    of_label = named.flatten(1) == labels.unsqueeze(-1)
    within = (of_label & (labels >= 0).unsqueeze(-1)).view_as(named) & evidence
    outside = (named >= 0) & ~evidence
    can_change = swappable.gather(1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    defined = can_change & (count > 1) & within.flatten(1).any(-1)

    before = model(batch).logits.argmax(-1)  # under autocast that of the output may be another
    flips = before.new_zeros(2, len(batch))
    for k in range(1, int(count.max())):
        shifted = cycle.gather(1, (place + k) % count.clamp(min=1).unsqueeze(-1))
        target = names[torch.where(swappable, shifted, classes)]
        renamed = target.gather(1, named.clamp(min=0).flatten(1)).view_as(named)
        for kind, places in enumerate((within, outside)):
            tokens = torch.where(places, renamed, batch.tokens)
            changed = (tokens != batch.tokens).flatten(1).any(-1) & defined & (k < count)
            if changed.any():
                after = model(replace(batch, tokens=tokens).select(changed)).logits.argmax(-1)
                flips[kind, changed] += after != before[changed]
    shares = flips.double() / (count - 1).clamp(min=1)
    return shares[0].masked_fill(~defined, torch.nan), shares[1].masked_fill(~defined, torch.nan)


@torch.no_grad()
def swap_logits(
    model: AttentionModel, batch: TextBatch, alternatives: Tensor, budget: int | None = None
) -> Tensor:
    """Logits after one item of a text is replaced by another, and the text encoded again.

    `alternatives` (B, N, K) long are the tokens that replace each in turn, negative where there is none;
    of texts in N sentences, (B, N, M, K), all those of a sentence replace its tokens at once. The model
    has one row per text; `budget` is that of `leave_one_out`.

    Returns:
        (B, N, K, C) float64, NaN where there is no alternative.
    """
    budget = TOKENS.of(batch.tokens) if budget is None else budget
    swaps = alternatives.view(*batch.tokens.shape[:2], -1, alternatives.shape[-1])
    text, place, kind = (swaps >= 0).any(2).nonzero().unbind(-1)
    size = max(1, budget // max(1, batch.tokens[:1].numel()))
    parts = []
    each = torch.arange(len(text), device=text.device)
    for part in torch.split(each, size) if len(text) else ():
        copies = batch.select(text[part])
        items, at = (
            copies.tokens.clone().view(len(part), *swaps.shape[1:3]),
            torch.arange(len(part)),
        )
        swapped = swaps[text[part], place[part], :, kind[part]]
        items[at, place[part]] = torch.where(swapped < 0, items[at, place[part]], swapped)
        parts.append(model(replace(copies, tokens=items.view_as(copies.tokens))).logits.double())
    classes = parts[0].shape[-1] if parts else 1
    logits = torch.full(
        (*swaps.shape[:2], swaps.shape[-1], classes), torch.nan, dtype=torch.float64
    )
    logits = logits.to(alternatives.device)
    if parts:
        logits[text, place, kind] = torch.cat(parts)
    return logits


def aligned_blocks(first: TextBatch, second: TextBatch) -> Blocks:
    """Blocks of P texts and of P others, by `align`; sentences are items as a whole."""
    pairs = zip(_items(first), _items(second), strict=True)
    found = [align(one, other) for one, other in pairs]
    sizes = first.tokens.shape[1], second.tokens.shape[1], max(len(x.edited) for x in found)
    one, other, edited = (
        torch.tensor([row + [-1] * (size - len(row)) for row in rows], device=first.tokens.device)
        for rows, size in zip(zip(*found, strict=True), sizes, strict=True)
    )
    return one, other, edited == 1


def item_blocks(first: TextBatch, second: TextBatch, edits: bool) -> tuple[Tensor, Tensor]:
    """Block of each item of P texts, (P, N), and of P others, (P, M), long, -1 on padding.

    Of edits they are those of `align`, else the numbers of the items.
    """
    masks = [x.mask if x.mask.ndim == 2 else x.mask.any(-1) for x in (first, second)]
    found = [(mask.cumsum(-1) - 1).clamp(min=0) for mask in masks]
    if edits:
        pairs = zip(aligned_blocks(first, second), found, strict=False)
        found = [blocks.gather(1, numbers) for blocks, numbers in pairs]
    one, two = (x.masked_fill(~mask, -1) for x, mask in zip(found, masks, strict=True))
    return one, two


def _items(batch: TextBatch) -> list[list[Hashable]]:
    """The items of each text: ids of a token, or of all tokens of a sentence."""
    texts = (batch.tokens * batch.mask).reshape(*batch.tokens.shape[:2], -1).tolist()
    return [[tuple(filter(None, item)) for item in text if any(item)] for text in texts]


@torch.no_grad()
def single_edit_logits(
    model: AttentionModel,
    batch: TextBatch,
    other: TextBatch,
    blocks: Blocks,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits (P, C) of texts, and after each of their edits alone, (P, K, C), float64.

    The latter are NaN for blocks that are no edits, and where no item would remain.

    Args:
        model: A model of one row per text, in evaluation mode.
        batch: P texts.
        other: The P texts that all edits would make of them.
        blocks: Block of each item of a text, of each item of the other, and which are edits, as of
            `aligned_blocks`.
        budget: Tokens encoded at once; None: chosen by device. It changes no result.
    """
    own, others, edited = blocks
    both, by_block = _beside(batch, other), torch.cat([own, others], dim=1)
    text, block = edited.nonzero().unbind(-1)
    of_block = by_block[text] == block[:, None]
    second = torch.arange(by_block.shape[1], device=own.device) >= own.shape[1]
    chosen = (by_block[text] >= 0) & (of_block == second)
    order = by_block[text].masked_fill(~chosen, edited.shape[1]).argsort(dim=1, stable=True)
    real = chosen.gather(1, order)
    attended = both.attendable().flatten(2).any(-1) if both.mask.ndim > 2 else both.attendable()
    remain = (attended[text] & chosen).any(-1).nonzero().squeeze(-1)
    budget = TOKENS.of(own) if budget is None else budget
    width = both.mask[0].numel()
    whole = model(batch).logits.double()  # under autocast those of an output have another precision
    logits = whole.new_full((*edited.shape, whole.shape[-1]), torch.nan)
    for part in torch.split(remain, max(1, budget // max(1, width))) if len(remain) else ():
        longest = int(real[part].sum(-1).max())
        copies = take_items(both, text[part], order[part, :longest], real[part, :longest])
        logits[text[part], block[part]] = model(copies).logits.double()
    return whole, logits


def _beside(first: TextBatch, second: TextBatch) -> TextBatch:
    """The first texts, followed in each by the items of the second one."""
    size = max(first.tokens.shape[-1], second.tokens.shape[-1])
    columns = [{"tokens": x.tokens, "mask": x.mask, **x.extras} for x in (first, second)]
    joined = {}
    for name, one in columns[0].items():
        parts = one, columns[1][name]
        wide = [pad(x, (0, size - x.shape[2])) if x.ndim > 2 else x for x in parts]
        joined[name] = torch.cat(wide, dim=1)
    return replace(first, tokens=joined.pop("tokens"), mask=joined.pop("mask"), extras=joined)

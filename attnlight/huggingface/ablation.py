"""Answers without some items of the context, and the attention of all layers to these."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from attnlight.batch import NOT_ALLOWED, TextBatch
from attnlight.errors import InputError
from attnlight.functional._cpu import blocks
from attnlight.huggingface.free_text import ANSWER
from attnlight.huggingface.last_layer import cut_cache
from attnlight.probing.context_ablation import Reading, Way
from attnlight.probing.layers import output_maps, value_norms
from attnlight.probing.leave_one_out import TOKENS


@torch.no_grad()
def ablated_logits(
    network: Any,  # noqa: ANN401
    batch: TextBatch,
    kept: Tensor,
    way: Way,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log probabilities of the answers where only some items of each context are left.

    The complete prompt is read once. What precedes the first item that is left out is read off its keys
    and values, and only what follows is computed for each set.

    Args:
        network: An `AnswerModel`, in evaluation mode.
        batch: B texts of S items.
        kept: Items that are left in K sets, (B, K, S) bool.
        way: `removed`: the prompt lacks their tokens, and later ones move up; `masked`: no later token
            attends to them, and all keep their positions; `hidden`: tokens after the context do not
            attend to them, while other tokens of the context do, which may have taken on what they say.
        budget: Tokens computed at once, at least one set; None: chosen by device. It changes no result.

    Returns:
        Logits (B, K, C) float64, and the tokens computed for each set as a share of the complete prompt,
        which is computed besides, (B, K).
    """
    budget = budget or TOKENS.of(kept)
    texts = (batch.select(torch.tensor([n], device=kept.device)) for n in range(len(batch)))
    found = [_of_text(network, one, own, way, budget) for one, own in zip(texts, kept, strict=True)]
    logits, shares = zip(*found, strict=True)
    return torch.stack(logits), torch.stack(shares)


def _of_text(
    network: Any,  # noqa: ANN401
    one: TextBatch,
    kept: Tensor,
    way: Way,
    budget: int,
) -> tuple[Tensor, Tensor]:
    """`ablated_logits` of one text and sets (K, S): (K, C) and (K,)."""
    flat, vectors, mask = network.prompts(one)
    length, at = mask.shape[1], torch.arange(mask.shape[1], device=mask.device)
    cache = network.last_layer.read_last(network.transformer, vectors, mask)[2]
    gone = ~kept.gather(1, flat.item.expand(len(kept), -1)) & flat.batch.mask
    cut = torch.where(gone, at, length - 1).amin(-1)
    if way == "hidden":
        last = int(torch.where(flat.batch.mask, at, -1).amax())
        cut = torch.full_like(cut, min(last + 1, length - 1))
    settings = network.transformer.config.get_text_config().to_dict()
    window = settings.get("sliding_window") is not None  # it counts tokens that are masked
    short = way == "removed" or (way == "masked" and not window)
    counts = ((~gone | (not short)) & (at >= cut[:, None])).sum(-1)
    logits = vectors.new_zeros(len(cut), len(network.classes), dtype=torch.float64)
    for start in sorted(set(cut.tolist())):
        sets = (cut == start).nonzero().flatten()
        sets = sets[counts[sets].argsort(stable=True)]
        lengths, most = counts[sets].tolist(), 1 if window else max(1, budget // length)
        for block in blocks(lengths, most * lengths[0], 9 / 8):  # at most an eighth is padding
            some = sets[block]
            read = ~gone[some, start:] | (not short)
            logits[some] = _after(network, one, vectors[0], cache, gone[some], read, way)
    return logits, counts.double() / length


def _after(
    network: Any,  # noqa: ANN401
    one: TextBatch,
    vectors: Tensor,
    cache: DynamicCache,
    gone: Tensor,
    read: Tensor,
    way: Way,
) -> Tensor:
    """Log probabilities of the answers (K, C) after the tokens of a prompt that are computed anew.

    Of the L tokens of the prompt `vectors` (L, E) are embeddings, `gone` (K, L) bool those that are
    left out, and `read` (K, L') bool which of the last ones are computed; what precedes is in the
    cache.
    """
    start, rows = gone.shape[1] - read.shape[1], read.int()
    longest = int(rows.sum(-1).amax())
    order = rows.sort(dim=1, stable=True).indices[:, -longest:] + start  # padding first
    seen = torch.cat([~gone[:, :start], ~gone.gather(1, order)], dim=1)
    places = (seen.cumsum(-1) - 1)[:, start:] if way == "removed" else order
    own = cut_cache(cache, start, len(gone))
    output = network.transformer(
        inputs_embeds=vectors[order],
        attention_mask=seen.long(),
        position_ids=places.clamp(min=0),
        past_key_values=own,
        use_cache=True,
        logits_to_keep=1,
    )
    allowed = one.allowed_classes
    allowed = None if allowed is None else allowed.expand(len(gone), -1)
    known = {name: part.expand(len(gone), *part.shape[1:]) for name, part in one.known.items()}
    rest = later_tokens(network, own, seen, places[:, -1] + 1, allowed, known.get(ANSWER))
    found: Tensor = network.answer_logits(output.logits[:, -1], rest, known).double()
    return found


def later_tokens(
    network: Any,  # noqa: ANN401
    cache: DynamicCache,
    mask: Tensor,
    places: Tensor,
    allowed: Tensor | None,
    free: Tensor | None = None,
) -> Tensor:
    """Log probability of each answer's tokens after the first, (B, C); `NOT_ALLOWED` for others.

    Args:
        network: The model.
        cache: Keys and values of the prompts, which stay as they are.
        mask: Real tokens of these, (B, L) bool.
        places: Position of the token after each prompt, (B,).
        allowed: Classes that each text may be answered with, (B, C) bool; None: all.
        free: The answers of `free_answers`, which are then the only ones, (B, A).
    """
    if not network.classes:
        raise InputError("the model has no answers: give `classes`, or rows with labels.")
    found, allowed = [], None if free is not None else allowed
    listed = (network.numbers[ids[ids >= 0]].expand(len(mask), -1) for ids in network.answers)
    for number, tokens in enumerate(listed if free is None else [free]):
        given, later = tokens[:, :-1].clamp(min=0), tokens[:, 1:]
        total = torch.zeros(len(mask), device=mask.device)
        if later.shape[1] and (allowed is None or allowed[:, number].any()):
            at = places[:, None] + torch.arange(given.shape[1], device=mask.device)
            seen = torch.cat([mask, torch.ones_like(given, dtype=torch.bool)], dim=1)
            options = {"attention_mask": seen.long(), "position_ids": at, "use_cache": True}
            copy = cut_cache(cache, mask.shape[1])
            logits = network.transformer(given, past_key_values=copy, **options).logits
            precise = torch.promote_types(logits.dtype, torch.float32)
            chosen = later.clamp(min=0).unsqueeze(-1)
            each = logits.to(precise).log_softmax(-1).gather(-1, chosen).squeeze(-1)
            total = (each * (later >= 0)).sum(1)
        found.append(total)
    rest = torch.stack(found, dim=1)
    return rest if allowed is None else rest.masked_fill(~allowed, NOT_ALLOWED)


@torch.no_grad()
def answer_attention(network: Any, batch: TextBatch, of: Reading) -> Tensor:  # noqa: ANN401
    """What the last token of a prompt takes from each item, (B, L, H, N) float64.

    Weights of one row of each layer and head, of which only these rows are in memory; the norms of what
    the row takes from each token, (B, L, 1, N); or the row of the rollout, (B, 1, 1, N).
    """
    flat, vectors, mask = network.prompts(batch)
    real = flat.batch.mask[:, None, None]
    if of == "rollout":
        _, found = network.last_layer.read(network.transformer, vectors, mask, every=True)
        shares = torch.zeros_like(mask, dtype=torch.float64)
        shares[:, -1] = 1.0
        for layer in sorted(found, reverse=True):
            matrix = found[layer].weights.double().mean(1)
            shares = (shares + torch.einsum("bq,bqn->bn", shares, matrix)) / 2
        rolled: Tensor = flat.sums(shares[:, None, None] * real)
        return rolled
    _, found, _ = network.last_layer.read_last(network.transformer, vectors, mask, every=True)
    layers = [found[layer] for layer in sorted(found)]
    if of == "attention":
        rows = torch.stack([one.weights[:, :, 0] for one in layers], dim=1).double()
    else:
        maps = output_maps(network, batch)
        rows = torch.stack([value_norms(*pair) for pair in zip(layers, maps, strict=True)], dim=1)
    found_sums: Tensor = flat.sums(rows * real)
    return found_sums


@torch.no_grad()
def copied_answers(network: Any, batch: TextBatch, answer: Tensor) -> Tensor:  # noqa: ANN401
    """Whether the largest weight of the last token is on the answer in the context, (B, L, H) float64.

    This is of the first token of the answer, a class (B,), by layer and head; NaN where no item has it.
    """
    flat, vectors, mask = network.prompts(batch)
    _, found, _ = network.last_layer.read_last(network.transformer, vectors, mask, every=True)
    largest = torch.stack([found[layer].weights[:, :, 0].argmax(-1) for layer in sorted(found)], 1)
    listed = batch.known.get(ANSWER)
    first = network.numbers[network.answers[answer]] if listed is None else listed
    copied = (network.numbers[flat.batch.tokens] == first[:, :1]) & flat.batch.mask
    hits = copied[torch.arange(len(batch), device=answer.device)[:, None, None], largest].double()
    shares: Tensor = hits.masked_fill(~copied.any(-1)[:, None, None], torch.nan)
    return shares

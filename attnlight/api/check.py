"""What a model promises by meeting `AttentionModel`, and whether it keeps it on a batch."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnlight.batch import PAD, AttentionModel, AttentionOutput, TextBatch
from attnlight.data.targets import IGNORED
from attnlight.errors import InputError, one_line
from attnlight.reference.trained import evaluating, network_of

_TOLERANCE = 1e-4  # relative to the largest value, at least 1; in single precision
_PADDING = 3


def check(model: Any, batch: TextBatch) -> list[str]:  # noqa: ANN401
    """Name the promises of `AttentionModel` that a model breaks on a batch, each in a sentence.

    Tests rely on them: shapes; weights that sum to 1 and are 0 off the mask; the same output in
    evaluation mode, in any order of texts and with any padding; the original weights and embeddings,
    given to the model, change nothing; the logits have a gradient with respect to these embeddings;
    `item_logits` add up to the logits; and `readout` gives the logits that the model gives with these
    weights, from the output alone.

    Args:
        model: The model, or a task that has it as `model`.
        batch: Some texts of different lengths, at least two; `load(...).encode([...])` makes one.

    Returns:
        Sentences, each of which begins with the name of the promise; none if all are kept. Where
        shapes are wrong, other promises are not checked.

    Raises:
        InputError: The model is not an `AttentionModel`, the batch no `TextBatch`, or a text has no token.
    """
    network = network_of(model)
    if not isinstance(batch, TextBatch):
        raise InputError(
            f"the batch is of type {type(batch).__name__}; expected a TextBatch, such as "
            "load(...).encode(['a film', 'dull'])."
        )
    require_tokens(batch)
    index = batch.index
    if len(torch.unique(index)) < len(index) or (index < 0).any():
        index = torch.arange(len(index))
    with evaluating(network) as device, torch.no_grad():
        texts = replace(batch, index=index, labels=None).to(device)
        try:
            output = network(texts)
            broken = list(_shapes(network, texts, output))
            return broken or list(_broken(network, texts, output))
        except Exception as error:  # noqa: BLE001 - a model of the user's own may raise anything
            return [f"calls: {type(error).__name__}: {one_line(error)}."]


def require_tokens(batch: TextBatch) -> None:
    """Check that a batch has texts, and each of them a token.

    Raises:
        InputError: It has none, or a text is only padding.
    """
    if not len(batch):
        raise InputError("a batch has no text; expected at least one.")
    empty = ~batch.mask.flatten(1).any(-1)
    if empty.any():
        raise InputError(
            f"a batch has a text without a token (index {int(batch.index[empty][0])}): leave it out, or give "
            "it a token for an unknown word."
        )


def announce_broken(model: Any, batch: TextBatch) -> None:  # noqa: ANN401
    """Say on stderr what `check` finds of a model that nobody may have checked.

    Raises:
        InputError: The output has other shapes than tests read.
    """
    name = type(network_of(model)).__name__
    for broken in check(model, batch):
        said = f"{name} breaks a promise that all tests rely on: {broken}"
        if broken.startswith("shapes"):
            raise InputError(said)
        print(said, file=sys.stderr)


def _shapes(model: AttentionModel, batch: TextBatch, output: AttentionOutput) -> Iterator[str]:
    """Sentences on tensors of another shape or type than `AttentionOutput` describes."""
    if not isinstance(output, AttentionOutput):
        yield f"shapes: the output is a {type(output).__name__}; expected an AttentionOutput."
        return
    count, classes = len(output.rows), output.logits.shape[-1]
    heads, items = (*output.weights.shape, 0, 0, 0)[1:3]
    texts, length = batch.mask.shape[:2]
    expected: dict[str, list[tuple[int, ...]]] = {
        "rows": [(count, 2)],
        "logits": [(count, max(classes, 2))],
        "weights": [(count, max(heads, 1), length)],
        "item_logits": [(count, heads, items, classes)],
        "bias": [(classes,), (count, classes)],
        "mask": [(count, length)],
        "states": [(texts, length, *output.states.shape[2:3])],
    }
    for name, shapes in expected.items():
        values = getattr(output, name)
        if values is not None and tuple(values.shape) not in shapes:
            either = " or ".join(map(str, shapes))
            yield f"shapes: `{name}` is {tuple(values.shape)}; expected {either}."
    if output.mask.dtype != torch.bool or output.rows.dtype != torch.long:
        yield f"shapes: `mask` is {output.mask.dtype}, `rows` {output.rows.dtype}; expected bool, long."
    if not torch.isin(output.rows[:, :1], batch.index).all():
        yield "shapes: the first column of `rows` has numbers that are not in `batch.index`."
    embedded = model.embed(batch)
    if embedded.shape[:-1] != batch.tokens.shape:
        yield f"shapes: `embed` gives {tuple(embedded.shape)}; expected (*batch.tokens.shape, E)."
    if output.weights.ndim != 3:
        return
    read = tuple(model.readout(output, output.weights.unsqueeze(2).expand(-1, -1, 2, -1)).shape)
    if read != (wanted := (count, 2, classes)):
        yield f"shapes: `readout` of 2 candidates gives {read}; expected {wanted}."


def _broken(model: Any, batch: TextBatch, output: AttentionOutput) -> Iterator[str]:  # noqa: ANN401
    """Sentences on the promises that an output of the right shapes breaks."""
    weights, mask = output.weights, output.mask.unsqueeze(1)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(weights.shape, generator=generator).to(weights) * mask
    other = drawn / drawn.sum(-1, keepdim=True).clamp(min=torch.finfo(drawn.dtype).tiny)
    flipped = batch.select(torch.arange(len(batch) - 1, -1, -1, device=batch.index.device))
    texts = [batch.select(batch.index == number) for number in batch.index]
    token_mask = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    # More padding after each text, sentence, query and translation; there are no labels.
    wider = batch.apply(lambda values: pad(values, (0, _PADDING) * (values.ndim - 1), value=PAD))
    target = None if batch.target is None else pad(batch.target, (0, _PADDING), value=IGNORED)
    padded = replace(wider, allowed_classes=batch.allowed_classes, target=target)
    # The state of a decoder may depend on the attention of the rows before.
    alone = output.rows[:, 0] != output.rows[:, 0].roll(-1)
    alone[-1:] = True
    alone |= batch.target is None
    one = torch.where(alone[:, None, None], other, weights)
    real = token_mask[(output.rows[:, :1] == batch.index).int().argmax(-1)]

    def read(attention: Tensor) -> Tensor:
        """Logits of one attention of each row."""
        return model.readout(output, attention.unsqueeze(2)).squeeze(1)  # type: ignore[no-any-return]

    def equal(first: Tensor, second: Tensor) -> bool:
        """Whether values are finite and differ by rounding at most."""
        scale = float(second.abs().amax().clamp(min=1.0)) if second.numel() else 1.0
        return first.shape == second.shape and bool(
            ((first - second).abs() <= _TOLERANCE * scale).all()
        )

    def same(again: AttentionOutput) -> bool:
        """Whether an output has the values of the first one in the rows of its texts."""
        match = (again.rows[:, None] == output.rows).all(-1)
        expected = torch.isin(output.rows[:, 0], again.rows[:, 0]).sum()
        if len(match) != expected or not match.any(-1).all():
            return False
        at, items = match.int().argmax(-1), min(again.weights.shape[-1], weights.shape[-1])
        attention = again.weights[..., :items], weights[at][..., :items]
        return equal(again.logits, output.logits[at]) and equal(*attention)

    def keeps_state() -> bool:
        before = read(other)
        model(flipped)
        return equal(read(other), before)

    def embedded() -> bool:
        """Whether the model reads given embeddings, and its logits have a gradient with respect to them."""
        given = model.embed(batch).detach().requires_grad_()
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            again = model(batch, embeddings=given)
            if not again.logits.requires_grad:
                return False
            (slope,) = torch.autograd.grad(again.logits.sum(), given, allow_unused=True)
        return slope is not None and same(again)

    sums = weights.sum(-1)[output.mask.any(-1)]
    several = output.mask.sum(-1) > 1
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    promises: dict[str, Callable[[], bool]] = {
        "weights: those of a row do not sum to 1, or one is negative": lambda: (
            equal(sums, torch.ones_like(sums)) and not (weights < 0).any()
        ),
        "mask: attention reaches items that are off the mask, or the mask reaches padding": lambda: (
            not (weights.masked_fill(mask, 0.0) != 0).any() and not (output.mask & ~real).any()
        ),
        "evaluation mode: two passes over one batch differ, or the model leaves this mode": lambda: (
            same(model(batch)) and not any(m.training for m in modules)
        ),
        "order: the output of a text depends on its place, or on the other texts": lambda: (
            same(model(flipped)) and all(same(model(text)) for text in texts)
        ),
        "padding: more of it changes the output": lambda: same(model(padded)),
        "original weights: the output with them differs from that without": lambda: same(
            model(batch, weights=weights)
        ),
        "embeddings: the output with those of `embed` differs from that without, or the logits have no "
        "gradient by them": embedded,
        "item_logits: weights times them do not add up to the logits": lambda: (
            output.item_logits is None
            or equal((weights.unsqueeze(-1) * output.item_logits).sum((1, 2)), output.logits)
        ),
        "readout: the logits of other weights differ from those of the model with them, or do not "
        "depend on weights": lambda: (
            equal(read(weights), output.logits)
            and equal(read(other)[alone], model(batch, weights=one).logits[alone])
            and not (several.any() and torch.equal(read(other)[several], read(weights)[several]))
        ),
        "state: the readout of an output changes when the model reads another batch": keeps_state,
    }
    for sentence, kept in promises.items():
        try:
            if not kept():
                yield f"{sentence}."
        except Exception as error:  # noqa: BLE001 - a model of the user's own may raise anything
            name = sentence.partition(":")[0]
            yield f"{name}: the model raises {type(error).__name__}: {one_line(error)}."

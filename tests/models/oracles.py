"""Models far from their start; forward passes in NumPy, a text, a state and a number at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, AttentionOutput
from attnlight.models.attention import NORMALIZERS
from tests.attribution.relevance_recursion import Array, Node, Parameters, Tape, part
from tests.functional.test_masked_entmax import bisected

VOCABULARY = 60
SPARSE = {2.0: "sparsemax", 1.5: "entmax15"}


def far_from_start(
    kind: Callable[..., Any],
    classes: int,
    dtype: torch.dtype,
    doubled: tuple[str, ...],
    **options: Any,
) -> Any:
    """A model in evaluation mode, where attention is peaked and logits are large."""
    torch.manual_seed(1)
    made = kind(VOCABULARY, classes, **{"embedding_size": 12, "hidden_size": 16} | options)
    with torch.no_grad():
        for name, values in made.named_parameters():
            if name in ("decoder.weight", "output.weight"):
                values.mul_(8)
            elif name.startswith(doubled):
                values.mul_(2)
    return made.to(dtype).eval()


def padded(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Token ids as a matrix, with so many more columns than are needed."""
    size = max(map(len, rows)) + padding
    return torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])


def close(actual: Tensor, expected: Tensor, logits: bool = False) -> None:
    """Within the tolerances of design.md, section 10."""
    scale = expected.abs().clamp(min=1) if logits else torch.ones_like(expected)
    tolerance = 1e-10 if expected.dtype == torch.float64 else 1e-5 if logits else 2e-6
    assert ((actual - expected).abs() / scale).max().item() <= tolerance


def compare(alone: AttentionOutput, output: AttentionOutput, text: int, rows: slice) -> None:
    """The output for a text alone against its rows in that for a batch, on what its items are."""
    mask, size = alone.mask, alone.mask.shape[1]
    assert torch.equal(mask, output.mask[rows, :size])
    assert not output.mask[rows, size:].any()
    pairs = [(alone.logits, output.logits[rows])]
    if alone.bias is not None and output.bias is not None:
        pairs += [(alone.bias, output.bias if output.bias.ndim == 1 else output.bias[rows])]
    if alone.item_logits is not None and output.item_logits is not None:
        items = output.item_logits[rows, :, :size]
        pairs += [(alone.item_logits.transpose(1, 2)[mask], items.transpose(1, 2)[mask])]
    for own, other in pairs:
        close(own, other, logits=True)
    close(alone.probabilities, output.probabilities[rows])
    close(alone.weights, output.weights[rows, :, :size])
    if "query" in alone.memory:
        close(alone.memory["query"][0], output.memory["query"][text])
    for own, other in zip(alone.layers or (), output.layers or (), strict=True):
        close(own[0], other[(text, *map(slice, own.shape[1:]))])


def parameters(module: nn.Module) -> Parameters:
    return {name: value.detach().double().numpy() for name, value in module.named_parameters()}


def words_of(tokens: list[int]) -> list[int]:
    """Places of what attention may reach."""
    return [n for n, token in enumerate(tokens) if token not in (BOS, EOS)]


def encoded(kind: str, values: Parameters, words: Array) -> Array:
    """States (N, D) of a text's embeddings (N, E)."""
    nodes = [Node(word) for word in words]
    return np.stack([state.array for state in Tape().encoded(kind, values, nodes)])


def attended(
    attention: nn.Module, states: Array, items: list[int], query: Array | None = None
) -> tuple[Array, Array]:
    """The mean state (D,) of the items, and their weights (N,)."""
    values = parameters(attention)
    scores = np.zeros(len(items))
    for place, n in enumerate(items):
        match type(attention).__name__:
            case "AdditiveAttention":
                key = values["key.weight"] @ states[n] + values["key.bias"]
                if query is not None:
                    key += values["query.weight"] @ query + values["query.bias"]
                scores[place] = (values["value.weight"] @ np.tanh(key))[0]
            case "DotAttention" | "ScaledDotAttention" as kind:
                vector = values["key.weight"][0] if query is None else query
                scores[place] = states[n] @ vector / len(vector) ** (0.5 * (kind[0] == "S"))
    weights = np.zeros(len(states))
    weights[items] = normalized(attention, scores)
    return weights @ states, weights


def normalized(attention: nn.Module, scores: Array) -> Array:
    """Weights (N,) of scores by the normalizer of a layer."""
    for alpha, name in SPARSE.items():
        if attention.normalize is NORMALIZERS[name]:
            return bisected(scores, alpha)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def class_logits(values: Array) -> Array:
    """Logits of all classes: with one output, those of two classes are 0 and its value."""
    return np.concatenate([[0.0], values]) if len(values) == 1 else values


def flat_text(made: nn.Module, text: list[int], kind: str) -> tuple[Array, Array]:
    """Logits (C,) and weights (N,) of a text, from the parameters of a flat classifier alone."""
    values = parameters(made)
    states = encoded(kind, part(values, "encoder"), values["embedding.weight"][text])
    if made.with_embeddings:
        states = np.concatenate([states, values["embedding.weight"][text]], axis=1)
    context, weights = attended(made.attention, states, words_of(text))
    return class_logits(values["decoder.weight"] @ context + values["decoder.bias"]), weights


def text_in_sentences(
    made: nn.Module, text: Sequence[list[int]], kind: str
) -> tuple[Array, Array, list[Array]]:
    """Logits (C,), sentence weights (S,) and word weights of a text, sentence by sentence."""
    values = parameters(made)
    vectors, words = [], []
    for sentence in text:
        embeddings = values["embedding.weight"][sentence]
        states = encoded(kind, part(values, "word_encoder"), embeddings)
        states = np.concatenate([states, embeddings], 1) if made.with_embeddings else states
        vector, weights = attended(made.word_attention, states, words_of(sentence))
        vectors.append(vector)
        words.append(weights)
    states = encoded(kind, part(values, "sentence_encoder"), np.stack(vectors))
    states = np.concatenate([states, np.stack(vectors)], 1) if made.with_embeddings else states
    context, weights = attended(made.sentence_attention, states, list(range(len(text))))
    logits = class_logits(values["decoder.weight"] @ context + values["decoder.bias"])
    return logits, weights, words


def text_with_query(
    made: nn.Module, pair: Sequence[list[int]], kind: str, query_kind: str | None = None
) -> tuple[Array, Array]:
    """Logits (C,) and weights (N,) of a passage by its query, with classes that are not allowed."""
    values, query_kind = parameters(made), query_kind or kind
    passage, query, allowed = pair
    own = "query_embedding.weight" in values
    embedding = values["embedding.weight"]
    asked = values["query_embedding.weight"] if own else embedding
    states = encoded(kind, part(values, "encoder"), embedding[passage])
    states = np.concatenate([states, embedding[passage]], 1) if made.with_embeddings else states
    query_part = part(values, "query_encoder" if own else "encoder")
    query_states = encoded(query_kind, query_part, asked[query])
    words = words_of(query)
    if query_kind in ("bilstm", "bigru"):
        half = query_states.shape[1] // 2
        q = np.concatenate([query_states[-1, :half], query_states[0, half:]])
    elif query_kind in ("lstm", "orthogonal_lstm"):
        q = query_states[-1]
    elif query_kind in ("cnn", "conv"):
        q = query_states[words].max(0)
    else:
        q = query_states[words].mean(0)
    context, weights = attended(made.attention, states, words_of(passage), q)
    logits = values["decoder.weight"] @ context + values["decoder.bias"]
    logits = logits + values["query_decoder.weight"] @ q + values.get("query_decoder.bias", 0)
    if "output.weight" in values:
        logits = values["output.weight"] @ np.tanh(logits) + values["output.bias"]
    logits = class_logits(logits)
    return np.where(np.isin(np.arange(len(logits)), allowed), logits, -1e4), weights

"""Models far from their start; encoders and attention in NumPy, a state and a number at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlight.batch import BOS, EOS

VOCABULARY = 60
Array = NDArray[np.float64]
Parameters = dict[str, Array]


def far_from_start(
    kind: Callable[..., Any],
    classes: int,
    dtype: torch.dtype,
    doubled: tuple[str, ...],
    **options: Any,
) -> Any:
    """A model in evaluation mode, where attention is peaked and logits are large.

    Args:
        kind: Class of the model.
        classes: Number of classes.
        dtype: Of its parameters.
        doubled: Parts whose parameters are doubled; weights of the decoder are 8 times as large.
        options: Of the model.
    """
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


def parameters(module: nn.Module) -> Parameters:
    return {name: value.detach().double().numpy() for name, value in module.named_parameters()}


def part(values: Parameters, name: str) -> Parameters:
    """The parameters of one part, by their names in it."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}


def words_of(tokens: list[int]) -> list[int]:
    """Places of what attention may reach."""
    return [n for n, token in enumerate(tokens) if token not in (BOS, EOS)]


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def recurrent(values: Parameters, words: Array) -> Array:
    """States (N, H) of one direction of an LSTM, or of a GRU, by its definition."""
    weights = [values[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    into, own, bias, own_bias = weights
    hidden, cell, states = np.zeros(own.shape[1]), np.zeros(own.shape[1]), []
    for word in words:
        given, kept = into @ word + bias, own @ hidden + own_bias
        if len(own) == 4 * len(hidden):
            i, f, g, o = np.split(given + kept, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
        else:
            (r, z, n), (kept_r, kept_z, kept_n) = np.split(given, 3), np.split(kept, 3)
            reset, update = sigmoid(r + kept_r), sigmoid(z + kept_z)
            hidden = (1 - update) * np.tanh(n + reset * kept_n) + update * hidden
        states.append(hidden)
    return np.stack(states)


def encoded(kind: str, values: Parameters, words: Array) -> Array:
    """States (N, D) of a text's embeddings (N, E)."""
    if kind == "none":
        return words
    if kind == "average":
        return np.tanh(words @ values["projection.weight"].T + values["projection.bias"])
    if kind in ("bilstm", "bigru"):
        one, other = (part(values, name) for name in ("forwards", "backwards"))
        return np.concatenate([recurrent(one, words), recurrent(other, words[::-1])[::-1]], axis=1)
    states = []
    for number in range(len(values) // 2):
        kernel, bias = (values[f"convolutions.{number}.{name}"] for name in ("weight", "bias"))
        half = kernel.shape[2] // 2
        padding = np.zeros((half, words.shape[1]))
        around = np.concatenate([padding, words, padding])
        windows = [around[n : n + kernel.shape[2]] for n in range(len(words))]
        states.append(np.stack([np.einsum("oek,ke->o", kernel, w) + bias for w in windows]))
    return np.maximum(np.concatenate(states, axis=1), 0)


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
    weights[items] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    return weights @ states, weights


def class_logits(values: Array) -> Array:
    """Logits of all classes: with one output, those of two classes are 0 and its value."""
    return np.concatenate([[0.0], values]) if len(values) == 1 else values

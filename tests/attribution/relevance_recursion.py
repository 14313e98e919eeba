"""Relevance of one text from the logits down, in NumPy: forward by definition, then back step by step.

As `lrp_linear` of Arras et al. (2017), bias factor 0: a term t of a sum z gets the share
`t / (z + epsilon sign(z))` of its relevance, gates get none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Parameters = dict[str, Array]
# The class whose logit is explained, and that whose logit it is compared with.
Rivals = tuple[int, int]


def part(values: Parameters, name: str) -> Parameters:
    """The parameters of one part, by their names in it."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


class Node:
    """A vector of a text's computation, and the relevance that has arrived at it."""

    def __init__(self, array: Array) -> None:
        self.array, self.relevance = array, np.zeros_like(array)


class Tape:
    """The steps from words to logits, each with the way back of its relevance."""

    def __init__(self, epsilon: float = 0.0) -> None:
        self.epsilon = epsilon
        self.constants: list[Node] = []
        self.steps: list[Callable[[], None]] = []

    def constant(self, array: Array) -> Node:
        """What absorbs the relevance that it gets."""
        self.constants.append(Node(array))
        return self.constants[-1]

    def shares(self, terms: Array, out: Node, epsilon: float | None) -> Array:
        """Relevance of terms (T, J) from that of their sum."""
        epsilon = self.epsilon if epsilon is None else epsilon
        divisors = out.array + epsilon * np.where(out.array >= 0, 1.0, -1.0)
        return terms / np.where(divisors == 0, 1.0, divisors) * out.relevance

    def affine(
        self, node: Node, weight: Array, bias: Array | None = None, epsilon: float | None = None
    ) -> Node:
        """`weight @ inputs + bias` of inputs (I,), weight (J, I)."""
        last = [] if bias is None else [self.constant(bias)]
        terms = np.concatenate([weight.T * node.array[:, None], *(x.array[None] for x in last)])
        out = Node(terms.sum(0))

        def back() -> None:
            found = self.shares(terms, out, epsilon)
            node.relevance += found[: len(node.array)].sum(1)
            for one in last:
                one.relevance += found[-1]

        self.steps.append(back)
        return out

    def sum(self, terms: Array, nodes: Sequence[Node], epsilon: float | None = None) -> Node:
        """The sum of terms (T, J), one of each node."""
        out = Node(terms.sum(0))

        def back() -> None:
            for node, found in zip(nodes, self.shares(terms, out, epsilon), strict=True):
                node.relevance += found

        self.steps.append(back)
        return out

    def add(self, *nodes: Node, epsilon: float | None = None) -> Node:
        return self.sum(np.stack([node.array for node in nodes]), nodes, epsilon)

    def mean(self, nodes: Sequence[Node], weights: Array) -> Node:
        """The mean by fixed weights, one for each node (N,) or each number (N, D)."""
        terms = weights.reshape(len(nodes), -1) * np.stack([node.array for node in nodes])
        return self.sum(terms, nodes)

    def gate(self, node: Node, array: Array) -> Node:
        """A nonlinearity or a product with a gate, through which relevance passes as it is."""
        out = Node(array)

        def back() -> None:
            node.relevance += out.relevance

        self.steps.append(back)
        return out

    def join(self, *nodes: Node) -> Node:
        """The vectors one after the other."""
        out = Node(np.concatenate([node.array for node in nodes]))
        ends = np.cumsum([len(node.array) for node in nodes])[:-1]

        def back() -> None:
            for node, found in zip(nodes, np.split(out.relevance, ends), strict=True):
                node.relevance += found

        self.steps.append(back)
        return out

    def product(self, first: Node, second: Node) -> Node:
        """The product of two states, of whose relevance each gets half."""
        out = Node(first.array * second.array)

        def back() -> None:
            first.relevance += out.relevance / 2
            second.relevance += out.relevance / 2

        self.steps.append(back)
        return out

    def norm(self, node: Node, values: Parameters, eps: float = 1e-5) -> Node:
        """A layer norm whose standard deviation is fixed."""
        size = len(node.array)
        centred = (np.eye(size) - 1 / size) / np.sqrt(node.array.var() + eps)
        return self.affine(node, values["weight"][:, None] * centred, values["bias"], 0.0)

    def rms_norm(self, node: Node, weight: Array, eps: float) -> Node:
        """An RMS norm whose root mean square is fixed."""
        return self.affine(node, np.diag(weight / np.sqrt((node.array**2).mean() + eps)), None, 0.0)

    def attended(
        self,
        nodes: Sequence[Node],
        weights: Array,
        value: tuple[Array, Array | None],
        output: tuple[Array, Array | None],
    ) -> list[Node]:
        """What attention with fixed weights (H, N, N) adds to each state; maps are (weight, bias)."""
        values = [self.affine(node, *value) for node in nodes]
        size = len(value[0]) // len(weights)
        rows = [np.repeat(weights[:, query].T, size, axis=1) for query in range(len(nodes))]
        return [self.affine(self.mean(values, row), *output) for row in rows]

    def recurrent(
        self, values: Parameters, words: Sequence[Node], orthogonal: bool = False
    ) -> list[Node]:
        """States of one direction of an LSTM, whose relevance is unknown if orthogonal, or of a GRU."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        into, own, bias, own_bias = (values[f"{name}_l0"] for name in names)
        size, states = own.shape[1], []
        n, lstm = slice(2 * size, 3 * size), len(own) == 4 * size
        hidden = cell = Node(np.zeros(size))
        for word in words:
            given, kept = into @ word.array + bias, own @ hidden.array + own_bias
            first, second = (sigmoid((given + kept)[k * size : (k + 1) * size]) for k in (0, 1))
            # Of an LSTM input and forget gate, of a GRU reset and update gate.
            reset = np.ones(size) if lstm else first
            renew, keep = (first, second) if lstm else (1 - second, second)
            weight = np.concatenate([into[n], reset[:, None] * own[n]], 1)
            constant = bias[n] + reset * own_bias[n]
            candidate = self.affine(self.join(word, hidden), weight, constant)
            new = self.gate(candidate, renew * np.tanh(candidate.array))
            cell = self.add(self.gate(cell, keep * cell.array), new)
            leave = sigmoid((given + kept)[3 * size :]) * np.tanh(cell.array) if lstm else None
            hidden = cell if leave is None else self.gate(cell, leave)
            if orthogonal and states:
                before = np.mean([state.array for state in states], axis=0)
                share = (hidden.array @ before) / (before @ before)
                hidden = Node(hidden.array - share * before)
            states.append(hidden)
        return states

    def encoded(self, kind: str, values: Parameters, words: Sequence[Node]) -> list[Node]:
        """States of a text's words by an encoder."""
        if kind == "none":
            return list(words)
        if kind == "average":
            layer = values["projection.weight"], values["projection.bias"]
            below = [self.affine(word, *layer) for word in words]
            return [self.gate(node, np.tanh(node.array)) for node in below]
        if kind in ("lstm", "orthogonal_lstm"):
            return self.recurrent(part(values, "forwards"), words, kind != "lstm")
        if kind in ("bilstm", "bigru"):
            one = self.recurrent(part(values, "forwards"), words)
            other = self.recurrent(part(values, "backwards"), words[::-1])[::-1]
            return [self.join(*pair) for pair in zip(one, other, strict=True)]
        states = []
        for place in range(len(words)):
            found = []
            for number in range(len(values) // 2):
                kernel, bias = (values[f"convolutions.{number}.{x}"] for x in ("weight", "bias"))
                filters, size, width = kernel.shape
                around = range(place - width // 2, place + width // 2 + 1)
                near = [words[k] if 0 <= k < len(words) else Node(np.zeros(size)) for k in around]
                flat = kernel.transpose(0, 2, 1).reshape(filters, -1)
                filtered = self.affine(self.join(*near), flat, bias)
                found.append(self.gate(filtered, np.maximum(filtered.array, 0)))
            states.append(self.join(*found))
        return states

    def transformer(
        self, values: Parameters, words: Sequence[Node], signal: Array, weights: Array, place: int
    ) -> Node:
        """Logits of a token by a tagger of one layer with the readout `study`.

        Of position signals (N, D) and the token's attention (H, N).
        """
        after = part(values, "decoder.after")
        states = [
            self.add(
                self.affine(word, values["projection.weight"]), self.constant(position), epsilon=0
            )
            for word, position in zip(words, signal, strict=True)
        ]
        normal = [self.norm(state, part(values, "norm")) for state in states]
        heads = [self.affine(node, values["attention.value.weight"]) for node in normal]
        each = np.repeat(weights.T, len(heads[0].array) // len(weights), axis=1)
        mixed = self.affine(self.mean(heads, each), after["output.weight"])
        middle = self.add(states[place], mixed, epsilon=0)
        fed = self.norm(middle, part(after, "norm"))
        for name in ("inner", "outer"):
            layer = part(after, f"feed_forward.{name}")
            fed = self.affine(fed, layer["weight"], layer["bias"])
            fed = self.gate(fed, np.maximum(fed.array, 0))
        top = self.norm(self.add(middle, fed, epsilon=0), part(values, "decoder.norm"))
        return self.affine(top, values["decoder.decoder.weight"], values["decoder.decoder.bias"])

    def explain(
        self, logits: Node, rivals: Rivals, words: Sequence[Node]
    ) -> tuple[Array, float, Array]:
        """Relevance of words (N,), what constants absorb, and the logits.

        The first of two classes is constant if a network has one logit.
        """
        signs = np.zeros(max(2, len(logits.array)))
        signs[[*rivals]] = 1.0, -1.0
        logits.relevance += logits.array * signs[-len(logits.array) :]
        for back in reversed(self.steps):
            back()
        absorbed = sum(node.relevance.sum() for node in self.constants)
        return np.array([word.relevance.sum() for word in words]), absorbed, logits.array

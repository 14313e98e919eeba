"""Relevance of one text, layer by layer from the logits down, in NumPy.

As `lrp_linear` of Arras et al. (2017), bias factor 0: a term t of a sum z gets the share
`t / (z + epsilon sign(z))` of its relevance, gates get none. Each function runs its layer forward
by its definition and returns the relevance of its inputs and the sum of that of its biases.
"""

import numpy as np

from tests.models.oracles import Array, Parameters, part, sigmoid

# The class whose logit is explained, and that whose logit it is compared with.
Rivals = tuple[int, int]


def shared(terms: Array, sums: Array, relevance: Array, epsilon: float) -> Array:
    """Relevance of terms (..., J) of sums (J,) that have a relevance (J,)."""
    divisors = sums + epsilon * np.where(sums >= 0, 1.0, -1.0)
    return np.where(terms == 0, 0.0, terms / np.where(divisors == 0, 1.0, divisors) * relevance)


def affine(
    inputs: Array, weight: Array, bias: Array, relevance: Array, epsilon: float
) -> tuple[Array, float]:
    """Relevance of the inputs (I,) of `weight @ inputs + bias`, weight (J, I)."""
    terms = np.concatenate([weight.T * inputs[:, None], bias[None]])
    found = shared(terms, terms.sum(0), relevance, epsilon).sum(1)
    return found[:-1], float(found[-1])


def direction(
    values: Parameters, words: Array, relevance: Array, epsilon: float
) -> tuple[Array, float]:
    """Relevance of words (N, E) from that of the states (N, H) of an LSTM or GRU."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    into, own, bias, own_bias = (values[f"{name}_l0"] for name in names)
    size = own.shape[1]
    n = slice(2 * size, 3 * size)
    lstm = len(own) == 4 * size
    hidden = cell = np.zeros(size)
    steps = []
    for word in words:
        given, kept = into @ word + bias, own @ hidden + own_bias
        if lstm:
            i, f, g, _ = np.split(given + kept, 4)
            weight, constant = np.concatenate([into, own], 1)[n], (bias + own_bias)[n]
            old, new = sigmoid(f) * cell, sigmoid(i) * np.tanh(g)
            leave = sigmoid((given + kept)[3 * size :])
        else:
            reset, update = (sigmoid((given + kept)[k * size : (k + 1) * size]) for k in (0, 1))
            weight = np.concatenate([into[n], reset[:, None] * own[n]], 1)
            constant = bias[n] + reset * own_bias[n]
            old, new = update * hidden, (1 - update) * np.tanh(given[n] + reset * kept[n])
        steps.append((np.concatenate([word, hidden]), weight, constant, old, new))
        cell = old + new
        hidden = leave * np.tanh(cell) if lstm else cell
    found, absorbed = np.zeros_like(words), 0.0
    from_state = from_cell = np.zeros(size)
    for place, (inputs, weight, constant, old, new) in reversed(list(enumerate(steps))):
        arriving = relevance[place] + from_state + from_cell
        from_cell, candidate = shared(np.stack([old, new]), old + new, arriving, epsilon)
        below, lost = affine(inputs, weight, constant, candidate, epsilon)
        found[place], from_state, absorbed = below[:-size], below[-size:], absorbed + lost
    return found, absorbed


def encoder(
    kind: str, values: Parameters, words: Array, relevance: Array, epsilon: float
) -> tuple[Array, float]:
    """Relevance of words (N, E) from that of an encoder's states (N, D)."""
    if kind == "none":
        return relevance, 0.0
    found, absorbed = np.zeros_like(words), 0.0
    if kind in ("bilstm", "bigru"):
        half = relevance.shape[1] // 2
        one = direction(part(values, "forwards"), words, relevance[:, :half], epsilon)
        reverse = words[::-1], relevance[::-1, half:]
        other = direction(part(values, "backwards"), *reverse, epsilon)
        return one[0] + other[0][::-1], one[1] + other[1]
    if kind == "average":
        for place, word in enumerate(words):
            layer = values["projection.weight"], values["projection.bias"]
            found[place], lost = affine(word, *layer, relevance[place], epsilon)
            absorbed += lost
        return found, absorbed
    start = 0
    for number in range(len(values) // 2):
        kernel, bias = (values[f"convolutions.{number}.{name}"] for name in ("weight", "bias"))
        filters, size, width = kernel.shape
        around = np.zeros((len(words) + width - 1, size))
        around[width // 2 : width // 2 + len(words)] = words
        below = np.zeros_like(around)
        for place in range(len(words)):
            window = around[place : place + width].flatten()
            flat = kernel.transpose(0, 2, 1).reshape(filters, -1)
            # A filter whose ReLU is 0 contributes nothing: its relevance is 0.
            arriving = relevance[place, start : start + filters]
            shares, lost = affine(window, flat, bias, arriving, epsilon)
            below[place : place + width] += shares.reshape(width, size)
            absorbed += lost
        found += below[width // 2 : width // 2 + len(words)]
        start += filters
    return found, absorbed


def mean(states: Array, weights: Array, relevance: Array, epsilon: float) -> Array:
    """Relevance of states (N, D) from that of their mean (D,) by fixed weights (N,)."""
    terms = weights[:, None] * states
    return shared(terms, terms.sum(0), relevance, epsilon)


def decoded(
    values: Parameters, states: Array, weights: Array, rivals: Rivals, epsilon: float
) -> tuple[Array, float, Array]:
    """Relevance of states (N, D) whose mean is decoded, what the bias absorbs, and the logits."""
    context, layer = weights @ states, (values["decoder.weight"], values["decoder.bias"])
    logits = layer[0] @ context + layer[1]
    below, absorbed = affine(context, *layer, explained(logits, rivals), epsilon)
    return mean(states, weights, below, epsilon), absorbed, logits


def explained(logits: Array, rivals: Rivals) -> Array:
    """Relevance of each logit; the first of two is constant if a network has one logit."""
    signs = np.zeros(max(2, len(logits)))
    signs[[*rivals]] = 1.0, -1.0
    return logits * signs[-len(logits) :]


def layer_norm(inputs: Array, values: Parameters, relevance: Array) -> tuple[Array, float]:
    """Relevance of the inputs (D,) of a layer norm whose standard deviation is fixed."""
    size = len(inputs)
    centred = (np.eye(size) - 1 / size) / np.sqrt(inputs.var() + 1e-5)
    return affine(inputs, values["weight"][:, None] * centred, values["bias"], relevance, 0.0)


def normed(inputs: Array, values: Parameters) -> Array:
    centred = inputs - inputs.mean(-1, keepdims=True)
    deviation = np.sqrt(inputs.var(-1, keepdims=True) + 1e-5)
    return centred / deviation * values["weight"] + values["bias"]


def transformer(
    values: Parameters,
    words: Array,
    positions: Array,
    weights: Array,
    place: int,
    rivals: Rivals,
    epsilon: float,
) -> tuple[Array, float, Array]:
    """Relevance (N, E) in a tagger with the readout `study`, what is absorbed, logits (C,)."""
    none = np.zeros(positions.shape[1])
    projected = words @ values["projection.weight"].T
    states = projected + positions
    normal = normed(states, part(values, "norm"))
    heads = np.split(normal @ values["attention.value.weight"].T, len(weights), axis=1)
    context = np.concatenate([w @ head for w, head in zip(weights, heads, strict=True)])
    after = part(values, "decoder.after")
    mixed = after["output.weight"] @ context
    middle = states[place] + mixed
    read = normed(middle, part(after, "norm"))
    inner, outer = (part(after, f"feed_forward.{name}") for name in ("inner", "outer"))
    hidden = np.maximum(inner["weight"] @ read + inner["bias"], 0)
    fed = np.maximum(outer["weight"] @ hidden + outer["bias"], 0)
    top = normed(middle + fed, part(values, "decoder.norm"))
    decoder = values["decoder.decoder.weight"], values["decoder.decoder.bias"]
    logits = decoder[0] @ top + decoder[1]

    found = np.zeros_like(words)
    below, absorbed = affine(top, *decoder, explained(logits, rivals), epsilon)
    below, lost = layer_norm(middle + fed, part(values, "decoder.norm"), below)
    absorbed += lost
    to_middle, to_fed = shared(np.stack([middle, fed]), middle + fed, below, 0.0)
    to_hidden, lost = affine(hidden, outer["weight"], outer["bias"], to_fed, epsilon)
    absorbed += lost
    to_read, lost = affine(read, inner["weight"], inner["bias"], to_hidden, epsilon)
    absorbed += lost
    through, lost = layer_norm(middle, part(after, "norm"), to_read)
    absorbed += lost
    to_state, to_mixed = shared(np.stack([states[place], mixed]), middle, to_middle + through, 0.0)
    to_context, _ = affine(context, after["output.weight"], none, to_mixed, epsilon)
    to_states = np.zeros_like(states)
    to_states[place] = to_state
    to_values = [
        mean(head, w, arriving, epsilon)
        for head, w, arriving in zip(
            heads, weights, np.split(to_context, len(weights)), strict=True
        )
    ]
    for item, relevance in enumerate(np.concatenate(to_values, axis=1)):
        each, _ = affine(normal[item], values["attention.value.weight"], none, relevance, epsilon)
        each, lost = layer_norm(states[item], part(values, "norm"), each)
        to_states[item] += each
        parts = np.stack([projected[item], positions[item]])
        to_projected, to_position = shared(parts, states[item], to_states[item], 0.0)
        absorbed += lost + to_position.sum()
        layer = values["projection.weight"], none
        found[item], _ = affine(words[item], *layer, to_projected, epsilon)
    return found, absorbed, logits

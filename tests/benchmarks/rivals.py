"""The papers' released algorithms, which the tests are timed against.

They read hidden states out again for every change of attention, and encode the whole batch again
for every deleted token. Written for these benchmarks, and as quick as those algorithms can be made
in PyTorch: whole batches at once where the released code goes through their texts in Python, matrix
products (but where a test is timed against the readout as released), no autograd but in the search,
no files in between, each pair of adversaries compared once rather than twice. For classifiers of
two classes, whose decoder has one logit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.models import FlatClassifier
from attnlight.models.encoders import BiLSTM, Encoder

Readout = Literal["sum", "scored", "product"]

# Where the released code keeps logarithms and quotients finite.
_LOG, _SUM = 1e-10, 1e-12


def decode(model: FlatClassifier, states: Tensor, weights: Tensor) -> Tensor:
    """Logits (B, K) of K attentions (B, K, N): their mean states (B, K, D), then the decoder."""
    weight, bias = model.decoder.weight.detach(), model.decoder.bias.detach()
    return linear(weights @ states, weight, bias).squeeze(-1)


def random_orders(mask: Tensor, draws: int) -> Iterator[Tensor]:
    """Uniform random orders (B, N) of the items of each text; padding stays behind them."""
    for _ in range(draws):
        yield torch.rand(mask.shape).masked_fill_(~mask, 2.0).argsort(-1)


def shuffled_distance(
    model: FlatClassifier,
    output: AttentionOutput,
    orders: Iterable[Tensor],
    readout: Readout = "sum",
) -> Tensor:
    """Median distance between the predictions with own and with shuffled attention, (B,).

    Jain and Wallace (2019), 4.2.1: draw, shuffle, read out, once for each of the orders.

    Args:
        model: The model.
        output: What it said of B texts; what attention may reach comes first in each.
        orders: Item `[b, n]` of an order (B, N) is what comes to place n.
        readout: `sum` weights all states and adds them up, as the released code does; `scored`
            also scores attention anew before each shuffle, as it does too; `product` is one matrix
            product, which it does not use.
    """
    states, weights = output.states, output.weights.squeeze(1)
    own = decode(model, states, output.weights).sigmoid()
    distances = []
    for order in orders:
        if readout == "scored":
            weights = model.attention(states, output.mask)
        shuffled = weights.gather(-1, order)
        if readout == "product":
            logits = decode(model, states, shuffled.unsqueeze(1))
        else:
            mean = (shuffled.unsqueeze(-1) * states).sum(1, keepdim=True)
            logits = model.decoder(mean).squeeze(-1)
        distances.append((logits.sigmoid() - own).abs())
    return torch.cat(distances, dim=1).quantile(0.5, dim=-1)


def erased_until_flip(
    model: FlatClassifier, output: AttentionOutput, order: Tensor, *, drop_flipped: bool = False
) -> Tensor:
    """Items erased when the decision first changes, (B,), -1 if it never does.

    Serrano and Smith (2019), 5: set the next item's weight to zero, renormalise the others, read
    out, and compare the decision.

    Args:
        model: The model.
        output: Its output for B texts of N items.
        order: Items from the first to be erased to the last, (B, N).
        drop_flipped: Drop texts from the batch when their decision has changed, as in the released
            code; otherwise all take N steps.
    """
    counts = torch.full_like(order[:, 0], -1)
    texts = torch.arange(len(order))
    weights, states = output.weights.squeeze(1), output.states
    own = decode(model, states, output.weights) > 0
    for step in range(order.shape[1]):
        weights = weights.scatter(-1, order[:, step, None], 0.0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=_SUM)
        decisions = decode(model, states, weights.unsqueeze(1)) > 0
        flipped = (decisions != own).squeeze(1)
        now = texts[flipped]
        counts[now] = torch.where(counts[now] < 0, step + 1, counts[now])
        if drop_flipped and len(now):
            weights, states, own, order, texts = (
                values[~flipped] for values in (weights, states, own, order, texts)
            )
            if not len(texts):
                break
    return counts


def searched_attention(
    model: FlatClassifier,
    output: AttentionOutput,
    epsilon: float,
    starts: int = 5,
    steps: int = 500,
) -> Tensor:
    """The attentions (B, K, N) that Jain and Wallace's search ends with.

    Jain and Wallace (2019), 4.2.2, with the constants of their released code: Adam on the scores of
    K attentions, each read out from the states at every step. The selection that follows it is left
    out.

    Args:
        model: The model.
        output: What it said of B texts.
        epsilon: Distance between predictions that is not penalised.
        starts: Number of attentions K.
        steps: Steps of Adam.
    """
    states, weights = output.states, output.weights
    off = ~output.mask.unsqueeze(1)
    own = decode(model, states, weights).sigmoid()
    one, other = torch.triu_indices(starts, starts, 1)
    noise = 3 * torch.randn(len(off), starts, off.shape[-1], dtype=states.dtype)
    scores = nn.Parameter(noise - output.mask.sum(-1)[:, None, None].log())
    optimizer = torch.optim.Adam([scores], lr=0.01, amsgrad=True)
    with torch.enable_grad():
        for _ in range(steps):
            found = scores.masked_fill(off, -math.inf).softmax(-1)
            moved = (decode(model, states, found).sigmoid() - own).abs()
            gain = _js(found, weights) - 500 * (moved - epsilon).relu()
            between = 2 * _js(found[:, one], found[:, other]) / starts**2
            optimizer.zero_grad()
            torch.autograd.backward(-gain.sum() - between.sum())
            optimizer.step()
    return scores.detach().masked_fill(off, -math.inf).softmax(-1)


def _js(p: Tensor, q: Tensor) -> Tensor:
    middle = ((p + q) / 2 + _LOG).log()
    return (p * ((p + _LOG).log() - middle) + q * ((q + _LOG).log() - middle)).sum(-1) / 2


class PackedBiLSTM(Encoder):
    """The same encoder over packed sequences, as in the released code.

    Args:
        encoder: Whose parameters it has.
    """

    def __init__(self, encoder: BiLSTM) -> None:
        super().__init__()
        self.output_size = encoder.output_size
        sizes = encoder.forwards.input_size, encoder.forwards.hidden_size
        network = nn.LSTM(*sizes, batch_first=True, bidirectional=True)
        self.network = network.to(encoder.forwards.get_parameter("weight_ih_l0").dtype)
        for one, suffix in ((encoder.forwards, ""), (encoder.backwards, "_reverse")):
            held = {f"{name}{suffix}": value for name, value in one.state_dict().items()}
            self.network.load_state_dict(held, strict=False)

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(-1)
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.network(packed)
        whole, _ = pad_packed_sequence(states, batch_first=True, total_length=mask.shape[1])
        return whole


def packed(model: FlatClassifier) -> FlatClassifier:
    """The same model with its encoder over packed sequences."""
    assert isinstance(model.encoder, BiLSTM)
    other = deepcopy(model)
    other.encoder = PackedBiLSTM(model.encoder).eval()
    return other


def deleted_distance(model: FlatClassifier, batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Distance between the predictions with and without each token, (B, N); 0 off the mask.

    Jain and Wallace (2019), 4.1: for each position of the batch, delete that column of the padded
    batch, then encode and attend anew. A text that ends before the position only loses padding.

    Args:
        model: The model.
        batch: B texts of N tokens.
        output: What the model said of them; positions that no text may attend to are not deleted.
    """
    own = output.logits[:, 1].sigmoid()
    distances = torch.zeros_like(output.mask, dtype=own.dtype)
    for place in output.mask.any(0).nonzero().flatten().tolist():
        tokens, mask = (
            torch.cat([values[:, :place], values[:, place + 1 :]], dim=1)
            for values in (batch.tokens, batch.mask)
        )
        logits = model(TextBatch(batch.index, tokens, mask)).logits
        distances[:, place] = (logits[:, 1].sigmoid() - own).abs()
    return distances.masked_fill(~output.mask, 0.0)

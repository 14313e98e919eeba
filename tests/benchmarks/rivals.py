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
from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.models import FlatClassifier
from attnlight.models.encoders import BiLSTM, Encoder

# Where the released code keeps logarithms and quotients finite.
_LOG, _SUM = 1e-10, 1e-12


def decode(model: FlatClassifier, states: Tensor, weights: Tensor) -> Tensor:
    """Logits (B, K) of K attentions (B, K, N): their mean states (B, K, D), then the decoder."""
    logits: Tensor = model.decoder(weights @ states).squeeze(-1)
    return logits


def shuffled_distance(
    model: FlatClassifier, output: AttentionOutput, orders: Iterable[Tensor]
) -> Tensor:
    """Median distance (B,) of predictions with shuffled attention (Jain & Wallace, 4.2.1)."""
    weights = output.weights.squeeze(1)
    own = decode(model, output.states, output.weights).sigmoid()
    distances = []
    for order in orders:
        mean = (weights.gather(-1, order).unsqueeze(-1) * output.states).sum(1, keepdim=True)
        distances.append((model.decoder(mean).squeeze(-1).sigmoid() - own).abs())
    return torch.cat(distances, dim=1).quantile(0.5, dim=-1)


def erased_until_flip(model: FlatClassifier, output: AttentionOutput, order: Tensor) -> Tensor:
    """Items erased when the decision first changes, (B,), or -1 (Serrano & Smith, 5)."""
    counts = torch.full_like(order[:, 0], -1)
    weights, own = output.weights.squeeze(1), decode(model, output.states, output.weights) > 0
    for step in range(order.shape[1]):
        weights = weights.scatter(-1, order[:, step, None], 0.0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=_SUM)
        decisions = decode(model, output.states, weights.unsqueeze(1)) > 0
        flipped = (decisions != own).squeeze(1)
        counts = torch.where(flipped & (counts < 0), step + 1, counts)
    return counts


def moved_by(model: FlatClassifier, output: AttentionOutput) -> Callable[[Tensor], Tensor]:
    """How far attentions (B, K, N) move the predictions from the model's, (B, K)."""
    own = decode(model, output.states, output.weights).sigmoid()
    return lambda attentions: (decode(model, output.states, attentions).sigmoid() - own).abs()


def searched_attention(
    weights: Tensor,
    mask: Tensor,
    moved: Callable[[Tensor], Tensor],
    epsilon: float,
    starts: int = 5,
    steps: int = 500,
    learning_rate: float = 0.01,
) -> Tensor:
    """The attentions (B, K, N) that Jain & Wallace's search (4.2.2) ends with, unselected."""
    off = ~mask.unsqueeze(1)
    one, other = torch.triu_indices(starts, starts, 1)
    noise = torch.randn(len(off), starts, off.shape[-1], dtype=weights.dtype)
    scores = nn.Parameter(3 * noise)
    optimizer = torch.optim.Adam([scores], lr=learning_rate, amsgrad=True)
    for _ in range(steps):
        with torch.enable_grad():
            found = scores.masked_fill(off, -math.inf).softmax(-1)
            gain = _js(found, weights) - 500 * (moved(found) - epsilon).relu()
            between = 2 * _js(found[:, one], found[:, other]) / starts**2
            loss = -gain.sum() - between.sum()
        # Not backward(), which would accumulate gradients in the model's parameters.
        (scores.grad,) = torch.autograd.grad(loss, scores)
        optimizer.step()
    return scores.detach().masked_fill(off, -math.inf).softmax(-1)


def _js(p: Tensor, q: Tensor) -> Tensor:
    middle = ((p + q) / 2 + _LOG).log()
    return (p * ((p + _LOG).log() - middle) + q * ((q + _LOG).log() - middle)).sum(-1) / 2


class PackedBiLSTM(Encoder):
    """The same encoder over packed sequences, as in the released code."""

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
    """Distance between predictions with and without each token, (B, N) (Jain & Wallace, 4.1)."""
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

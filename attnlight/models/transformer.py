"""The encoder of Vaswani et al. (2017) with layer norm before each part: x + MHA(LN x), h + FF(LN h)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.errors import InputError
from attnlight.functional import masked_softmax
from attnlight.models.classifier import make_dropout


def sinusoids(length: int, like: Tensor) -> Tensor:
    """Position signals (N, D): sines of D / 2 wavelengths from 2 pi to 20,000 pi, then cosines.

    Args:
        length: Number of positions N.
        like: Of the device, type and last size D of the result; D is even and at least 4.
    """
    half = like.shape[-1] // 2
    step = math.log(10_000) / (half - 1)
    # In double precision: the phase of a late position would lose digits.
    places = torch.arange(length, device=like.device, dtype=torch.float64)
    rates = torch.exp(-step * torch.arange(half, device=like.device, dtype=torch.float64))
    phases = places[:, None] * rates
    return torch.cat([phases.sin(), phases.cos()], dim=-1).to(like.dtype)


class SelfAttention(nn.Module):
    """Scaled dot-product attention of all tokens to all tokens of their text, with H heads.

    Args:
        size: Size D of a state, a multiple of `heads`.
        heads: Number of heads H.
        dropout: Dropout on the weights that values are mixed with.

    Raises:
        InputError: The sizes do not fit.
    """

    def __init__(self, size: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise InputError(f"hidden_size {size} is not a multiple of heads {heads}.")
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.dropout = make_dropout("attention_dropout", dropout)

    def weights(self, states: Tensor, mask: Tensor) -> Tensor:
        """Weights (B, H, N, N) of each token of states (B, N, D) on each that the mask (B, N) has."""
        queries, keys = self._split(self.query(states)), self._split(self.key(states))
        scores = (queries * keys.shape[-1] ** -0.5) @ keys.mT
        return masked_softmax(scores.to(states.dtype), mask)

    def values(self, states: Tensor) -> Tensor:
        """What is mixed, (B, H, N, D / H)."""
        values: Tensor = self._split(self.value(states)).to(states.dtype)
        return values

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """Heads (B, H, N, N) over values (B, H, N, D / H), side by side, (B, N, D)."""
        mixed: Tensor = self.dropout(weights) @ values
        return mixed.transpose(1, 2).flatten(2)

    def _split(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """Two affine maps of each state alone, with ReLU after either.

    The second ReLU is that of Yang's (2020) released encoder.

    Args:
        size: Size D of a state.
        filter_size: Size between the maps.
        dropout: Dropout after the first ReLU.
    """

    def __init__(self, size: int, filter_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(size, filter_size)
        self.outer = nn.Linear(filter_size, size)
        self.dropout = make_dropout("relu_dropout", dropout)

    @override
    def forward(self, states: Tensor) -> Tensor:
        """States (..., D) of states (..., D)."""
        inner = self.dropout(self.inner(states).relu())
        outer: Tensor = self.outer(inner).relu()
        return outer


class AfterAttention(nn.Module):
    """What a layer does with its heads' contexts: h = x + W c, then h + FF(LN h).

    Args:
        size: Size D of a state.
        filter_size: Size within the feed-forward part.
        dropout: Dropout within the feed-forward part.
    """

    def __init__(self, size: int, filter_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output = nn.Linear(size, size, bias=False)
        self.norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, filter_size, dropout)

    @override
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        """States (..., D) of contexts (..., D) and the tokens' own states (..., D)."""
        states = own + self.output(contexts)
        result: Tensor = states + self.feed_forward(self.norm(states))
        return result


class EncoderLayer(nn.Module):
    """One layer of the encoder.

    Args:
        size: Size D of a state.
        heads: Number of heads H.
        filter_size: Size within the feed-forward part.
        attention_dropout: Dropout on attention weights.
        relu_dropout: Dropout within the feed-forward part.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        filter_size: int,
        attention_dropout: float = 0.0,
        relu_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.attention = SelfAttention(size, heads, attention_dropout)
        self.after = AfterAttention(size, filter_size, relu_dropout)

    @override
    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N, D), and the attention (B, H, N, N) of the tokens of the mask (B, N)."""
        normed = self.norm(states)
        weights = self.attention.weights(normed, mask)
        contexts = self.attention.mix(weights, self.attention.values(normed))
        read = weights.masked_fill(~mask[:, None, :, None], 0.0)
        return self.after(contexts, states).to(states.dtype), read

"""The encoder of Vaswani et al. (2017) with layer norm before each part: x + MHA(LN x), h + FF(LN h)."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
        uniform: Heads that weigh all tokens alike; they have no queries and keys.

    Raises:
        InputError: The sizes do not fit, or there is no such head.
    """

    def __init__(
        self, size: int, heads: int, dropout: float = 0.0, uniform: Sequence[int] = ()
    ) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise InputError(f"hidden_size {size} is not a multiple of heads {heads}.")
        self.heads = heads
        self.uniform = _heads_named(uniform, heads)
        self.learned = [head for head in range(heads) if head not in self.uniform]
        scored = size // heads * len(self.learned)
        self.query, self.key = (
            nn.Linear(size, scored, bias=False) if scored else None for _ in range(2)
        )
        self.value = nn.Linear(size, size, bias=False)
        self.dropout = make_dropout("attention_dropout", dropout)

    def weights(self, states: Tensor, mask: Tensor, prior: Tensor | None = None) -> Tensor:
        """Weights (B, H, N, N) of each token of states (B, N, D) on each that the mask (B, N) has.

        Args:
            states: (B, N, D).
            mask: (B, N) bool.
            prior: Weights (B, H, N, N) that those of learned heads are proportional to, beside
                the exponential of their scores.
        """
        parts = []
        if self.query is not None and self.key is not None:
            queries, keys = self._split(self.query(states)), self._split(self.key(states))
            scores = ((queries * keys.shape[-1] ** -0.5) @ keys.mT).to(states.dtype)
            if prior is not None:
                tiny = torch.finfo(prior.dtype).tiny
                scores = scores + prior[:, self.learned].clamp(min=tiny).log()
            parts.append(masked_softmax(scores, mask))
        if not self.uniform:
            return parts[0]
        texts, items = mask.shape
        alike = masked_softmax(states.new_zeros(texts, 1, items, items), mask)
        parts.append(alike.expand(-1, len(self.uniform), -1, -1))
        if not self.learned:
            return parts[0]
        order = [*self.learned, *self.uniform]
        return torch.cat(parts, dim=1)[:, [order.index(head) for head in range(self.heads)]]

    def values(self, states: Tensor) -> Tensor:
        """What is mixed, (B, H, N, D / H)."""
        values: Tensor = self._split(self.value(states)).to(states.dtype)
        return values

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """Heads (B, H, N, N) over values (B, H, N, D / H), side by side, (B, N, D)."""
        mixed: Tensor = self.dropout(weights) @ values
        return mixed.transpose(1, 2).flatten(2)

    def _split(self, projected: Tensor) -> Tensor:
        size = self.value.out_features // self.heads
        return projected.view(*projected.shape[:2], -1, size).transpose(1, 2)


def _heads_named(named: Sequence[int], heads: int) -> list[int]:
    wrong = [head for head in named if not 0 <= head < heads]
    if wrong:
        raise InputError(f"there is no head {wrong[0]} to be uniform; heads are 0 to {heads - 1}.")
    return sorted(set(named))


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
        uniform: Let all heads weigh all tokens alike.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        filter_size: int,
        attention_dropout: float = 0.0,
        relu_dropout: float = 0.0,
        uniform: bool = False,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        alike = range(heads if uniform else 0)
        self.attention = SelfAttention(size, heads, attention_dropout, alike)
        self.after = AfterAttention(size, filter_size, relu_dropout)

    @override
    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N, D), and the attention (B, H, N, N) of the tokens of the mask (B, N)."""
        normed = self.norm(states)
        weights = self.attention.weights(normed, mask)
        contexts = self.attention.mix(weights, self.attention.values(normed))
        read = weights.masked_fill(~mask[:, None, :, None], 0.0)
        return self.after(contexts, states).to(states.dtype), read

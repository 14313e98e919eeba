"""The encoder of Vaswani et al. (2017), layer norm first: h = x + MHA(LN x), then h + FF(LN h)."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.errors import InputError
from attnlight.models.attention import NormalizerName, normalizer_of
from attnlight.probing.interception import interception_of


def sinusoids(length: int, like: Tensor) -> Tensor:
    """Position signals (N, D): sines of D / 2 wavelengths from 2 pi to 20,000 pi, then cosines.

    Device, type and D, which is even and at least 4, are those of `like`.
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
        dropout: Dropout on the attention weights.
        uniform: Heads with uniform attention; they have no queries and keys.
        normalizer: The function from scores to weights.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        dropout: float = 0.0,
        uniform: Sequence[int] = (),
        normalizer: NormalizerName = "softmax",
    ) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise InputError(f"hidden_size {size} is not a multiple of heads {heads}.")
        for head in uniform:
            if not 0 <= head < heads:
                raise InputError(
                    f"there is no head {head} to be uniform; heads are 0 to {heads - 1}."
                )
        self.size = size // heads  # of a head
        self.normalize = normalizer_of(normalizer)
        self.uniform = sorted(set(uniform))
        self.learned = [head for head in range(heads) if head not in self.uniform]
        scored = self.size * len(self.learned)
        self.query, self.key = (
            nn.Linear(size, scored, bias=False) if scored else None for _ in range(2)
        )
        self.value = nn.Linear(size, size, bias=False)
        self.dropout = nn.Dropout(dropout)

    @override
    def forward(
        self,
        states: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Attend to the tokens of each text.

        Args:
            states: (B, N, D).
            mask: Tokens that attention may reach, (B, N) bool.
            weights: Attention weights that replace the computed ones, (B, H, N, N).
            prior: Weights (B, H, N, N) by which the exponential of the scores is multiplied; uniform
                heads have the prior itself. In learned heads a weight below the smallest normal
                number is raised to it.

        Returns:
            The heads' concatenated contexts (B, N, D), their weights (B, H, N, N), values
            (B, H, N, D / H) and scores (B, H, N, N), None unless every head scores tokens.
        """
        scores = None
        if weights is None and prior is not None and not self.learned:
            weights = prior.to(states.dtype)  # in its memory layout, on which dropout depends
        elif weights is None:
            parts = []
            if self.query is not None and self.key is not None:
                queries, keys = (
                    part(states).unflatten(-1, (-1, self.size)).transpose(1, 2)
                    for part in (self.query, self.key)
                )
                scores = ((queries * self.size**-0.5) @ keys.mT).to(states.dtype)
                if prior is not None:
                    tiny = torch.finfo(prior.dtype).tiny
                    scores = scores + prior[:, self.learned].clamp(min=tiny).log()
                parts.append(self.normalize(scores, mask))
            if self.uniform and prior is not None:
                parts.append(prior[:, self.uniform].to(states.dtype))
            elif self.uniform:
                shape = len(mask), 1, mask.shape[1], mask.shape[1]
                uniform = self.normalize(states.new_zeros(shape), mask)
                parts.append(uniform.expand(-1, len(self.uniform), -1, -1))
            weights = parts[0]
            if self.uniform:
                scores = None
            if len(parts) > 1:
                order = [*self.learned, *self.uniform]
                places = [order.index(head) for head in range(len(order))]
                weights = torch.cat(parts, dim=1)[:, places]
        values = self.value(states).unflatten(-1, (-1, self.size)).transpose(1, 2)
        values = values.to(states.dtype)
        asked = interception_of(self)
        if asked is not None:
            weights = asked(weights, values, mask[:, None, None].expand_as(weights))
        mixed: Tensor = self.dropout(weights) @ values
        return mixed.transpose(1, 2).flatten(2), weights, values, scores


class AfterAttention(nn.Module):
    """The part of a layer after attention: h = x + W c, then h + FF(LN h).

    FF is two affine maps of each state alone, to `filter_size` and back, each followed by ReLU; the
    second ReLU is that of Yang's (2020) released encoder. Dropout is after the first.
    """

    def __init__(self, size: int, filter_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output = nn.Linear(size, size, bias=False)
        self.norm = nn.LayerNorm(size)
        self.feed_forward = nn.Sequential(
            OrderedDict(
                inner=nn.Linear(size, filter_size),
                relu=nn.ReLU(),
                dropout=nn.Dropout(dropout),
                outer=nn.Linear(filter_size, size),
                last=nn.ReLU(),
            )
        )

    @override
    def forward(self, contexts: Tensor, states: Tensor) -> Tensor:
        """New states (..., D) from the heads' contexts (..., D) and the input states (..., D)."""
        states = states + self.output(contexts)
        result: Tensor = states + self.feed_forward(self.norm(states))
        return result


class EncoderLayer(nn.Module):
    """One layer of the encoder: `SelfAttention`, whose heads may all be uniform, `AfterAttention`."""

    def __init__(
        self,
        size: int,
        heads: int,
        filter_size: int,
        attention_dropout: float = 0.0,
        relu_dropout: float = 0.0,
        uniform: bool = False,
        normalizer: NormalizerName = "softmax",
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        uniform_heads = range(heads if uniform else 0)
        self.attention = SelfAttention(size, heads, attention_dropout, uniform_heads, normalizer)
        self.after = AfterAttention(size, filter_size, relu_dropout)

    @override
    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N, D), and the attention (B, H, N, N) of the tokens of the mask (B, N)."""
        contexts, weights, *_ = self.attention(self.norm(states), mask)
        weights = weights.masked_fill(~mask[:, None, :, None], 0.0)
        return self.after(contexts, states).to(states.dtype), weights

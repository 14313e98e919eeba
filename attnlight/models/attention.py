"""Attention: scores of states (B, N, D), and the weights (B, N) computed from them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional import masked_entmax, masked_softmax
from attnlight.functional.random import draw_keys

AttentionName = Literal["additive", "dot", "scaled_dot", "uniform"]
RandomAttentionName = Literal["random_by_token", "random_by_text"]
NormalizerName = Literal["softmax", "sparsemax", "entmax15"]
# From scores (B, ..., N) and a mask (B, N) to weights, 0 off the mask.
Normalizer = Callable[[Tensor, Tensor], Tensor]
NORMALIZERS: dict[str, Normalizer] = {
    "softmax": masked_softmax,
    "sparsemax": partial(masked_entmax, alpha=2.0),
    "entmax15": partial(masked_entmax, alpha=1.5),
}


def normalizer_of(name: str) -> Normalizer:
    """The function from scores to weights that an option names."""
    if name in NORMALIZERS:
        return NORMALIZERS[name]
    reason = ""
    if name == "sigmoid":
        reason = (
            ", whose weights do not sum to 1, so that a state has no share of attention to test"
        )
    raise InputError(f"normalizer is {name}{reason}; expected one of: {', '.join(NORMALIZERS)}.")


def tanh(values: Tensor) -> Tensor:
    """Hyperbolic tangent; where no gradient is recorded, with an error of a few machine epsilons.

    On a CPU the logistic function is several times as fast as torch's tanh. In half precision its
    error would be too large near 0.
    """
    if torch.is_grad_enabled() or not values.is_cpu or values.element_size() < 4:
        return torch.tanh(values)
    return (values * 2).sigmoid_().mul_(2).sub_(1)


class Attention(nn.Module, ABC):
    """Base class of the attention scorers.

    Args:
        size: Size D of a state.
        query_size: Size Q of the query vectors; None: no query.
        attention_size: Size of the scorer's hidden layer, if it has one; None: its default.
        normalizer: The function from scores to weights.

    Raises:
        InputError: `attention_size` is not positive, or there is no such normalizer.
    """

    def __init__(
        self,
        size: int,
        query_size: int | None = None,
        attention_size: int | None = None,
        normalizer: NormalizerName = "softmax",
    ) -> None:
        super().__init__()
        require_at_least(1, attention_size=attention_size)
        self.size, self.query_size = size, query_size
        self.normalize = normalizer_of(normalizer)
        self.build(attention_size)

    def build(self, attention_size: int | None) -> None:
        """Make the parameters, if the scorer has any; raises `InputError` for sizes that do not fit."""

    def forward(
        self, states: Tensor, mask: Tensor, query: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Weights (B, N), each row summing to 1 over the mask and exactly 0 elsewhere, and scores.

        Args:
            states: (B, N, D).
            mask: Items that attention may reach, (B, N) bool.
            query: (B, Q), required if and only if the scorer has a `query_size`.
        """
        if (query is None) != (self.query_size is None):
            expected = "no query" if self.query_size is None else f"a query (B, {self.query_size})"
            raise ValueError(f"{type(self).__name__} expects {expected}")
        scores = self.score(states, query).to(states.dtype)  # half precision under autocast
        return self.normalize(scores, mask), scores

    def score(self, states: Tensor, query: Tensor | None) -> Tensor:
        """Scores (B, N) of states (B, N, D), given queries (B, Q) or None."""
        return self.score_keys(self.keys(states, query), query)

    @abstractmethod
    def keys(self, states: Tensor, query: Tensor | None, part: slice | None = None) -> Tensor:
        """Affine map (B, N, K) of states (B, N, D), given queries (B, Q) or None.

        With a `part` of the D elements, states (B, N, P) are what these add to the map.
        """

    def score_keys(self, keys: Tensor, query: Tensor | None) -> Tensor:
        """Scores (B, N) of keys (B, N, K), given queries (B, Q) or None; K is 1 unless overridden."""
        return keys.squeeze(-1)


class AdditiveAttention(Attention):
    """`v . tanh(W h + b)`, with a query `v . tanh(W h + b + W_q q + b_q)`.

    Bahdanau et al. (2015). W maps D to `attention_size`, by default D / 2 as in Jain and Wallace
    (2019); in Serrano and Smith (2019) it maps D to D. Arguments and errors are those of
    `Attention`.
    """

    @override
    def build(self, attention_size: int | None) -> None:
        inner = max(1, self.size // 2) if attention_size is None else attention_size
        self.key = nn.Linear(self.size, inner)
        self.query = None if self.query_size is None else nn.Linear(self.query_size, inner)
        self.value = nn.Linear(inner, 1, bias=False)

    @override
    def keys(self, states: Tensor, query: Tensor | None, part: slice | None = None) -> Tensor:
        keys: Tensor = (
            self.key(states) if part is None else linear(states, self.key.weight[:, part])
        )
        return keys

    @override
    def score_keys(self, keys: Tensor, query: Tensor | None) -> Tensor:
        if self.query is not None:
            keys = keys + self.query(query).unsqueeze(1)
        scores: Tensor = self.value(tanh(keys)).squeeze(-1)
        return scores


class DotAttention(Attention):
    """`w . h` with learned w; with a query, `q . h` without parameters.

    Arguments are those of `Attention`; `attention_size` is not used.
    """

    scaled: ClassVar[bool] = False

    @override
    def build(self, attention_size: int | None) -> None:
        if self.query_size not in (None, self.size):
            raise InputError(
                f"dot attention over states of size {self.size} needs queries of that size; "
                f"query_size is {self.query_size}."
            )
        self.key = nn.Linear(self.size, 1, bias=False) if self.query_size is None else None

    @override
    def keys(self, states: Tensor, query: Tensor | None, part: slice | None = None) -> Tensor:
        part = slice(None) if part is None else part
        if self.key is not None:
            keys = linear(states, self.key.weight[:, part])
        else:
            assert query is not None
            keys = states @ query[:, part].unsqueeze(-1)
        return keys / math.sqrt(self.size) if self.scaled else keys


class ScaledDotAttention(DotAttention):
    """Dot attention with scores divided by the square root of D, the `dot` of Jain and Wallace."""

    scaled = True


class UniformAttention(Attention):
    """The same weight for every item, whatever its state and the query; no parameters."""

    @override
    def keys(self, states: Tensor, query: Tensor | None, part: slice | None = None) -> Tensor:
        return states.new_zeros(*states.shape[:2], 1)


class RandomAttention(Attention):
    """Random attention that is not trained: the same scores in every epoch and on every device.

    A score is a normal draw of mean 0, a function of the token's id: the same word has the same
    score in all texts. Its standard deviation is drawn once from 0.5 to 2, so that models of several
    seeds differ in how peaked their attention is. The scores are passed as the `query`.
    """

    by_text: ClassVar[bool] = False  # whether a word has other scores in other texts
    _SPREADS: ClassVar[tuple[float, float]] = (0.5, 2.0)
    seed: Tensor
    spread: Tensor

    @override
    def build(self, attention_size: int | None) -> None:
        if self.query_size is not None:
            raise InputError("random attention is for classifiers of single texts.")
        self.query_size = 0  # it reads the scores that were drawn
        self.register_buffer("seed", torch.randint(1 << 62, ()))
        self.register_buffer("spread", torch.empty(()).uniform_(*self._SPREADS))

    def draw(self, batch: TextBatch) -> Tensor:
        """The scores of a batch's tokens, (B, N)."""
        pairs = batch.tokens, torch.zeros_like(batch.tokens)
        if self.by_text:
            pairs = batch.index[:, None].expand_as(batch.tokens), batch.tokens
        index, position = (numbers.flatten() for numbers in pairs)
        bits = draw_keys(int(self.seed), index, position, draws=1, length=1).view(pairs[0].shape)
        uniform = ((bits >> 11) & ((1 << 53) - 1)).double().add(0.5) / (1 << 53)
        draws: Tensor = torch.special.ndtri(uniform) * self.spread
        return draws.to(self.spread.dtype)

    @override
    def keys(self, states: Tensor, query: Tensor | None, part: slice | None = None) -> Tensor:
        assert query is not None
        return query.unsqueeze(-1)


class RandomAttentionByText(RandomAttention):
    """`RandomAttention` whose scores are a function of the text's index and the token's id."""

    by_text = True


ATTENTIONS: dict[str, type[Attention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "scaled_dot": ScaledDotAttention,
    "uniform": UniformAttention,
}
RANDOM_ATTENTIONS: dict[str, type[Attention]] = {
    "random_by_token": RandomAttention,
    "random_by_text": RandomAttentionByText,
}

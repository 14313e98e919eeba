"""Penalties of states: that they be unlike each other, near their words, or tell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnlight.batch import SPECIAL_TOKENS, AttentionOutput, TextBatch
from attnlight.functional import draw_keys
from attnlight.functional.mean_cosines import mean_cosines
from attnlight.models import ENCODERS
from attnlight.models.build import CUSTOM
from attnlight.tasks.options import Objective

_SHARE = 0.15  # of the states, which are asked for their words


class WordHead(nn.Linear):
    """Logits (..., V) of words from states (..., D), for training alone.

    Attributes:
        seed: Seed of the states that are asked.
        epoch: Epoch of training, in each of which other states are asked.
    """

    def __init__(self, size: int, words: int, seed: int) -> None:
        super().__init__(size, words)
        self.seed, self.epoch = seed, 0

    def asked(self, index: Tensor, length: int) -> Tensor:
        """Places that are asked of texts of dataset rows `index` (B,), (B, N) bool.

        A function of seed, row, place and, in training, epoch: nothing else of a batch counts.
        """
        draw = torch.full_like(index, self.epoch if self.training else -1)
        keys = draw_keys(self.seed, index, draw, draws=1, length=length)[:, 0]
        return (keys >> 11) & ((1 << 53) - 1) < round(_SHARE * (1 << 53))


def diversity(
    output: AttentionOutput, batch: TextBatch, objective: Objective
) -> tuple[Tensor, Tensor]:
    """Conicity (Mohankumar et al. 2020): mean cosine of the states with their mean, by size unless `signed`.

    It is defined of texts with two items or more: a single state is the mean.
    """
    cosines = mean_cosines(output.states, output.mask)
    several = output.mask.sum(-1, keepdim=True) > 1
    return _mean(cosines if objective.signed else cosines.abs(), output.mask & several)


def tying(
    output: AttentionOutput,
    batch: TextBatch,
    objective: Objective,
    embed: Callable[[TextBatch], Tensor],
) -> tuple[Tensor, Tensor]:
    """Mean distance (L2) of the states from the embeddings of their words (Tutek & Snajder 2020)."""
    return _mean((output.states - embed(batch)).norm(dim=-1), output.mask)


def masked_words(
    output: AttentionOutput, batch: TextBatch, objective: Objective, head: WordHead
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy in nats of the words of 15 % of the states (Tutek & Snajder 2020).

    The encoder reads these words: what is asked is whether a state has kept its own.
    """
    asked = output.mask & head.asked(batch.index, output.mask.shape[1])
    losses = cross_entropy(head(output.states[asked]), batch.tokens[asked], reduction="none")
    values = output.states.new_zeros(asked.shape).masked_scatter(asked, losses.to(output.states))
    return _mean(values, asked)


def _mean(values: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of values (R, N) over items (R, N) bool, 0 where there is none, and where there is, (R,)."""
    count = items.sum(-1)
    return values.masked_fill(~items, 0.0).sum(-1) / count.clamp(min=1), count > 0


def undefined(
    name: str,
    problem: str,
    net: Mapping[str, Any],
    model: Any,  # noqa: ANN401
    vocab_size: int,
) -> str | None:
    """Why a penalty of states is not defined for a network; None: it is.

    Args:
        name: `diversity`, `tying` or `masked_words`.
        problem: Name of the problem.
        net: Options of the network.
        model: The network.
        vocab_size: Number of token ids V.
    """
    if problem not in ("classification", "pairs") or CUSTOM in net:
        return "is for attnlight's own classifiers of texts and pairs: leave it out"
    if ENCODERS[net["encoder"]].reach == 0:
        encoder = net["encoder"]
        return f"is for states that read other words, but encoder {encoder} reads each word alone"
    if name != "diversity" and net.get("hierarchical"):
        return "is for states of words, but those of a hierarchical classifier are of sentences"
    sizes = model.decoder.in_features, net["embedding_size"]
    if name == "tying" and sizes[0] != sizes[1]:
        return (
            f"needs states of the size of embeddings, but they have {sizes[0]} numbers and embeddings "
            f"{sizes[1]}: change hidden_size or embedding_size"
        )
    words = vocab_size - len(SPECIAL_TOKENS)
    if name == "masked_words" and words < 2:
        return f"needs a choice of words, but the vocabulary has {max(words, 0)}: leave it out"
    return None

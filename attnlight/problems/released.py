"""Adversaries' losses on the scale of the papers' released code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch

Gather = Callable[[Tensor], Tensor]  # values (...) of each rank, (ranks, ...)
Terms = tuple[Tensor, Tensor]  # of the prediction and of attention, (R,) and (R,)


@dataclass(frozen=True)
class ReleasedLoss:
    """An adversary's loss on the scale of a paper's released code.

    Attributes:
        of: The kind of corpus that it is for, in words.
        scaled: Scales both terms, given the batch, the model's output and, in training, a function
            that gathers values from all ranks.
        class_weights: Weights of the classes, (C,), from how often they occur in training; the sum
            of the losses is multiplied by the sum of the weights of the batch's gold classes. None:
            the task's own reduction.
        classes: Number of classes; None: any.
    """

    of: str
    scaled: Callable[[Terms, TextBatch, AttentionOutput, Gather | None], Terms]
    class_weights: Callable[[Sequence[int]], Tensor] | None = None
    classes: int | None = None


def _mean_over_elements(
    terms: Terms, batch: TextBatch, output: AttentionOutput, gather: Gather | None
) -> Terms:
    if gather is None:
        return terms[0], terms[1] * (1 / output.mask.sum(-1))
    sizes = [(output.rows[:, 0] >= 0).sum(), (batch.index >= 0).sum()]
    sizes.append(sizes[0].new_full((), batch.tokens.shape[1]))
    rows, texts, items = gather(torch.stack(sizes)).unbind(-1)
    return terms[0], terms[1] * (rows.sum() / (texts.sum() * items.amax() ** 2))


# Half the difference of probability, sums over the batch, and all of it times the sum of the weights
# of the batch's gold classes: 1 for the first class, n_0 / n_1 for the second.
WIEGREFFE_PINTER = ReleasedLoss(
    of="two classes",
    scaled=lambda terms, *_: (terms[0] / 2, terms[1]),
    class_weights=lambda counts: torch.tensor([1.0, counts[0] / counts[1]]),
    classes=2,
)
# The KL of all tokens and heads is divided by the B H N N elements of the batch as it is padded, not
# by its rows, so that a row counts 1 / N; in evaluation one over the length of its own sentence, so
# that batches change nothing. As in that code, padding is in the divisor and a batch of long sentences
# counts less. Unlike there, padding is not in the negative log-likelihood, which is the mean over
# tokens, the KL is of weights before dropout, and the best epoch is kept, not the last.
YANG = ReleasedLoss("target tokens", _mean_over_elements)

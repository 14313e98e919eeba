"""The adversarial losses of the papers' released code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch

Gather = Callable[[Tensor], Tensor]  # from values (...) to those of all ranks, (ranks, ...)
Terms = tuple[Tensor, Tensor]  # prediction and attention term, (R,) and (R,)


@dataclass(frozen=True)
class ReleasedLoss:
    """An adversary's loss on the scale of a paper's released code.

    Attributes:
        scope: The corpora that it applies to, in words.
        scale: Scales both terms, given the batch, the model's output and, in training, a function
            that gathers values from all ranks.
        class_weights: From the counts of the classes in training to their weights, (C,); the sum of
            the losses is multiplied by the sum of the weights of the batch's gold classes. None: the
            reduction of the task.
        classes: Number of classes; None: any.
    """

    scope: str
    scale: Callable[[Terms, TextBatch, AttentionOutput, Gather | None], Terms]
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


# Half the difference of probability, summed over the batch, times the sum of the weights of the
# batch's gold classes: 1 for the first class, n_0 / n_1 for the second.
WIEGREFFE_PINTER = ReleasedLoss(
    scope="two classes",
    scale=lambda terms, *_: (terms[0] / 2, terms[1]),
    class_weights=lambda counts: torch.tensor([1.0, counts[0] / counts[1]]),
    classes=2,
)
# The KL of all tokens and heads is divided by the B H N N elements of the padded batch instead of its
# rows, so that a row is weighted by 1 / N; in evaluation by one over the length of its sentence, so
# that results do not depend on the batches. As in that code, the divisor includes padding, and a
# batch of long sentences has less weight. Unlike there, the negative log-likelihood is the mean over
# tokens without padding, the KL is of weights before dropout, and the best epoch is used, not the
# last.
YANG = ReleasedLoss("target tokens", _mean_over_elements)

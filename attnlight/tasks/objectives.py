"""Objectives beside the loss: penalties of each instance, weighted by `Objective`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric, SumMetric

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError, did_you_mean
from attnlight.functional import evidence_divergence, impermissible_penalty
from attnlight.functional.readout.instances import marked_items, texts_of_rows
from attnlight.tasks.options import Objective
from attnlight.tasks.state_penalties import WordHead, diversity, masked_words, tying, undefined

# From the output for a batch and the options to the penalty of each instance (R,), 0 where it is not
# defined, and whether it is defined (R,) bool. `tying` is given the embedding too, `masked_words` a head.
Penalty = Callable[..., tuple[Tensor, Tensor]]
LINKS = "links"  # the column of `objective` that names the links of translations
_BATCH = 256  # texts that are looked at together before training


def deceive(
    output: AttentionOutput, batch: TextBatch, objective: Objective
) -> tuple[Tensor, Tensor]:
    """-log(1 - attention on impermissible items), the deceptive attention of Pruthi et al. (2020).

    Of a translation's `links` it is of the mean attention over the target tokens of a sentence.
    """
    scores, impermissible = _scores_and_marks("deceive", output, batch, objective.column)
    by_head = impermissible_penalty(scores, impermissible, output.mask)
    defined = impermissible.any(-1) & (output.mask & ~impermissible).any(-1)
    if objective.column == LINKS:
        text = texts_of_rows(output.rows)
        by_head = _of_sentences(by_head, text)
        defined = torch.zeros_like(by_head[:, 0]).index_add(0, text, defined.to(by_head))[text] > 0
    penalty = by_head.mean(-1) if objective.aggregate == "mean" else by_head.amax(-1)
    return penalty, defined


def supervise(
    output: AttentionOutput, batch: TextBatch, objective: Objective
) -> tuple[Tensor, Tensor]:
    """KL divergence in nats of attention from the uniform distribution over the marked items.

    Supervised attention (Liu et al. 2017; Mi et al. 2016), towards rationales (Bao et al. 2018). It is
    defined of instances with a marked item.
    """
    scores, marked = _scores_and_marks("supervise", output, batch, objective.column)
    by_head = evidence_divergence(scores, marked, output.mask)
    penalty = by_head.mean(-1) if objective.aggregate == "mean" else by_head.amax(-1)
    return penalty, marked.any(-1)


def _of_sentences(values: Tensor, text: Tensor) -> Tensor:
    """The penalty of the mean attention over the rows of each row's sentence `text` (R,), (R, H).

    The attention m of each row is given as -log(1 - m), (R, H).
    """
    sentences = int(text.amax()) + 1 if len(text) else 0
    permitted = values.new_zeros(sentences, values.shape[1])
    counts = torch.bincount(text, minlength=sentences)[:, None]
    # Relative to the least penalty of the sentence, so that none vanishes by rounding.
    index = text[:, None].expand_as(values)
    least = torch.full_like(permitted, torch.inf).scatter_reduce(0, index, values.detach(), "amin")
    total = permitted.index_add(0, text, (least[text] - values).exp())
    return (least - (total / counts).log())[text]


def _scores_and_marks(
    name: str, output: AttentionOutput, batch: TextBatch, column: str
) -> tuple[Tensor, Tensor]:
    """Scores (R, H, N) of a penalty's attention, and the items (R, N) that a column marks."""
    marks = batch.links if column == LINKS else batch.extras.get(column)
    if marks is None:
        raise _no_column(name, column, list(batch.extras))
    if output.scores is None:
        raise _untrained(name)
    if column == LINKS:
        linked = marks[texts_of_rows(output.rows), output.rows[:, 1]] > 0
        return output.scores, linked & output.mask
    if marks.shape != batch.tokens.shape:
        raise InputError(
            f"the column {column} of a batch is of shape {tuple(marks.shape)}; expected "
            f"{tuple(batch.tokens.shape)}, a number for each token."
        )
    return output.scores, marked_items(marks > 0, batch, output)


# Weighted by `lambda_<name>`: of attention on marked items, by which epochs are chosen, and of states.
MARKED: dict[str, Penalty] = {"deceive": deceive, "supervise": supervise}
PENALTIES = MARKED | {"diversity": diversity, "tying": tying, "masked_words": masked_words}


class Penalties(nn.Module):
    """The penalties of an objective whose weight is positive, and their metrics by stage.

    Attributes:
        head: What `masked_words` trains beside the model, from `start` on.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        weights = {name: getattr(objective, f"lambda_{name}") for name in PENALTIES}
        for name, weight in weights.items():
            if not 0 <= weight < math.inf:
                raise InputError(
                    f"lambda_{name} is {weight}; it must be a finite number of at least 0."
                )
        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.marked = [name for name in MARKED if name in self.weights]
        self.head: WordHead | None = None
        self._embed: Callable[[TextBatch], Tensor] | None = None
        if len(self.marked) > 1:
            raise InputError(
                "lambda_deceive keeps attention off the items that lambda_supervise draws it to: set "
                "one of them to 0."
            )
        kinds: dict[str, type[Metric]] = {"": MeanMetric, "without_": SumMetric}
        self.metrics = nn.ModuleDict(
            {
                f"{stage}/{kind}{name}": metric(nan_strategy="disable")
                for stage in ("train", "val")
                for name in self.weights
                for kind, metric in kinds.items()
            }
        )

    def require_defined(
        self,
        problem: str,
        net: Mapping[str, Any],
        model: Any,  # noqa: ANN401
        vocab_size: int,
    ) -> None:
        """Raise `InputError` if a penalty is not defined for a network of these options."""
        normalizer = net.get("normalizer", "softmax")
        for name in self.weights:
            reason = None
            if name not in MARKED:
                reason = undefined(name, problem, net, model, vocab_size)
            elif normalizer != "softmax":
                reason = f"is for attention above 0, but that of normalizer {normalizer} may be 0"
            if reason is not None:
                raise InputError(f"lambda_{name} {reason}.")

    def start(self, model: Any, vocab_size: int) -> None:  # noqa: ANN401
        """Begin to train a model, with a head of its own where one is needed."""
        self._embed = model.embed
        if "masked_words" in self.weights and self.head is None:
            size = model.decoder.in_features
            self.head = WordHead(size, vocab_size, torch.initial_seed())

    def forward(
        self, output: AttentionOutput, batch: TextBatch, real: Tensor, stage: str
    ) -> Tensor:
        """The weighted sum of each instance's penalties, (R,), 0 unless `real` (R,).

        The metrics of the stage, `train` or `val`, are updated.
        """
        more: dict[str, list[Any]] = {"tying": [self._embed], "masked_words": [self.head]}
        total = torch.zeros_like(real, dtype=output.logits.dtype)
        for name, weight in self.weights.items():
            penalty, defined = PENALTIES[name](output, batch, self.objective, *more.get(name, []))
            if stage == "train" and not penalty.requires_grad:
                raise _untrained(name)
            defined = defined & real
            logged = self.logged(stage)
            logged[f"{stage}/{name}"].update(penalty.detach()[defined])
            logged[f"{stage}/without_{name}"].update((real & ~defined).sum())
            total = total + weight * penalty * real
        return total

    def logged(self, stage: str) -> dict[str, Metric]:
        """The metrics of a stage by the names under which they are logged."""
        metrics = self.metrics.items()
        return {name: metric for name, metric in metrics if name.startswith(stage)}  # type: ignore[misc]

    def require_marks(self, texts: Any) -> None:  # noqa: ANN401
        """Raise `InputError` if a penalty is defined for no text of a `TokenDataset`."""
        if not self.marked:
            return
        column, (name,) = self.objective.column, self.marked
        if column == LINKS and LINKS in texts.table.column_names:
            return
        if column not in texts.extras:
            raise _no_column(name, column, texts.extras)
        for start in range(0, len(texts), _BATCH):
            batch = texts[range(start, min(start + _BATCH, len(texts)))]
            marked, items = batch.extras[column] > 0, batch.attendable()
            if marked.ndim > 2:
                marked, items = marked.any(-1), items.any(-1)
            useful = (items & marked).any(-1)
            if name == "deceive":
                useful &= (items & ~marked).any(-1)
            if useful.any():
                return
        deceit = name == "deceive"
        raise InputError(
            f"lambda_{name} has no effect: in each of the {len(texts):,} training texts the column "
            f"{column} marks {'every item or none' if deceit else 'no item'}; expected texts with "
            f"{'both' if deceit else 'marked items'}."
        )


def _untrained(name: str) -> InputError:
    """The error of a model whose attention a penalty cannot train."""
    return InputError(
        f"lambda_{name} needs attention whose scores are trained; that of this model is uniform, "
        "given, or without `AttentionOutput.scores`."
    )


def _no_column(name: str, column: str, available: list[str]) -> InputError:
    """The error of a corpus without the column of a penalty."""
    found = ", ".join(available) or "none"
    return InputError(
        f"lambda_{name} needs a corpus with the column {column} along the tokens (`marks` or "
        f"`extras` of `data`, or `column` of `objective`); the columns of this one: {found}"
        f"{did_you_mean(column, available)}."
    )

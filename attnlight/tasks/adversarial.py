"""A model that predicts like the base and attends unlike it (Wiegreffe & Pinter 2019, 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import total_variation
from attnlight.functional.divergence import divergence_to_constant
from attnlight.problems import problem_class
from attnlight.tasks.from_base import FromBase

PredictionTerm = Literal["nll", "tvd"]
AttentionTerm = Literal["kl", "js", "tvd"]


def prediction_term(logits: Tensor, base_logits: Tensor, term: PredictionTerm) -> Tensor:
    """How far a prediction is from the base's, (R,).

    Args:
        logits: (R, C).
        base_logits: (R, C).
        term: `nll`, the negative log-likelihood of the class that the base predicts, in nats, or
            `tvd`, the total variation distance (two classes: the difference of probability).
    """
    if term == "nll":
        return cross_entropy(logits, base_logits.argmax(dim=-1), reduction="none")
    return total_variation(logits.softmax(dim=-1), base_logits.softmax(dim=-1))


def attention_term(weights: Tensor, base_weights: Tensor, term: AttentionTerm) -> Tensor:
    """How far attention is from the base's, the mean over heads, (R,).

    KL, of the new from the base's, is finite: where the base's weight is below the smallest normal
    float32 (1.2e-38: it underflowed, or is little more than nothing) it counts as that, so that
    an item adds at most 87 nats times its new weight. A new weight of 0 adds nothing.

    Args:
        weights: (R, H, N), 0 off the mask.
        base_weights: (R, H, N), 0 off the mask.
        term: `kl` or `js`, in nats, or `tvd`.
    """
    if term == "kl":
        base_weights = base_weights.clamp(min=torch.finfo(torch.float32).tiny)
    return divergence_to_constant(base_weights, weights, term).mean(dim=-1)


class AdversarialVariant(FromBase):
    """The base's network, trained anew to predict like it and to attend unlike it.

    The loss of an instance is `prediction_term - lambda * attention_term`, both against the base's
    frozen outputs; no gold label has a part in it. The attention term is the mean over heads, and the
    loss that over the instances of the batch, so that lambda weighs a row of attention, whatever its
    length; neither padding nor a query outside the text enters it. In a hierarchical model the
    attention is that over sentences, in a tagger that of the last layer, before dropout. Lambda 0 is
    the imitation control: how far attention moves where nothing asks it to. `val/loss` is the
    objective (with lambda in full), by which `configs/trainer.yaml` chooses the epoch; other metrics
    are against gold.

    Heads are compared one by one in their order, as in Yang (2020): an adversary gains by exchanging
    its heads, too. `BaseDivergence` undoes that before it measures.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        base: Checkpoint of the base model, or the folder of its run.
        lambda_: Weight of the attention term, at least 0.
        prediction_term: `tvd`, total variation distance of the predictions, or `nll` of the base's
            predicted classes; null: `tvd` of a classifier, `nll` of a tagger, as published.
        attention_term: `kl` of the new attention from the base's, `js` or `tvd`.
        lambda_warmup_epochs: Let lambda rise from 0 in a straight line over so many epochs.
        compat: The loss on the scale of the paper's released code, see `attnlight.problems.released`:
            of a classifier with two classes, `tvd` and `kl`; of a tagger of target `tokens`, `nll`
            and `kl`.
        options: What differs from the base's training, see `FromBase`; `loss.reduction` is `mean`
            unless given here.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        lambda_: float,
        prediction_term: PredictionTerm | None = None,
        attention_term: AttentionTerm = "kl",
        lambda_warmup_epochs: float = 0.0,
        compat: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, base, **options)
        for name in ("lambda_", "lambda_warmup_epochs"):
            value = self.hparams[name]
            if not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; it must be a number of at least 0.")
        problem = problem_class(self.hparams["problem"])
        published = problem.adversary_terms
        self.hparams["prediction_term"] = prediction_term or published[0]
        released = problem.released if compat else None
        if compat and released is None:
            raise InputError(f"compat is not known for {problem.name}: leave it out.")
        if compat and published != (self.hparams["prediction_term"], attention_term):
            raise InputError(
                f"compat is the released loss, of prediction_term {published[0]} and "
                f"attention_term {published[1]}."
            )
        counts = (None, len(spec["classes"]))
        if released and (spec["target"] != "tokens" or released.classes not in counts):
            raise InputError(f"compat is the released loss of {released.of}: leave it out.")
        self._build(self.net, loss={"reduction": "mean"})
        self._released = released
        self._class_weights = None if released is None else released.class_weights
        self._frozen = self.reference
        self._lambda = lambda_

    @classmethod
    @override
    def monitor(cls, arguments: Mapping[str, Any]) -> tuple[str, str]:
        return "val/loss", "min"

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        full, rising = self.hparams["lambda_"], self.hparams["lambda_warmup_epochs"]
        epochs = self.current_epoch + batch_idx / self.trainer.num_training_batches
        self._lambda = full if epochs >= rising else full * epochs / rising

    @override
    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        weights, logits = self._outputs().read(output.rows, output.mask)
        prediction = prediction_term(output.logits, logits, self.hparams["prediction_term"])
        attention = attention_term(output.weights, weights, self.hparams["attention_term"])
        if self._released is not None:
            gather = self._of_all_ranks if self.training else None
            terms = (prediction, attention)
            prediction, attention = self._released.scaled(terms, batch, output, gather)
        return prediction - (self._lambda if self.training else self.hparams["lambda_"]) * attention

    @override
    def _reduced(self, losses: Tensor, real: Tensor, batch: TextBatch) -> Tensor:
        if self._class_weights is None:
            return super()._reduced(losses, real, batch)
        weights = self.class_weight[self.problem.labels(batch)] * real
        return losses.sum() * self._of_all_ranks(weights.sum()).sum()

"""A model that predicts like the base and attends unlike it (Wiegreffe & Pinter 2019, 4)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import total_variation
from attnlight.functional.divergence import divergence_from
from attnlight.reference import Reference
from attnlight.tasks.inheritance import Variant
from attnlight.tasks.variants import TrainingOptions, VariantTask

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
    return divergence_from(base_weights, weights, term).mean(dim=-1)


class Adversary(Variant):
    """What is shared by adversaries of classifiers and of taggers.

    The loss of a row is `prediction_term - lambda * attention_term`, both against the base's frozen
    outputs. A subclass keeps `lambda_`, `lambda_warmup_epochs`, `prediction_term` and
    `attention_term` as hyperparameters and calls `_prepare`.
    """

    monitor: ClassVar[tuple[str, str]] = ("val/loss", "min")

    def _prepare(self) -> None:
        """Refuse numbers out of range and build the base's architecture."""
        for name in ("lambda_", "lambda_warmup_epochs"):
            value = self.hparams[name]
            if not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; it must be a number of at least 0.")
        self._inherit(loss_reduction="mean")
        self._lambda: float = self.hparams["lambda_"]

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self._lambda = self._scheduled(
            self.current_epoch + batch_idx / self.trainer.num_training_batches
        )

    def _scheduled(self, epochs: float) -> float:
        """Lambda after some epochs of training."""
        full: float = self.hparams["lambda_"]
        rising: float = self.hparams["lambda_warmup_epochs"]
        return full if epochs >= rising else full * epochs / rising

    @override
    def _read_references(self) -> list[Reference]:
        return [self.reference]

    def _terms(self, output: AttentionOutput) -> tuple[Tensor, Tensor]:
        """The prediction's and the attention's term of each row, (R,) and (R,)."""
        weights, logits = self._outputs(self.reference).read(output.rows, output.mask)
        prediction = prediction_term(output.logits, logits, self.hparams["prediction_term"])
        return prediction, attention_term(output.weights, weights, self.hparams["attention_term"])

    @property
    def _strength(self) -> float:
        """Lambda as it is now: in full in evaluation."""
        return self._lambda if self.training else self.hparams["lambda_"]


class AdversarialClassifier(Adversary, VariantTask):
    """The base's architecture, trained anew to predict like it and to attend unlike it.

    The loss of a text is `prediction_term - lambda * attention_term`, both against the base's
    frozen outputs; no gold label has a part in it. Lambda 0 is the imitation control: how far
    attention moves where nothing asks it to. In a hierarchical model the attention is that over
    sentences. `val/loss` is the objective (with lambda in full), by which `configs/trainer.yaml`
    chooses the epoch; accuracy and the other metrics are against gold labels.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        base: Checkpoint of the base model.
        lambda_: Weight of the attention term, at least 0.
        prediction_term: `tvd`, total variation distance of the predictions, or `nll` of the
            base's predicted classes.
        attention_term: `kl` of the new attention from the base's, `js` or `tvd`.
        lambda_warmup_epochs: Let lambda rise from 0 in a straight line over so many epochs.
        compat: The loss as released: half the difference of probability, sums over the batch, and
            all of it times the sum of the batch's gold class weights (1 for the first class,
            n_0 / n_1 for the second). For two classes, `tvd` and `kl`.
        training: Options of training that differ from the base's; `loss_reduction` is `mean`
            unless given here.
        inherited: What is known of the base; null reads it from its checkpoint.

    Raises:
        InputError: The base cannot be read, has no attention or is of another corpus, or an option
            is out of range.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        base: str,
        lambda_: float,
        prediction_term: PredictionTerm = "tvd",
        attention_term: AttentionTerm = "kl",
        lambda_warmup_epochs: float = 0.0,
        compat: bool = False,
        training: TrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if compat and (num_classes, prediction_term, attention_term) != (2, "tvd", "kl"):
            raise InputError(
                "compat is the released loss, for two classes, prediction_term tvd and "
                "attention_term kl."
            )
        self._prepare()

    @override
    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        prediction, attention = self._terms(output)
        return prediction / (2 if self.hparams["compat"] else 1) - self._strength * attention

    @override
    def _reduced(self, losses: Tensor, real: Tensor, batch: TextBatch) -> Tensor:
        if not self.hparams["compat"]:
            return super()._reduced(losses, real, batch)
        assert batch.labels is not None
        weights = self.class_weight[batch.labels] * real
        return losses.sum() * self._of_all_ranks(weights.sum()).sum()

    @override
    def _weigh_classes(self) -> None:
        if not self.hparams["compat"]:
            return
        first, second = self.trainer.datamodule.label_counts  # type: ignore[attr-defined]
        self.class_weight.copy_(torch.tensor([1.0, first / second]))

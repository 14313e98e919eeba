"""Adversarial models predict like the base and attend differently (Wiegreffe & Pinter 2019, 4)."""

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
    """Distance (R,) between the predictions of the model and the base, of logits (R, C) each.

    It is `nll`, the negative log-likelihood of the class that the base predicts, in nats, or `tvd`,
    the total variation distance (two classes: the difference of probability).
    """
    if term == "nll":
        return cross_entropy(logits, base_logits.argmax(dim=-1), reduction="none")
    return total_variation(logits.softmax(dim=-1), base_logits.softmax(dim=-1))


def attention_term(weights: Tensor, base_weights: Tensor, term: AttentionTerm) -> Tensor:
    """Divergence (R,) of attention from the base's, mean over heads; weights (R, H, N), 0 off the mask.

    It is `kl` or `js`, in nats, or `tvd`. KL(model || base) is finite: base weights below the
    smallest normal float32 (1.2e-38) are raised to it, so that an item adds at most 87 nats times its
    weight in the model. A weight of 0 in the model adds nothing.
    """
    if term == "kl":
        base_weights = base_weights.clamp(min=torch.finfo(torch.float32).tiny)
    return divergence_to_constant(base_weights, weights, term).mean(dim=-1)


class AdversarialVariant(FromBase):
    """The base's network, trained to reproduce its predictions with different attention.

    The loss of an instance is `prediction_term - lambda * attention_term`, both against the base's
    frozen outputs; gold labels are not used. The attention term is the mean over heads and the loss
    the mean over the instances of the batch, so that lambda weights a row of attention regardless of
    its length; padding and queries outside the text are excluded. In a hierarchical model the
    attention is that over sentences, in a tagger that of the last layer, before dropout. Lambda 0 is
    the imitation control: the attention divergence that imitation alone produces. `val/loss` is the
    objective, by which `configs/trainer.yaml` selects the epoch; other metrics are against gold labels.

    Heads are compared in order, as in Yang (2020), so that an adversary can also gain by permuting
    its heads. `BaseDivergence` matches heads before it measures. A base whose attention is sparse
    (`normalizer`) has no adversaries with `kl`.

    Args:
        spec: Description of the corpus; the command line supplies it.
        base: Checkpoint of the base model, or the folder of its run.
        lambda_: Weight of the attention term, at least 0.
        prediction_term: `tvd`, total variation distance of the predictions, or `nll` of the base's
            predicted classes; null: `tvd` for a classifier, `nll` for a tagger, as published, and for
            a translation.
        attention_term: `kl` of the model's attention from the base's, `js` or `tvd`.
        released: Use the loss of the paper's released code, see `attnlight.problems.released`: for a
            classifier of two classes with `tvd` and `kl`; for a tagger of target `tokens` with `nll`
            and `kl`.
        options: Options that differ from the base's training, see `FromBase`; `loss.reduction` is
            `mean` unless given here.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        lambda_: float,
        prediction_term: PredictionTerm | None = None,
        attention_term: AttentionTerm = "kl",
        released: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, base, **options)
        if not 0 <= lambda_ < math.inf:
            raise InputError(f"lambda_ is {lambda_}; it must be a number of at least 0.")
        normalizer = self.net.get("normalizer", "softmax")
        if attention_term == "kl" and normalizer != "softmax":
            raise InputError(
                f"attention_term is kl, which is infinite where the base's attention is 0, as that of "
                f"normalizer {normalizer} may be: give attention_term js."
            )
        problem = problem_class(self.hparams["problem"])
        published = problem.adversary_terms
        self.hparams["prediction_term"] = prediction_term or published[0]
        own = problem.released if released else None
        if released and own is None:
            raise InputError(f"released: no loss was released for {problem.name}: leave it out.")
        if released and published != (self.hparams["prediction_term"], attention_term):
            raise InputError(
                f"released is the loss of the paper's code, of prediction_term {published[0]} and "
                f"attention_term {published[1]}."
            )
        if own and (spec["target"] != "tokens" or own.classes not in (None, len(spec["classes"]))):
            raise InputError(
                f"released is the loss of the paper's code for {own.scope}: leave it out."
            )
        self._build(self.net, loss={"reduction": "mean"})
        self._released = own
        self._class_weights = None if own is None else own.class_weights
        self._frozen = self.reference

    @classmethod
    @override
    def monitor(cls, arguments: Mapping[str, Any]) -> tuple[str, str]:
        return "val/loss", "min"

    @override
    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        base = self._outputs()
        weights, logits = base.attention(output.rows, output.mask), base.logits(output.rows, batch)
        prediction = prediction_term(output.logits, logits, self.hparams["prediction_term"])
        attention = attention_term(output.weights, weights, self.hparams["attention_term"])
        if self._released is not None:
            gather = self._gather_ranks if self.training else None
            terms = (prediction, attention)
            prediction, attention = self._released.scale(terms, batch, output, gather)
        loss: Tensor = prediction - self.hparams["lambda_"] * attention
        return loss

    @override
    def _reduce(self, losses: Tensor, real: Tensor, batch: TextBatch) -> Tensor:
        if self._class_weights is None:
            return super()._reduce(losses, real, batch)
        weights = self.class_weight[self.problem.labels(batch)] * real
        return losses.sum() * self._gather_ranks(weights.sum()).sum()

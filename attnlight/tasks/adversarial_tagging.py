"""A tagger that predicts like the base and attends unlike it (after Yang, 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.targets import TargetName
from attnlight.errors import InputError
from attnlight.tasks.adversarial import Adversary, AttentionTerm, PredictionTerm
from attnlight.tasks.tagging_variants import TaggerTrainingOptions, TaggerVariant


class AdversarialTagger(Adversary, TaggerVariant):
    """The base's architecture, trained anew to predict like it and to attend unlike it.

    The loss of a token is `prediction_term - lambda * attention_term`, both against the base's
    frozen outputs; no gold label has a part in it. The attention term is the mean over the heads of
    the last layer, and the loss the mean over the tokens of the batch, so that lambda weighs a row
    of attention, whatever its length. Neither padding nor a query outside the sentence enters it.
    Weights are taken before dropout. Lambda 0 is the imitation control. `val/loss` is the objective
    (with lambda in full), by which `configs/trainer.yaml` chooses the epoch; F1 is against gold.

    Heads are compared one by one in their order, as in the study: an adversary gains by exchanging
    its heads, too. `BaseDivergence` undoes that before it measures.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        tags: Names of the C tags; the command line takes them from the corpus.
        base: Checkpoint of the base model.
        lambda_: Weight of the attention term, at least 0.
        features: Number of ids of each feature of a token; the command line takes them from the
            corpus.
        prediction_term: `nll` of the base's predicted tags, or `tvd`, total variation distance of
            the predictions.
        attention_term: `kl` of the new attention from the base's, `js` or `tvd`.
        lambda_warmup_epochs: Let lambda rise from 0 in a straight line over so many epochs.
        compat: Lambda on the study's scale: the KL of all tokens and heads is divided by the
            B H N N elements of the batch as it is padded, not by its rows, so that a row counts
            1 / N. Taken over: that padding is in the divisor and a batch of long sentences counts
            less. Not taken over: padding in the negative log-likelihood, which is the mean over
            tokens (corpora here have no boundary tokens, which it had too), weights after dropout
            in the KL, and the last epoch in place of the best. In evaluation a row counts one over
            the length of its own sentence, so that batches change nothing. For `nll`, `kl` and
            target `tokens`.
        training: Options of training that differ from the base's; `loss_reduction` is `mean`
            unless given here.
        inherited: What is known of the base; null reads it from its checkpoint.
        target: What the corpus asks for; the command line takes it from there. Null: what the base
            answers.

    Raises:
        InputError: The base cannot be read, is no tagger or of another corpus, or an option is out
            of range.
    """

    def __init__(
        self,
        vocab_size: int,
        tags: list[str],
        base: str,
        lambda_: float,
        features: dict[str, int] | None = None,
        prediction_term: PredictionTerm = "nll",
        attention_term: AttentionTerm = "kl",
        lambda_warmup_epochs: float = 0.0,
        compat: bool = False,
        training: TaggerTrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
        target: TargetName | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._prepare()
        terms = prediction_term, attention_term, self.hparams["target"]
        if compat and terms != ("nll", "kl", "tokens"):
            raise InputError(
                "compat is the study's loss, for prediction_term nll, attention_term kl and target "
                "tokens."
            )

    @override
    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        prediction, attention = self._terms(output)
        if self.hparams["compat"]:
            attention = attention * self._element_share(batch, output)
        return prediction - self._strength * attention

    def _element_share(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        """What makes of the mean over rows one over elements, (R,) or one number."""
        if not self.training:
            return 1 / output.mask.sum(-1)
        sizes = [(output.rows[:, 0] >= 0).sum(), (batch.index >= 0).sum()]
        sizes.append(sizes[0].new_full((), batch.tokens.shape[1]))
        rows, texts, items = self._of_all_ranks(torch.stack(sizes)).unbind(-1)
        return rows.sum() / (texts.sum() * items.amax() ** 2)

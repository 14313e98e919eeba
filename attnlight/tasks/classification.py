"""Train a classifier whose attention is to be tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric, MetricCollection
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models import FlatClassifier, read_vectors
from attnlight.tasks.metrics import classification_metrics, scores
from attnlight.tasks.optimizers import WeightDecay, build_optimizer
from attnlight.tasks.text import TextTask

ARCHITECTURE = (
    "vocab_size",
    "num_classes",
    "encoder",
    "attention",
    "embedding_size",
    "hidden_size",
    "embedding_scale",
    "freeze_embeddings",
    "dropout",
)


class AttentionClassifier(TextTask):
    """A classifier that reads a text through one attention layer.

    The loss is cross-entropy; with two classes the model has one logit z and (0, z) makes it the
    binary cross-entropy of Jain & Wallace. `validation_step` and `test_step` return
    `{"loss", "output"}`, which is all that the interpretability tests see.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        encoder: What turns embeddings into the states that attention attends to.
        attention: How a state is scored.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction for the recurrent ones.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        vectors: A word2vec, fastText (.vec) or GloVe file with vectors of size E to start from.
        unknown_vectors: Embedding of words that `vectors` lacks.
        freeze_embeddings: Keep the embeddings as they start.
        dropout: Dropout on the context, before the classification layer.
        optimizer: The optimiser.
        learning_rate: Its learning rate.
        weight_decay: L2 penalty, one for all or by part (embedding, encoder, attention, decoder);
            a part left out has none.
        amsgrad: The AMSGrad variant of Adam and AdamW.
        fused: The fused implementation of Adam and AdamW.
        momentum: Momentum of SGD.
        loss_reduction: `sum` over the batch as Jain & Wallace, or `mean`.
        class_weights: `balanced` weighs each class by n / (C n_c) on the training split.
    """

    architecture = ARCHITECTURE

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        encoder: Literal["bilstm", "bigru", "cnn", "average", "none"] = "bilstm",
        attention: Literal["additive", "dot", "scaled_dot", "uniform"] = "additive",
        embedding_size: int = 300,
        hidden_size: int = 128,
        embedding_scale: float = 0.1,
        vectors: str | None = None,
        unknown_vectors: Literal["zero", "random"] = "random",
        freeze_embeddings: bool = False,
        dropout: float = 0.0,
        optimizer: Literal["adam", "adamw", "sgd"] = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float | dict[str, float] = 0.0,
        amsgrad: bool = False,
        fused: bool = True,
        momentum: float = 0.0,
        loss_reduction: Literal["sum", "mean"] = "mean",
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model: FlatClassifier = FlatClassifier(
            **{name: self.hparams[name] for name in ARCHITECTURE}
        )
        self.register_buffer("class_weight", torch.ones(num_classes))
        self.class_weight: Tensor
        metrics = classification_metrics(num_classes)
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")
        self.train_loss, self.val_loss, self.test_loss = (MeanMetric() for _ in range(3))

    @override
    def setup(self, stage: str) -> None:
        self.adopt_corpus(self.trainer.datamodule)  # type: ignore[attr-defined]
        if stage == "fit" and not self.trainer.ckpt_path:
            self._start_embeddings()
            self._weigh_classes()

    @override
    def training_step(self, batch: TextBatch, batch_idx: int) -> Tensor:
        losses = self._losses(batch, self.model(batch))
        self._trained += losses.detach().sum()
        self._texts += len(losses)
        return losses.sum() if self.hparams["loss_reduction"] == "sum" else losses.mean()

    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        # Several processes average dense gradients; on a GPU filling them costs nothing.
        alone = self.trainer.world_size == 1
        self.model.embedding.sparse = alone and self.device.type == "cpu"

    @override
    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.model.embedding.densify_gradient()

    @override
    def on_train_epoch_start(self) -> None:
        self._trained, self._texts = torch.zeros((), device=self.device), 0

    @override
    def on_train_epoch_end(self) -> None:
        # Once an epoch: a metric's update and a log at every step would only cost time.
        self.train_loss.update(self._trained / self._texts, self._texts)
        self.log("train/loss", self.train_loss)

    @override
    def on_validation_epoch_end(self) -> None:
        self._log("val")

    @override
    def on_test_epoch_end(self) -> None:
        self._log("test")

    @override
    def validation_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        return self._evaluate("val", batch)

    @override
    def test_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        return self._evaluate("test", batch)

    @override
    def predict_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        output: AttentionOutput = self.model(batch)
        return {"output": output}

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        decay: WeightDecay = self.hparams["weight_decay"]
        return build_optimizer(
            dict(self.model.named_children()),
            name=self.hparams["optimizer"],
            learning_rate=self.hparams["learning_rate"],
            weight_decay=decay,
            amsgrad=self.hparams["amsgrad"],
            fused=self.hparams["fused"],
            momentum=self.hparams["momentum"],
        )

    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        if batch.labels is None:
            raise InputError("the corpus has no labels; training and testing need them.")
        return cross_entropy(output.logits, batch.labels, self.class_weight, reduction="none")

    def _evaluate(self, stage: Literal["val", "test"], batch: TextBatch) -> dict[str, Any]:
        output: AttentionOutput = self.model(batch)
        losses = self._losses(batch, output)
        metrics, loss = self._judges(stage)
        real = batch.index >= 0
        if real.any():
            loss.update(losses[real])
            metrics.update(scores(output.probabilities[real]), batch.labels[real])  # type: ignore[index]
        return {"loss": losses.mean(), "output": output}

    def _log(self, stage: Literal["val", "test"]) -> None:
        metrics, loss = self._judges(stage)
        self.log_dict(metrics)
        self.log(f"{stage}/loss", loss, prog_bar=stage == "val")

    def _judges(self, stage: Literal["val", "test"]) -> tuple[MetricCollection, MeanMetric]:
        held = {
            "val": (self.val_metrics, self.val_loss),
            "test": (self.test_metrics, self.test_loss),
        }
        return held[stage]

    def _start_embeddings(self) -> None:
        if self.hparams["vectors"] is None:
            return
        found = read_vectors(Path(self.hparams["vectors"]), self.tokenizer.get_vocab())
        self.model.embedding.start_from(found, self.hparams["unknown_vectors"])

    def _weigh_classes(self) -> None:
        if self.hparams["class_weights"] == "none":
            return
        counts = torch.tensor(self.trainer.datamodule.label_counts)  # type: ignore[attr-defined]
        self.class_weight.copy_(counts.sum() / (len(counts) * counts))

"""Train a classifier whose attention is to be tested."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import MeanMetric, MetricCollection
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.word2vec import Word2VecSettings
from attnlight.errors import InputError
from attnlight.models import AffineClassifier, SelfAttentionTagger, read_vectors
from attnlight.models.attention import AttentionName
from attnlight.models.build import build_classifier
from attnlight.models.classifier import DropoutOn
from attnlight.models.encoders import EncoderName
from attnlight.models.initialization import Initialization
from attnlight.tasks.metrics import classification_metrics, scores
from attnlight.tasks.optimizers import (
    BETAS,
    PLATEAU_MONITOR,
    WeightDecay,
    build_optimizer,
    with_plateau,
)
from attnlight.tasks.text import TextTask

ARCHITECTURE = (
    "vocab_size",
    "num_classes",
    "hierarchical",
    "encoder",
    "attention",
    "embedding_size",
    "hidden_size",
    "attention_size",
    "embedding_scale",
    "freeze_embeddings",
    "embedding_dropout",
    "sentence_dropout",
    "dropout",
    "dropout_on",
    "initialization",
)


class ClassifierTask(TextTask):
    """What is shared by all tasks that train a classifier; `AttentionClassifier` lists the options.

    A subclass keeps its hyperparameters, those of `AttentionClassifier` among them, builds its
    model and calls `_assemble`.
    """

    architecture: ClassVar[tuple[str, ...]] = ARCHITECTURE
    model: AffineClassifier | SelfAttentionTagger

    def _assemble(self, model: AffineClassifier | SelfAttentionTagger) -> None:
        """Add the model and what it is judged by."""
        self.model = model
        classes: int = self.hparams["num_classes"]
        self.register_buffer("class_weight", torch.ones(classes))
        self.class_weight: Tensor
        metrics = classification_metrics(classes)
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
        output = self.model(batch)
        real = output.rows[:, 0] >= 0
        losses = self._losses(batch, output) * real
        self._trained += losses.detach().sum()
        self._rows += real.sum()
        return self._reduced(losses, real, batch) * self.trainer.world_size

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
        self._trained = torch.zeros((), device=self.device)
        self._rows = torch.zeros((), dtype=torch.long, device=self.device)

    @override
    def on_train_epoch_end(self) -> None:
        # Once an epoch: a metric's update and a log at every step would only cost time.
        self.train_loss.update(self._trained / self._rows, self._rows)
        self.log("train/loss", self.train_loss)
        # Lightning would do it after the epoch's checkpoint, and a resumed run would miss a step.
        plateau, reached = self.lr_schedulers(), self.trainer.callback_metrics.get(PLATEAU_MONITOR)
        if isinstance(plateau, ReduceLROnPlateau) and reached is not None:
            plateau.step(reached)

    @override
    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Do nothing: `on_train_epoch_end` did."""

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
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, factor = self._optimizer(), self.hparams["plateau_factor"]
        return optimizer if factor is None else with_plateau(optimizer, factor)

    def _optimizer(self) -> torch.optim.Optimizer:
        decay: WeightDecay = self.hparams["weight_decay"]
        parts = dict(self.model.named_children())
        return build_optimizer(
            {name: part for name, part in parts.items() if not isinstance(part, nn.Dropout)},
            name=self.hparams["optimizer"],
            learning_rate=self.hparams["learning_rate"],
            weight_decay=decay,
            amsgrad=self.hparams["amsgrad"],
            fused=self.hparams["fused"],
            momentum=self.hparams["momentum"],
            betas=tuple(self.hparams.get("betas", BETAS)),
        )

    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        if batch.labels is None:
            raise InputError("the corpus has no labels; training and testing need them.")
        if batch.labels.ndim != 1:
            raise InputError("the corpus has a label for each token; ChunkTagger learns such ones.")
        return cross_entropy(output.logits, batch.labels, self.class_weight, reduction="none")

    def _reduced(self, losses: Tensor, real: Tensor, batch: TextBatch) -> Tensor:
        """This rank's summand of the loss of the global batch, which all ranks share.

        DDP averages gradients over ranks, so that `training_step` multiplies by their number: the
        optimiser and its weight decay then see what one device sees that has the whole batch.

        Args:
            losses: Loss of each row, 0 of a repeat, (R,).
            real: Which rows are no repeats, (R,) bool.
            batch: The batch of this rank.
        """
        total = losses.sum()
        if self.hparams["loss_reduction"] == "sum":
            return total
        return total / self._of_all_ranks(real.sum()).sum()

    def _of_all_ranks(self, values: Tensor) -> Tensor:
        """Values (...) of each rank without their gradient, (ranks, ...)."""
        if self.trainer.world_size == 1:
            return values[None]
        gathered: Tensor = self.all_gather(values)  # type: ignore[assignment]
        return gathered

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
        place = self.hparams["vectors"]
        if place is None:
            return
        vocabulary = self.tokenizer.get_vocab()
        if place == "corpus":
            settings = Word2VecSettings(size=self.hparams["embedding_size"])
            place = self.trainer.datamodule.word_vectors(settings)  # type: ignore[attr-defined]
        vectors = read_vectors(place, vocabulary)
        if self.hparams["normalize_vectors"]:
            vectors = vectors.normalized()
        self.model.embedding.start_from(vectors, self.hparams["unknown_vectors"])

    def _weigh_classes(self) -> None:
        if self.hparams["class_weights"] == "none":
            return
        counts = torch.tensor(self.trainer.datamodule.label_counts)  # type: ignore[attr-defined]
        self.class_weight.copy_(counts.sum() / (len(counts) * counts))


class AttentionClassifier(ClassifierTask):
    """A classifier that reads a text through attention over its words, or over its sentences.

    The loss is cross-entropy; with two classes the model has one logit z and (0, z) makes it the
    binary cross-entropy of Jain & Wallace. `validation_step` and `test_step` return
    `{"loss", "output"}`, which is all that the interpretability tests see.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        hierarchical: Read words to sentences and sentences to the text, each with an encoder and
            attention of its own, from a corpus with sentences.
        encoder: What turns embeddings into the states that attention attends to.
        attention: How a state is scored.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction for the recurrent ones.
        attention_size: Size of additive attention's hidden layer; null: half a state.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        vectors: Word vectors of size E to start from: a word2vec, fastText (.vec) or GloVe file, or
            `corpus` to train them with word2vec on the corpus's own training and validation texts,
            by Serrano & Smith's settings (`Word2VecSettings`).
        normalize_vectors: Bring word vectors to L2 norm 1 first, as Serrano & Smith.
        unknown_vectors: Embedding of words that `vectors` lacks.
        freeze_embeddings: Keep the embeddings as they start.
        embedding_dropout: Dropout on token embeddings, before the (word) encoder.
        sentence_dropout: Dropout on sentence vectors, before the sentence encoder.
        dropout: Dropout of the classification layer.
        dropout_on: `context`, before that layer, or `logits`, after it as Serrano & Smith's code.
        initialization: `xavier`, as Serrano & Smith: Xavier-uniform and, within recurrent networks,
            orthogonal weights and biases of zero; `default` is torch's.
        optimizer: The optimiser.
        learning_rate: Its learning rate.
        plateau_factor: Multiply the learning rate by this after each epoch whose validation
            accuracy is no new best; null: keep it.
        weight_decay: L2 penalty, one for all or by part: embedding, encoder, attention, decoder; in
            a hierarchical model embedding, word_encoder, word_attention, sentence_encoder,
            sentence_attention, decoder. A part left out has none.
        amsgrad: The AMSGrad variant of Adam and AdamW.
        fused: The fused implementation of Adam and AdamW.
        momentum: Momentum of SGD.
        loss_reduction: `sum` over the batch of all devices as Jain & Wallace, or `mean`.
        class_weights: `balanced` weighs each class by n / (C n_c) on the training split.

    Raises:
        InputError: An option is out of range or does not go with another.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        hierarchical: bool = False,
        encoder: EncoderName = "bilstm",
        attention: AttentionName = "additive",
        embedding_size: int = 300,
        hidden_size: int = 128,
        attention_size: int | None = None,
        embedding_scale: float = 0.1,
        vectors: str | None = None,
        normalize_vectors: bool = False,
        unknown_vectors: Literal["zero", "random"] = "random",
        freeze_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        sentence_dropout: float = 0.0,
        dropout: float = 0.0,
        dropout_on: DropoutOn = "context",
        initialization: Initialization = "default",
        optimizer: Literal["adam", "adamw", "sgd"] = "adam",
        learning_rate: float = 1e-3,
        plateau_factor: float | None = None,
        weight_decay: float | dict[str, float] = 0.0,
        amsgrad: bool = False,
        fused: bool = True,
        momentum: float = 0.0,
        loss_reduction: Literal["sum", "mean"] = "mean",
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if sentence_dropout and not hierarchical:
            raise InputError(
                f"sentence_dropout is {sentence_dropout}, but a model that is not hierarchical has "
                "no sentences."
            )
        self._assemble(build_classifier(self.hparams))

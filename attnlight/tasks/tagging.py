"""Train a tagger whose attention is to be tested."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from itertools import islice
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.checkpoints import CHECKPOINT_KEY
from attnlight.data.features import TokenFeatures
from attnlight.data.targets import TargetName, begun
from attnlight.errors import InputError
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models import AffineClassifier, SelfAttentionTagger
from attnlight.models.build import build_model
from attnlight.models.tagger import TaggerEncoder
from attnlight.models.tagging import ReadoutName
from attnlight.tasks.classification import ClassifierTask
from attnlight.tasks.optimizers import with_noam
from attnlight.tasks.spans import answer_metrics, tagging_metrics

MODEL_OPTIONS = tuple(n for n in signature(SelfAttentionTagger).parameters if n != "num_classes")


class TaggerTask(ClassifierTask):
    """What is shared by all tasks that train a tagger; `ChunkTagger` lists the options.

    A subclass keeps its hyperparameters, those of `ChunkTagger` among them, builds its model and
    calls `_assemble`.
    """

    monitor: ClassVar[tuple[str, str]] = ("val/f1", "max")
    token_features: TokenFeatures | None = None

    @override
    def _assemble(self, model: AffineClassifier | SelfAttentionTagger) -> None:
        self.model = model
        tags: list[str] = self.hparams["tags"]
        self.classes = list(tags)
        whole = self.hparams["target"] == "tokens"
        metrics = tagging_metrics(tags) if whole else answer_metrics(len(tags))
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")
        self.train_loss, self.val_loss, self.test_loss = (MeanMetric() for _ in range(3))

    @override
    def setup(self, stage: str) -> None:
        datamodule = self.trainer.datamodule  # type: ignore[attr-defined]
        self.adopt_corpus(datamodule)
        self.token_features = getattr(datamodule, "token_features", self.token_features)

    @override
    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        scheduler.step()

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, warmup = self._optimizer(), self.hparams["warmup_steps"]
        if warmup is None:
            return optimizer
        return with_noam(optimizer, warmup, self.hparams["hidden_size"])

    def encode(self, texts: Sequence[str], pos: Sequence[Sequence[str]] | None = None) -> TextBatch:
        """Turn raw sentences into a batch as the training corpus's were.

        Of target `marked` any token may be asked for, so that all of them answer.

        Args:
            texts: B sentences, their tokens between white space; an empty one becomes one unknown
                token.
            pos: Part-of-speech tags of the tokens of each, where the model reads them.

        Raises:
            InputError: The model reads part-of-speech tags, and there is not one for each token.
        """
        batch = super().encode(texts)
        if self.token_features is not None:
            self._add_features(batch, texts, pos)
        return begun(batch) if self.hparams["target"] == "sentence" else batch

    def _add_features(
        self, batch: TextBatch, texts: Sequence[str], pos: Sequence[Sequence[str]] | None
    ) -> None:
        assert self.token_features is not None
        names = self.token_features.rules.columns
        batch.extras = {name: torch.zeros_like(batch.tokens) for name in names}
        for number, text in enumerate(texts):
            words = [text[start:stop] for start, stop in self.tokenizer.encode(text).offsets]
            columns = self.token_features.encode(words, None if pos is None else pos[number])
            for name, values in columns.items():
                batch.extras[name][number, : len(words)] = torch.from_numpy(values)

    @torch.no_grad()
    def tag(
        self, texts: Sequence[str], pos: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """Names of the tags of raw sentences' tokens, or of each one's label; arguments of `encode`."""
        training = self.training
        self.eval()
        output: AttentionOutput = self.model(self.encode(texts, pos))
        self.train(training)
        tags = iter(self.classes[number] for number in output.logits.argmax(-1).tolist())
        sizes = torch.bincount(texts_of_rows(output.rows)).tolist()
        return [list(islice(tags, size)) for size in sizes]

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        features = self.token_features
        checkpoint[CHECKPOINT_KEY]["features"] = None if features is None else features.held()

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        held = checkpoint[CHECKPOINT_KEY]["features"]
        self.token_features = None if held is None else TokenFeatures.of(held)

    @override
    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        return cross_entropy(output.logits, _labels(batch), reduction="none")

    @override
    def _evaluate(self, stage: Literal["val", "test"], batch: TextBatch) -> dict[str, Any]:
        output: AttentionOutput = self.model(batch)
        losses = self._losses(batch, output)
        metrics, loss = self._judges(stage)
        real = output.rows[:, 0] >= 0
        if real.any():
            loss.update(losses[real])
            begins = texts_of_rows(output.rows).diff(prepend=real.new_full((1,), -1).long()) != 0
            metrics.update(
                preds=output.logits.argmax(-1)[real],
                target=_labels(batch)[real],
                begins=begins[real],
            )
        return {"loss": losses.mean(), "output": output}


class ChunkTagger(TaggerTask):
    """A tagger that reads each token's sentence through self-attention.

    The loss is cross-entropy of the real tokens, or of those that the corpus's `target` asks for;
    validation and test log it with the accuracy of tokens and precision, recall and F1 of chunks or,
    where a sentence has one answer, accuracy and `f1`, the mean over classes. `validation_step` and
    `test_step` return `{"loss", "output"}`, which is all that the interpretability tests see.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        tags: Names of the C tags, of the BIO scheme; the command line takes them from the corpus.
        features: Number of ids of each feature of a token; the command line takes them from the
            corpus, whose options say which there are.
        encoder: `transformer`: a linear map and sinusoidal positions below the layers of attention;
            `bilstm`: a BiLSTM there; `tokens`: an affine map and tanh, each token read alone.
        readout: What follows the last layer's attention. `study`: residual, feed-forward, layer
            norm and affine layer, as in Yang's (2020) released encoder; not affine in attention.
            `text`: the affine layer over the heads side by side, as in the text of that report; a
            token then reaches its own tag only through its attention to itself. `residual`: the
            affine layer over the sum of these and the token's own state.
        layers: Layers of attention; those below the last have residual and feed-forward parts.
        heads: Heads of each.
        hidden_size: Size D of a state.
        filter_size: Size within the feed-forward parts.
        embedding_size: Size of a word's embedding.
        feature_size: Size of each feature's embedding.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the words' embeddings as they start.
        dropout: Dropout on what enters the first layer.
        attention_dropout: Dropout on attention weights.
        relu_dropout: Dropout within the feed-forward parts.
        optimizer: The optimiser.
        learning_rate: Its learning rate; with `warmup_steps` the factor of the schedule.
        betas: Decay rates of Adam's and AdamW's running means.
        warmup_steps: Let the learning rate rise for so many steps and fall with the root of their
            number then (Vaswani et al., 2017; the study 500, with a factor of 0.2); null: keep it.
        weight_decay: L2 penalty, one for all or by part: embedding, features, projection,
            recurrent, layers, norm, attention, decoder. A part left out has none.
        amsgrad: The AMSGrad variant of Adam and AdamW.
        fused: The fused implementation of Adam and AdamW.
        momentum: Momentum of SGD.
        loss_reduction: `mean` over the tokens of the batch of all devices, or `sum`.
        target: What the corpus asks for (`ChunkingDataModule`); the command line takes it from
            there.

    Raises:
        InputError: An option is out of range, or the corpus has no BIO tags.
    """

    architecture: ClassVar[tuple[str, ...]] = (
        "tags",
        "target",
        *(name for name in MODEL_OPTIONS if name not in ("uniform_heads", "uniform_below")),
    )

    def __init__(
        self,
        vocab_size: int,
        tags: list[str],
        features: dict[str, int] | None = None,
        encoder: TaggerEncoder = "transformer",
        readout: ReadoutName = "study",
        layers: int = 1,
        heads: int = 4,
        hidden_size: int = 128,
        filter_size: int = 128,
        embedding_size: int = 100,
        feature_size: int = 32,
        embedding_scale: float = 0.1,
        freeze_embeddings: bool = False,
        dropout: float = 0.2,
        attention_dropout: float = 0.2,
        relu_dropout: float = 0.2,
        optimizer: Literal["adam", "adamw", "sgd"] = "adam",
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int | None = None,
        weight_decay: float | dict[str, float] = 0.0,
        amsgrad: bool = False,
        fused: bool = True,
        momentum: float = 0.0,
        loss_reduction: Literal["sum", "mean"] = "mean",
        target: TargetName = "tokens",
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._assemble(build_model(self.hparams))


def _labels(batch: TextBatch) -> Tensor:
    """Labels of the tokens of a batch that are rows, one sentence after the other, (R,)."""
    if batch.labels is None or batch.labels.ndim != 2:
        raise InputError("the corpus has no label for each token; a tagger needs them.")
    return batch.labels[batch.instances()]

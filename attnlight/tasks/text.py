"""What a task keeps of its corpus, so that a checkpoint alone can read raw text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import lightning.pytorch as pl
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.checkpoints import CHECKPOINT_FORMAT, CHECKPOINT_KEY, read_checkpoint
from attnlight.data.collate import collate_ids
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import encode_texts
from attnlight.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TextTask(pl.LightningModule):
    """A task that carries its tokenizer and the names of its classes in its checkpoint.

    A subclass sets `model`, which meets `AttentionModel`.

    Attributes:
        architecture: Hyperparameters that a checkpoint and a configuration must agree on.
        monitor: What is logged that says which epoch is best, and whether `max` or `min` of it is.
        tokenizer_json: The tokenizer as JSON text; None before training.
        classes: Names of the classes.
        corpus: Fingerprint of the training corpus.
        sentences: How the training corpus split texts into sentences (`SentenceRules.identity`),
            and whether its batches keep them apart (`nested`); None where it did not split them.
    """

    architecture: ClassVar[tuple[str, ...]] = ()
    monitor: ClassVar[tuple[str, str]] = ("val/accuracy", "max")
    tokenizer_json: str | None = None
    classes: Sequence[str] = ()
    corpus: str | None = None
    sentences: dict[str, Any] | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: normalisation, splitting and vocabulary of the training corpus.

        Raises:
            InputError: The task was neither trained nor loaded from a checkpoint.
        """
        from tokenizers import Tokenizer

        if self.tokenizer_json is None:
            raise InputError("this task has no tokenizer yet: train it or load a checkpoint.")
        return Tokenizer.from_str(self.tokenizer_json)

    def adopt_corpus(self, datamodule: Any) -> None:  # noqa: ANN401
        """Take over tokenizer, class names, fingerprint and sentences of the corpus in use."""
        if datamodule is None or not hasattr(datamodule, "tokenizer_json"):
            return
        self.tokenizer_json = datamodule.tokenizer_json
        self.classes = list(datamodule.classes)
        self.corpus = datamodule.fingerprint
        rules: SentenceRules | None = getattr(datamodule, "sentence_rules", None)
        self.sentences = None
        if rules is not None:
            self.sentences = rules.identity() | {"nested": datamodule.nested}

    def encode(self, texts: Sequence[str]) -> TextBatch:
        """Split and tokenise raw texts as the training corpus's test split was.

        Args:
            texts: B texts; an empty one becomes one unknown token.

        Returns:
            A batch on the task's device, without labels: of sentences where the training corpus
            kept them apart.
        """
        held = self.sentences
        if held is None:
            batch = collate_ids(encode_texts(self.tokenizer, texts)[0])
        else:
            found = encode_sentences(self.tokenizer, texts, SentenceRules.of(held))
            batch = collate_ids(found.ids, found.sizes if held["nested"] else None)
        return batch.to(self.device)

    @torch.no_grad()
    def read(self, texts: Sequence[str]) -> AttentionOutput:
        """What the model says of raw texts, in evaluation mode."""
        training = self.training
        self.eval()
        model: AttentionModel = self.model  # type: ignore[assignment]
        output = model(self.encode(texts))
        self.train(training)
        return output

    def classify(self, texts: Sequence[str]) -> Tensor:
        """Class probabilities of raw texts, (B, C), in the order of `classes`."""
        return self.read(texts).probabilities

    @override
    def on_fit_start(self) -> None:
        self._seed = torch.initial_seed()

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout as a function of seed, epoch and rank, as the order of batches is: a resumed run
        # then ends with the weights of an undisturbed one, on any number of devices. Not at the
        # start of the epoch: the loader's iterator draws a number before or after that hook.
        if batch_idx == 0:
            place = self.current_epoch * self.trainer.world_size + self.global_rank
            torch.manual_seed((self._seed + 0x9E3779B97F4A7C15 * (place + 1)) % 2**64)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[CHECKPOINT_KEY] = {
            "format": CHECKPOINT_FORMAT,
            "tokenizer": self.tokenizer_json,
            "classes": list(self.classes),
            "corpus": self.corpus,
            "sentences": self.sentences,
        }

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        held, hparams = checkpoint[CHECKPOINT_KEY], checkpoint["hyper_parameters"]
        if self.tokenizer_json is not None and self.tokenizer_json != held["tokenizer"]:
            raise InputError(
                "the checkpoint was trained with another vocabulary than that of the corpus in "
                "`data`: give the `data` of its own fit.yaml."
            )
        for name in self.architecture:
            # An option that came later is not in the checkpoint; its shapes are checked on loading.
            if hparams.get(name, self.hparams[name]) != self.hparams[name]:
                raise InputError(
                    f"the checkpoint has {name} {hparams[name]}, the configuration "
                    f"{self.hparams[name]}: give the `model` of its own fit.yaml."
                )
        self.tokenizer_json, self.classes = held["tokenizer"], held["classes"]
        self.corpus, self.sentences = held["corpus"], held.get("sentences")

    @classmethod
    @override
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a checkpoint on its own; nothing in it is executed.

        Raises:
            InputError: The file is missing, damaged or not from attnlight.
        """
        read_checkpoint(checkpoint_path)
        return super().load_from_checkpoint(
            checkpoint_path, *args, **({"map_location": "cpu"} | kwargs | {"weights_only": True})
        )

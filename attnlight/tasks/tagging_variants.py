"""Variants of a trained tagger: what they take over from it, and the two plainest ones.

Each differs from its base in one respect and is made from the base's checkpoint, as the variants of
classifiers are (Wiegreffe & Pinter, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from typing_extensions import override

from attnlight.data.targets import TargetName
from attnlight.errors import InputError
from attnlight.models import SelfAttentionTagger
from attnlight.tasks.inheritance import Variant
from attnlight.tasks.tagging import MODEL_OPTIONS, ChunkTagger, TaggerTask


class TaggerTrainingOptions(TypedDict, total=False):
    """Options of `ChunkTagger` that say how to train, not what; see there."""

    optimizer: Literal["adam", "adamw", "sgd"]
    learning_rate: float
    betas: tuple[float, float]
    warmup_steps: int | None
    weight_decay: float | dict[str, float]
    amsgrad: bool
    fused: bool
    momentum: float
    loss_reduction: Literal["sum", "mean"]


class TaggerVariant(Variant, TaggerTask):
    """What is shared by all variants of a tagger."""

    options = (SelfAttentionTagger, ChunkTagger)
    training_options = tuple(TaggerTrainingOptions.__annotations__)
    of_taggers = True
    architecture = ("tags", "target", *MODEL_OPTIONS)

    @override
    def _require_fit(self, inherited: Mapping[str, Any]) -> None:
        path, own = self.reference.path, self.hparams
        if inherited["vocab_size"] != own["vocab_size"]:
            found = f"has {inherited['vocab_size']} token ids, the corpus in `data` "
            found += str(own["vocab_size"])
        elif own["target"] not in (None, inherited["target"]):
            found = f"has target {inherited['target']}, the corpus in `data` {own['target']}"
        elif inherited["tags"] != own["tags"]:
            found = "was trained with other tags than those of the corpus in `data`"
        elif (inherited["features"] or {}) != (own["features"] or {}):
            there, here = (
                ", ".join(f or {}) or "none" for f in (inherited["features"], own["features"])
            )
            found = f"reads the features {there}, the corpus in `data` has {here}, or other values"
        else:
            return
        raise InputError(f"the base {path} {found}: give the `data` of its fit.yaml.")


class UniformTagger(TaggerVariant):
    """The base's architecture with attention fixed to uniform over the sentence.

    Is attention needed at all, or is that of one head? After Wiegreffe & Pinter (2019), 3.1. Heads
    that are uniform have no queries and keys.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        tags: Names of the C tags; the command line takes them from the corpus.
        base: Checkpoint of the base model.
        features: Number of ids of each feature of a token; the command line takes them from the
            corpus.
        head: The head of the last layer that is uniform, from 0, while all others are learned;
            null: all heads of all layers are uniform.
        training: Options of training that differ from the base's.
        inherited: What is known of the base; null reads it from its checkpoint.
        target: What the corpus asks for; the command line takes it from there. Null: what the base
            answers.

    Raises:
        InputError: The base cannot be read, is no tagger or of another corpus, or has no such head.
    """

    def __init__(
        self,
        vocab_size: int,
        tags: list[str],
        base: str,
        features: dict[str, int] | None = None,
        head: int | None = None,
        training: TaggerTrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
        target: TargetName | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        own = self._of_base()
        if head is None:
            own |= {"uniform_heads": list(range(own["heads"])), "uniform_below": True}
        else:
            own["uniform_heads"] = [*own["uniform_heads"], head]
        self._become(own)


class SeedTagger(TaggerVariant):
    """The base's model, trained from another seed: `--seed_everything` gives it.

    How much does attention vary where nothing but chance differs? After Wiegreffe & Pinter (2019),
    3.2. Heads have no order: `BaseDivergence` matches them first.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        tags: Names of the C tags; the command line takes them from the corpus.
        base: Checkpoint of the base model.
        features: Number of ids of each feature of a token; the command line takes them from the
            corpus.
        training: Options of training that differ from the base's.
        inherited: What is known of the base; null reads it from its checkpoint.
        target: What the corpus asks for; the command line takes it from there. Null: what the base
            answers.

    Raises:
        InputError: The base cannot be read, is no tagger or of another corpus.
    """

    def __init__(
        self,
        vocab_size: int,
        tags: list[str],
        base: str,
        features: dict[str, int] | None = None,
        training: TaggerTrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
        target: TargetName | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._inherit()

"""Variants of a trained classifier: what they take over from it, and the two plainest ones.

The tests of Wiegreffe & Pinter (2019) compare a base model with others that differ from it in one
respect. A variant is made from the base's checkpoint, so that it cannot drift from it in any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from typing_extensions import override

from attnlight.errors import InputError
from attnlight.tasks.classification import AttentionClassifier
from attnlight.tasks.inheritance import Variant


class TrainingOptions(TypedDict, total=False):
    """Options of `AttentionClassifier` that say how to train, not what; see there."""

    vectors: str | None
    normalize_vectors: bool
    unknown_vectors: Literal["zero", "random"]
    optimizer: Literal["adam", "adamw", "sgd"]
    learning_rate: float
    plateau_factor: float | None
    weight_decay: float | dict[str, float]
    amsgrad: bool
    fused: bool
    momentum: float
    loss_reduction: Literal["sum", "mean"]
    class_weights: Literal["none", "balanced"]


class VariantTask(Variant):
    """What is shared by all variants of a classifier."""

    options = (AttentionClassifier,)
    training_options = tuple(TrainingOptions.__annotations__)
    of_taggers = False

    @override
    def _require_fit(self, inherited: Mapping[str, Any]) -> None:
        for name, what in (("vocab_size", "token ids"), ("num_classes", "classes")):
            if inherited[name] != self.hparams[name]:
                raise InputError(
                    f"the base {self.reference.path} has {inherited[name]} {what}, the corpus in "
                    f"`data` {self.hparams[name]}: give the `data` of its fit.yaml."
                )


class UniformClassifier(VariantTask):
    """The base's architecture with attention fixed to uniform over what it may reach.

    Is attention needed at all? Wiegreffe & Pinter (2019), 3.1. In a hierarchical model attention
    over words is uniform too.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        base: Checkpoint of the base model.
        training: Options of training that differ from the base's.
        inherited: What is known of the base; null reads it from its checkpoint.

    Raises:
        InputError: The base cannot be read, has no attention, or is of another corpus.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        base: str,
        training: TrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._inherit(attention="uniform")


class SeedVariant(VariantTask):
    """The base's model, trained from another seed: `--seed_everything` gives it.

    How much does attention vary where nothing but chance differs? Wiegreffe & Pinter (2019), 3.2.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        base: Checkpoint of the base model.
        training: Options of training that differ from the base's.
        inherited: What is known of the base; null reads it from its checkpoint.

    Raises:
        InputError: The base cannot be read, has no attention, or is of another corpus.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        base: str,
        training: TrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._inherit()

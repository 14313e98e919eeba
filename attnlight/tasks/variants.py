"""Variants of a trained classifier: what they take over from it, and the two plainest ones.

The tests of Wiegreffe & Pinter (2019) compare a base model with others that differ from it in one
respect. A variant is made from the base's checkpoint, so that it cannot drift from it in any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Literal, TypedDict

from typing_extensions import override

from attnlight.errors import InputError
from attnlight.models.build import build_classifier
from attnlight.reference import Identity, OutputStore, Reference, running_split
from attnlight.tasks.classification import AttentionClassifier, ClassifierTask


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


class VariantTask(ClassifierTask):
    """What is shared by all variants.

    A subclass keeps its arguments as hyperparameters and calls `_inherit`. Its checkpoint holds
    the base's hyperparameters and fingerprint, and loads when the base's file is gone.

    Attributes:
        reference: The base, and what it says of the corpus's texts.
    """

    reference: Reference

    @property
    def settled(self) -> dict[str, Any]:
        """Arguments that were worked out, for `fit.yaml` to hold."""
        return {"inherited": self.hparams["inherited"]}

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            for reference in {self.reference, *self._read_references()}:
                reference.require_unchanged()
                reference.require_corpus(self.trainer.datamodule)  # type: ignore[attr-defined]
        super().setup(stage)

    # The references are opened where no rank waits for another in a collective.
    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        for split in ("train", "validation"):
            self._open(split)

    @override
    def on_validation_start(self) -> None:
        self._open(running_split(self.trainer))

    @override
    def on_test_start(self) -> None:
        self._open(running_split(self.trainer))

    @override
    def on_predict_start(self) -> None:
        self._open(running_split(self.trainer))

    def _inherit(self, guided: bool = False, **changes: Any) -> None:  # noqa: ANN401
        """Build the base's architecture, with its hyperparameters but for what is changed."""
        self.reference = self._refer("base", self.hparams["base"])
        inherited = _known(self.reference.identity.options)
        for name, what in (("vocab_size", "token ids"), ("num_classes", "classes")):
            if inherited[name] != self.hparams[name]:
                raise InputError(
                    f"the base {self.reference.path} has {inherited[name]} {what}, the corpus in "
                    f"`data` {self.hparams[name]}: give the `data` of its fit.yaml."
                )
        self.hparams.update(inherited | changes | _training(self.hparams["training"]))
        self._assemble(build_classifier(self.hparams, guided=guided))

    def _refer(self, role: str, path: str) -> Reference:
        """A frozen model by its checkpoint or, where that was read before, by what was kept."""
        held = self.hparams["inherited"] or {}
        known = Identity.of(held[role]) if role in held else None
        reference = Reference(path, known)
        self.hparams["inherited"] = held | {role: reference.identity.held()}
        return reference

    def _read_references(self) -> list[Reference]:
        """The references whose outputs the steps read."""
        return []

    def _open(self, split: str) -> None:
        for reference in self._read_references():
            self._outputs(reference, split)

    def _outputs(self, reference: Reference, split: str | None = None) -> OutputStore:
        """What a reference says of a split, by default the one that is running."""
        return reference.outputs(
            self.trainer.datamodule,  # type: ignore[attr-defined]
            split or running_split(self.trainer),
            self.device,
        )


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of `AttentionClassifier`: a base's, or the default where it had none."""
    parameters = signature(AttentionClassifier).parameters
    return {name: options.get(name, known.default) for name, known in parameters.items()}


def _training(options: TrainingOptions | None) -> dict[str, Any]:
    given = dict(options or {})
    unknown = sorted(given.keys() - TrainingOptions.__annotations__.keys())
    if unknown:
        names = ", ".join(TrainingOptions.__annotations__)
        raise InputError(
            f"training has {unknown[0]!r}, which is no option of training; they are {names}."
        )
    return given


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

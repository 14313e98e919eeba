"""What is made from a trained model: what it takes over from its base, and where it keeps it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from inspect import signature
from typing import Any, ClassVar

from typing_extensions import override

from attnlight.errors import InputError
from attnlight.models.build import build_model, is_tagger
from attnlight.reference import Identity, OutputStore, Reference, running_split
from attnlight.tasks.classification import ClassifierTask


class Variant(ClassifierTask):
    """What is shared by all variants, of classifiers and of taggers.

    A subclass keeps its arguments as hyperparameters and calls `_inherit`. Its checkpoint holds
    the base's hyperparameters and fingerprint, and loads when the base's file is gone.

    Attributes:
        options: What a base may be trained with, and its defaults: calls whose arguments they are.
        training_options: Names of those that say how to train, not what.
        of_taggers: Whether the base is a tagger.
        reference: The base, and what it says of the corpus's texts.
    """

    options: ClassVar[tuple[Any, ...]]
    training_options: ClassVar[tuple[str, ...]]
    of_taggers: ClassVar[bool]
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
        self._become(self._of_base() | changes, guided)

    def _become(self, options: Mapping[str, Any], guided: bool = False) -> None:
        """Take over hyperparameters, those of `training` before them, and build their model."""
        self.hparams.update({**options, **self._training()})
        self._assemble(build_model(self.hparams, guided=guided))

    def _of_base(self) -> dict[str, Any]:
        """All hyperparameters of the base, those that it has no value for by their default."""
        self.reference = self._refer("base", self.hparams["base"])
        given = self.reference.identity.options
        self._require_kind(self.reference, "base")
        known = {
            name: given.get(name, parameter.default)
            for call in self.options
            for name, parameter in signature(call).parameters.items()
            if name in given or parameter.default is not parameter.empty
        }
        self._require_fit(known)
        return known

    @abstractmethod
    def _require_fit(self, inherited: Mapping[str, Any]) -> None:
        """Refuse a base whose inputs or classes are not those of the corpus.

        Raises:
            InputError: They are not.
        """

    def _require_kind(self, reference: Reference, role: str) -> None:
        if is_tagger(reference.identity.options) != self.of_taggers:
            kinds = ("classifier", "tagger") if self.of_taggers else ("tagger", "classifier")
            raise InputError(
                f"the {role} {reference.path} is a {kinds[0]}, but that of {type(self).__name__} "
                f"must be a {kinds[1]}."
            )

    def _training(self) -> dict[str, Any]:
        given = dict(self.hparams["training"] or {})
        unknown = sorted(given.keys() - set(self.training_options))
        if unknown:
            names = ", ".join(self.training_options)
            raise InputError(
                f"training has {unknown[0]!r}, which is no option of training; they are {names}."
            )
        return given

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

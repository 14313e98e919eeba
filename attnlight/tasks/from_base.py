"""Variants of a trained model, their base: what they inherit from it, and where they keep that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from typing_extensions import override

from attnlight.errors import InputError
from attnlight.models.build import with_defaults
from attnlight.problems import problem_class
from attnlight.reference import Identity, OutputStore, Reference, running_split
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.options import GROUPS, LossChanges, OptimizerChanges, VectorsChanges


class FromBase(AttentionTask):
    """What all variants of a trained model share, whatever the problem.

    The tests of Wiegreffe & Pinter (2019) compare a base model with others that differ from it in one
    respect. A variant takes its architecture and its options of training from the base's checkpoint,
    so that it cannot differ in any other. Its own checkpoint holds both, with the base's fingerprint,
    and loads when the base's file is gone.

    A subclass calls `_build` with what it changes of the network, and sets `_frozen` where its steps
    read a frozen model's outputs.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        base: Checkpoint of the base model, or the folder of its run.
        optimizer: Options of the optimiser that differ from the base's.
        loss: The same of the loss.
        vectors: The same of word vectors.
        inherited: What is known of the base; null reads it from its checkpoint.

    Attributes:
        reference: The base, and what it says of the corpus's texts.
        net: Options of its network.
        settled: Arguments that were worked out, for `fit.yaml` to hold.

    Raises:
        InputError: The base cannot be read, has no attention or is of another corpus, or an option
            is out of range.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        optimizer: OptimizerChanges | None = None,
        loss: LossChanges | None = None,
        vectors: VectorsChanges | None = None,
        inherited: dict[str, Any] | None = None,
    ) -> None:
        super(AttentionTask, self).__init__()  # the model is built from what the base says
        self.save_hyperparameters()
        self._changes = {"optimizer": optimizer, "loss": loss, "vectors": vectors}
        self.reference = self._refer("base", base)
        self._frozen: Reference | None = None
        options = self.reference.identity.options
        self.hparams["problem"] = options["problem"]
        found = problem_class(options["problem"])(spec).difference(options["spec"])
        if found is not None:
            raise InputError(f"the base {base} {found}: give the `data` of its fit.yaml.")
        self.net = with_defaults(options["problem"], options["net"])

    @classmethod
    @override
    def monitor(cls, arguments: Mapping[str, Any]) -> tuple[str, str]:
        known = (arguments.get("inherited") or {}).get("base")
        identity = Identity.of(known) if known else Reference(arguments["base"]).identity
        return problem_class(identity.options["problem"]).monitor

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            for reference in {self.reference, self._frozen or self.reference}:
                reference.require_unchanged()
                reference.require_corpus(self.trainer.datamodule)  # type: ignore[attr-defined]
        super().setup(stage)

    # Outputs that are not kept yet are evaluated before any rank waits for another in a collective.
    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        if self._frozen is not None:
            for split in ("train", "validation"):
                self._outputs(split)

    @override
    def on_validation_start(self) -> None:
        if self._frozen is not None:
            self._outputs()

    on_test_start = on_predict_start = on_validation_start

    def _build(
        self, net: Mapping[str, Any], guided: bool = False, **defaults: Mapping[str, Any]
    ) -> None:
        """Build a network, to be trained as the base was but for the changes that are asked for.

        Args:
            net: Its options.
            guided: Whether its last attention is given.
            defaults: Options of a group that are not the base's, by group.
        """
        options = self.reference.identity.options
        groups = {
            name: {**options[name], **defaults.get(name, {}), **(self._changes[name] or {})}
            for name in GROUPS
        }
        self._assemble(options["problem"], self.hparams["spec"], net, guided, **groups)
        decay, parts = groups["optimizer"].get("weight_decay"), dict(self.model.named_children())
        if isinstance(decay, dict) and "weight_decay" not in (self._changes["optimizer"] or {}):
            kept = {part: value for part, value in decay.items() if part in parts}
            self.hparams["optimizer"]["weight_decay"] = kept

    def _refer(self, role: str, path: str) -> Reference:
        """A frozen model by its checkpoint or, where that was read before, by what was kept."""
        held = self.hparams["inherited"] or {}
        reference = Reference(path, Identity.of(held[role]) if role in held else None)
        self.hparams["inherited"] = held | {role: asdict(reference.identity)}
        self.settled = {"inherited": self.hparams["inherited"]}
        return reference

    def _outputs(self, split: str | None = None) -> OutputStore:
        """What the frozen model says of a split, by default of the one that is running."""
        assert self._frozen is not None
        return self._frozen.outputs(
            self.trainer.datamodule,  # type: ignore[attr-defined]
            split or running_split(self.trainer),
            self.device,
        )

"""Base class of the variants of a trained model, their base, from which they inherit options."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from typing_extensions import override

from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.models.build import with_defaults
from attnlight.problems import problem_class
from attnlight.reference import BaseSpec, CachedOutputs, FrozenBase, running_split
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.options import (
    GROUPS,
    LossChanges,
    ObjectiveChanges,
    OptimizerChanges,
    VectorsChanges,
)


class FromBase(AttentionTask):
    """Base class of the variants of a trained model, for all problems.

    A variant takes its architecture and training options from the base's checkpoint, so that it
    differs from the base in one respect alone, as the tests of Wiegreffe & Pinter (2019) require. Its
    checkpoint contains both, with the base's fingerprint, and can be loaded without the base's file.

    A subclass calls `_build` with the changed options of the network, and sets `_frozen` if its
    steps use a frozen model's outputs.

    Args:
        spec: Description of the corpus; the command line supplies it.
        base: Checkpoint of the base model, or the folder of its run.
        optimizer: Options of the optimiser that differ from the base's.
        loss: Options of the loss that differ from the base's.
        vectors: Options of the word vectors that differ from the base's.
        objective: Options of the objective that differ from the base's, of a variant that has one.
        inherited: BaseSpec of the base by role, or this as JSON; null: read it from its checkpoint.

    Attributes:
        has_objective: Whether the base's objective is taken over; if not, the variant has none.
        reference: The base, with its outputs for the corpus's texts.
        net: Options of the base's network.
        resolved_args: Arguments resolved by the constructor, which `fit.yaml` stores.

    Raises:
        InputError: The base cannot be read, has no attention or is of another corpus, or an option
            is out of range.
    """

    has_objective: ClassVar[bool] = False

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        optimizer: OptimizerChanges | None = None,
        loss: LossChanges | None = None,
        vectors: VectorsChanges | None = None,
        objective: ObjectiveChanges | None = None,
        inherited: str | dict[str, Any] | None = None,
    ) -> None:
        super(AttentionTask, self).__init__()  # `_build` needs the options of the base
        self.save_hyperparameters()
        self.hparams["inherited"] = _roles(inherited)
        self._changes = {"optimizer": optimizer, "loss": loss, "vectors": vectors}
        self._changes["objective"] = objective
        if objective and not self.has_objective:
            raise InputError(
                f"{type(self).__name__} is trained without an objective, which is for attention that "
                "is learned from labels: leave `objective` out."
            )
        self.reference = self._load_frozen("base", base)
        self._frozen: FrozenBase | None = None
        options = self.reference.identity.options
        self.hparams["problem"] = options["problem"]
        difference = problem_class(options["problem"])(spec).difference(options["spec"])
        if difference is not None:
            raise InputError(f"the base {base} {difference}: give the `data` of its fit.yaml.")
        self.net = with_defaults(options["problem"], options["net"])

    @classmethod
    @override
    def network_of(cls, arguments: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
        known = "inherited" in arguments or "base" in arguments
        options = _base_options(arguments) if known else {}
        return options.get("problem"), options.get("net", {})

    @classmethod
    @override
    def monitor(cls, arguments: Mapping[str, Any]) -> tuple[str, str]:
        base = _base_options(arguments)
        objective = base.get("objective", {}) if cls.has_objective else {}
        options = {"objective": objective | (arguments.get("objective") or {})}
        return AttentionTask.monitor({"problem": base["problem"], **options})

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            corpus: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            erases = isinstance(corpus, CorpusDataModule) and corpus.erased_words is not None
            if erases and self._frozen is not None:
                raise InputError(
                    f"{type(self).__name__} is trained on a frozen model's outputs for complete texts: "
                    "leave erased_words out of `data`."
                )
            for reference in {self.reference, self._frozen or self.reference}:
                reference.require_unchanged()
                reference.require_corpus(corpus)
        super().setup(stage)

    # Missing outputs are computed here, before any rank is inside a collective.
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
        """Build a network that is trained like the base, except for `defaults` of some groups."""
        options = self.reference.identity.options
        inherited = {name: options.get(name, {}) for name in GROUPS}  # most have no objective
        if not self.has_objective:
            inherited["objective"] = {}
        groups = {
            name: {**inherited[name], **defaults.get(name, {}), **(self._changes[name] or {})}
            for name in GROUPS
        }
        self._assemble(options["problem"], self.hparams["spec"], net, guided, **groups)
        decay, parts = groups["optimizer"].get("weight_decay"), dict(self.model.named_children())
        if isinstance(decay, dict) and "weight_decay" not in (self._changes["optimizer"] or {}):
            decay = {part: value for part, value in decay.items() if part in parts}
            self.hparams["optimizer"]["weight_decay"] = decay

    def _load_frozen(self, role: str, path: str) -> FrozenBase:
        """A frozen model, identified by its checkpoint or by `inherited` if that has its role."""
        inherited = self.hparams["inherited"]
        reference = FrozenBase(path, BaseSpec(**inherited[role]) if role in inherited else None)
        self.hparams["inherited"] = inherited | {role: asdict(reference.identity)}
        # As JSON, since a command line reads the texts of a mapping as YAML: `no`, `[EOS]`.
        self.resolved_args = {"inherited": json.dumps(self.hparams["inherited"])}
        return reference

    def _outputs(self, split: str | None = None) -> CachedOutputs:
        """The frozen model's outputs for a split, by default the running one."""
        assert self._frozen is not None
        return self._frozen.outputs(
            self.trainer.datamodule,  # type: ignore[attr-defined]
            split or running_split(self.trainer),
            self.device,
        )


def _base_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of the base that a variant's arguments name."""
    inherited = _roles(arguments.get("inherited")).get("base")
    return (BaseSpec(**inherited) if inherited else FrozenBase(arguments["base"]).identity).options


def _roles(inherited: str | dict[str, Any] | None) -> dict[str, Any]:
    """The argument `inherited` as a mapping from roles."""
    return json.loads(inherited) if isinstance(inherited, str) else dict(inherited or {})

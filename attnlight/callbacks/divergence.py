"""How far is a variant from its base model? (Wiegreffe & Pinter 2019, 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import lightning.pytorch as pl
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.errors import InputError
from attnlight.functional import js_divergence, total_variation
from attnlight.reference import OutputStore, Reference, running_split


class BaseDivergence(InterpretabilityTest):
    """Compare attention and prediction with those of a base model for the same text.

    Columns: `attention_js`, the Jensen-Shannon divergence of the two attention distributions over
    the items of the row (nats, at most ln 2; the mean over heads, each of which is in
    `attention_js_heads` where there are several); `prediction_tvd`, the total variation distance of
    the two predictions (for two classes the absolute difference of probability);
    `base_max_attention` and `base_prediction` of the base. As curves over validation epochs they
    show an adversary drift.

    The base is evaluated once per text; `attnlight.reference` keeps what it says.

    Args:
        base: Checkpoint of the base model; None takes that of the task, where it is a variant.
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances, chosen by a seeded hash; None: all.
        seed: Seed of the choice of instances.
        figures: Draw `attention_js` by the base's maximum attention, and against `prediction_tvd`.
    """

    measures = ("attention_js", "prediction_tvd")

    def __init__(
        self,
        base: str | None = None,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
    ) -> None:
        super().__init__(every_n_epochs, max_instances, seed, figures)
        self.base = base
        self._reference: Reference | None = None
        self._outputs: OutputStore | None = None

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        if self._reference is None:
            return {}
        return {
            "base": str(self._reference.path),
            "base_fingerprint": self._reference.identity.fingerprint,
        }

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        own = getattr(pl_module, "reference", None)
        if self.base is None and not isinstance(own, Reference):
            raise InputError(
                f"{self.name} compares with a base model, and {type(pl_module).__name__} is no "
                "variant of one: give its checkpoint as `base`."
            )
        self._reference = own if self.base is None else Reference(self.base)
        assert self._reference is not None
        self._reference.require_corpus(trainer.datamodule)  # type: ignore[attr-defined]

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel
    ) -> Mapping[str, Tensor]:
        assert self._outputs is not None
        weights, base = (v.double() for v in self._outputs.read(output.rows, output.mask))
        if weights.shape != output.weights.shape or base.shape != output.logits.shape:
            raise InputError(
                f"the base of {self.name} has {weights.shape[1]} heads and {base.shape[1]} classes, "
                f"the model {output.weights.shape[1]} and {output.logits.shape[1]}."
            )
        divergence = js_divergence(output.weights.double(), weights)  # (R, H)
        probabilities = output.logits.double().softmax(dim=-1)
        columns = {
            "attention_js": divergence.mean(dim=-1),
            "prediction_tvd": total_variation(probabilities, base.softmax(dim=-1)),
            "base_max_attention": weights.amax(dim=-1).mean(dim=-1),
            "base_prediction": base.argmax(dim=-1),
        }
        several = {"attention_js_heads": divergence} if divergence.shape[1] > 1 else {}
        return columns | several

    @override
    def _begin(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        stage: Literal["val", "test"],
        epoch: int | None,
    ) -> None:
        assert self._reference is not None
        corpus: Any = trainer.datamodule  # type: ignore[attr-defined]
        self._outputs = self._reference.outputs(corpus, running_split(trainer), module.device)
        super()._begin(trainer, module, stage, epoch)

"""Does attention guide a model that reads words alone? (Wiegreffe & Pinter 2019, 3.4)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from torch import Tensor
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional import permuted_weights
from attnlight.models.guided import GivenAttention
from attnlight.reference import Reference, attended_items
from attnlight.tasks.inheritance import Variant
from attnlight.tasks.variants import TrainingOptions, VariantTask

GuideName = Literal["uniform", "learned", "base", "shuffled", "adversary", "other"]


class GuidedVariant(Variant):
    """What is shared by classifiers and taggers whose attention is given.

    A subclass keeps `guide`, `guide_checkpoint` and `shuffle_seed` as hyperparameters, calls
    `_inherit`, and then `_be_guided`.

    Attributes:
        adversaries: What a guide named `adversary` is called.
    """

    adversaries: ClassVar[str]

    def _be_guided(self) -> None:
        """Open the guide, where it is a frozen model."""
        guide, checkpoint = self.hparams["guide"], self.hparams["guide_checkpoint"]
        if (guide in ("adversary", "other")) != (checkpoint is not None):
            wants = "needs a" if checkpoint is None else "takes no"
            raise InputError(f"guide {guide} {wants} guide_checkpoint.")
        self._guide = self._guiding_reference() if self._frozen else None

    @property
    def _frozen(self) -> bool:
        """Whether the guide is a frozen model."""
        return self.hparams["guide"] not in ("uniform", "learned")

    @override
    def setup(self, stage: str) -> None:
        super().setup(stage)
        if isinstance(self.model, GivenAttention):
            self.model.guide = self._guidance

    @override
    def teardown(self, stage: str) -> None:
        # A raw text's number in its batch would be taken for the index of a text of the corpus.
        if isinstance(self.model, GivenAttention):
            self.model.guide = None

    def _guiding_reference(self) -> Reference:
        guide, checkpoint = self.hparams["guide"], self.hparams["guide_checkpoint"]
        if checkpoint is None:
            return self.reference
        reference = self._refer("guide", checkpoint)
        self._require_kind(reference, "guide")
        identity, base = reference.identity, self.reference.identity
        of_this_base = "lambda_" in identity.options and identity.base == base.fingerprint
        if guide == "adversary" and not of_this_base:
            raise InputError(
                f"guide_checkpoint {checkpoint} is no {self.adversaries} trained against the "
                f"base {self.reference.path}: for any other model give guide `other`."
            )
        return reference

    @abstractmethod
    def _attended(self, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """Rows (R, 2) of a batch, and what the attention of each may reach, (R, N) bool."""

    @override
    def _read_references(self) -> list[Reference]:
        return [] if self._guide is None else [self._guide]

    def _guidance(self, batch: TextBatch) -> Tensor:
        """Attention (R, H, N) of the guide for the texts of the split that is running."""
        assert self._guide is not None
        rows, mask = self._attended(batch)
        weights, _ = self._outputs(self._guide).read(rows, mask)
        if self.hparams["guide"] == "shuffled":
            seed: int = self.hparams["shuffle_seed"]
            weights = permuted_weights(weights, mask, rows, draws=1, seed=seed)[:, :, 0]
        return weights


class GuidedMLP(GuidedVariant, VariantTask):
    """A classifier without context that is told what to attend to.

    Each word is read alone, by an affine map and tanh of the base's embedding and hidden size, and
    the guide's attention weighs the results. In a hierarchical model a guide gives the attention
    over sentences, and a sentence is the mean of its words.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        num_classes: Number of classes C; the command line takes it from the corpus.
        base: Checkpoint of the base model.
        guide: Where attention comes from. `uniform`; `learned`, additive attention of the model's
            own; `base`, frozen; `shuffled`, the base's, shuffled within each text: as peaked, and
            says nothing of the words; `adversary`, that of an adversary of this base, and `other`,
            that of any model of the corpus, such as the base's from another seed, both frozen and
            from `guide_checkpoint`.
        guide_checkpoint: Checkpoint of the guide.
        shuffle_seed: Seed of the shuffles; a text's is the same in every epoch.
        training: Options of training that differ from the base's.
        inherited: What is known of base and guide; null reads it from their checkpoints.

    Raises:
        InputError: Base or guide cannot be read, has no attention, or is of another corpus.
    """

    adversaries = "AdversarialClassifier"

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        base: str,
        guide: GuideName = "base",
        guide_checkpoint: str | None = None,
        shuffle_seed: int = 0,
        training: TrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self._inherit(
            guided=self._frozen,
            encoder="average",
            attention="additive" if guide == "learned" else "uniform",
            attention_size=None,
        )
        self._be_guided()

    @override
    def _attended(self, batch: TextBatch) -> tuple[Tensor, Tensor]:
        return attended_items(batch)

"""Does attention guide a tagger? The probe that Yang (2020) meant, and a stricter one."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.data.targets import TargetName
from attnlight.errors import InputError
from attnlight.reference import attended_tokens
from attnlight.tasks.guided import GuidedVariant, GuideName
from attnlight.tasks.tagging_variants import TaggerTrainingOptions, TaggerVariant

_GIVEN_TOKENS = {"encoder": "tokens", "layers": 1, "readout": "text"}


class GuidedTagger(GuidedVariant, TaggerVariant):
    """The base's architecture, trained anew with the attention of its last layer given.

    The guide gives each token its row of attention in each head, joined by sentence and token. Below
    the last layer nothing is given. In the study's released code its probe's given attention never
    reached the encoder: its three figures are those of guide `learned`.

    With and without queries and keys: where attention is given as it is, those of the last layer
    have nothing to do, and the model has none (a parameter that no loss reaches would also stop
    plain `ddp`). With `query_key` they are there, trained, and move what is given: attention is
    proportional to it and to the exponential of their scores. Zero scores leave it as it is, and
    over uniform attention this is guide `learned`.

    Args:
        vocab_size: Number of token ids V; the command line takes it from the corpus.
        tags: Names of the C tags; the command line takes them from the corpus.
        base: Checkpoint of the base model.
        features: Number of ids of each feature of a token; the command line takes them from the
            corpus.
        guide: Where attention comes from. `uniform`; `learned`, the model's own: a plain
            retraining; `base`, frozen; `shuffled`, the base's, each token's row shuffled within its
            sentence, its heads alike: as peaked, and says nothing of the words; `adversary`, that of
            an adversary of this base, and `other`, that of any tagger of the corpus with as many
            heads, both frozen and from `guide_checkpoint`.
        guide_checkpoint: Checkpoint of the guide.
        query_key: Let trained queries and keys move the frozen attention.
        context: `full`: the base's encoder and readout, which have other ways from a token to its
            tag than attention. `tokens`, the stricter probe: each token is read alone, by an affine
            map and tanh, without position, and the readout is `text`, so that nothing reaches a tag
            but through the attention given to its token.
        shuffle_seed: Seed of the shuffles; a token's is the same in every epoch.
        training: Options of training that differ from the base's.
        inherited: What is known of base and guide; null reads it from their checkpoints.
        target: What the corpus asks for; the command line takes it from there. Null: what the base
            answers.

    Raises:
        InputError: Base or guide cannot be read, is no tagger or of another corpus, or options
            exclude each other.
    """

    adversaries = "AdversarialTagger"

    def __init__(
        self,
        vocab_size: int,
        tags: list[str],
        base: str,
        features: dict[str, int] | None = None,
        guide: GuideName = "base",
        guide_checkpoint: str | None = None,
        query_key: bool = False,
        context: Literal["full", "tokens"] = "full",
        shuffle_seed: int = 0,
        training: TaggerTrainingOptions | None = None,
        inherited: dict[str, Any] | None = None,
        target: TargetName | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if query_key and not self._frozen:
            raise InputError(f"query_key is for frozen attention; with guide {guide} leave it out.")
        own = self._of_base()
        if context == "tokens":
            own |= _GIVEN_TOKENS | {"weight_decay": _without_recurrent(own["weight_decay"])}
        if query_key:
            own["uniform_heads"] = []
        elif guide != "learned":
            own["uniform_heads"] = list(range(own["heads"]))
        self._become(own, guided=self._frozen)
        self._be_guided()
        if self._guide is not None:
            heads = self._guide.identity.options["heads"]
            if heads != own["heads"]:
                raise InputError(
                    f"the guide {self._guide.path} has {heads} heads, the base {own['heads']}."
                )

    @override
    def _attended(self, batch: TextBatch) -> tuple[Tensor, Tensor]:
        return attended_tokens(batch)


def _without_recurrent(decay: float | dict[str, float]) -> float | dict[str, float]:
    """Weight decay of a model that reads each token alone."""
    if not isinstance(decay, dict):
        return decay
    return {part: value for part, value in decay.items() if part != "recurrent"}

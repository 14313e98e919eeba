"""Does given attention guide another model? (Wiegreffe & Pinter 2019, 3.4)."""

from typing import Any, Literal

from torch import Tensor
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional import permuted_weights
from attnlight.models.build import changed_net
from attnlight.models.guided import no_guide
from attnlight.tasks.from_base import FromBase

GuideName = Literal["uniform", "learned", "base", "shuffled", "adversary", "other"]


class GuidedVariant(FromBase):
    """A newly trained model whose last attention is supplied by a guide.

    For a classifier this is the MLP of Wiegreffe & Pinter: each word is encoded alone, by an affine
    map and tanh of the base's embedding and hidden size, and averaged with the guide's attention; in
    a hierarchical model the guide supplies the attention over sentences, and a sentence is the mean
    of its words. Of pairs the words are the passage's; the query is encoded as by the base.

    For a tagger the guide supplies each token's attention in each head of the last layer, joined by
    sentence and token; the layers below are not guided. In Yang's (2020) released code the probe's
    guide attention never reached the encoder: its three figures are those of guide `learned`. If the
    guide's attention is used unchanged, the last layer has no queries and keys (a parameter without
    gradient would also stop plain `ddp`). With `query_key` it has, and attention is proportional to
    the guide's times the exponential of their scores: zero scores leave the guide's attention
    unchanged, and over uniform attention this is guide `learned`.

    Args:
        spec: Description of the corpus; the command line supplies it.
        base: Checkpoint of the base model, or the folder of its run.
        guide: Source of the attention. `uniform`; `learned`, the model's attention: for a tagger a
            plain retraining; `base`, frozen; `shuffled`, the base's, permuted within each text, all
            heads alike and in every epoch: as peaked, but unrelated to the words; `adversary`, that
            of an adversary of this base, and `other`, that of any model of the corpus with as many
            heads, such as the base's from another seed, both frozen and from `guide_checkpoint`.
        guide_checkpoint: Checkpoint of the guide.
        query_key: Train a tagger's queries and keys with the frozen attention as a prior.
        context: For a tagger `full`: the base's encoder and readout, where information reaches a tag
            by other paths than attention; or `tokens`, the stricter probe: each token is encoded
            alone, by an affine map and tanh, without position, and the readout is `text`, so that
            all information reaches a tag through the attention of its token. Null: `full` for a
            tagger; a classifier's words are always encoded alone.
        options: Options that differ from the base's training, see `FromBase`.

    Raises:
        InputError: Base or guide cannot be read, has no attention, or is of another corpus, or
            options exclude each other.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        base: str,
        guide: GuideName = "base",
        guide_checkpoint: str | None = None,
        query_key: bool = False,
        context: Literal["full", "tokens"] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, base, **options)
        frozen = guide not in ("uniform", "learned")
        if query_key and not frozen:
            raise InputError(f"query_key is for frozen attention; with guide {guide} leave it out.")
        if (guide in ("adversary", "other")) != (guide_checkpoint is not None):
            requirement = "needs a" if guide_checkpoint is None else "takes no"
            raise InputError(f"guide {guide} {requirement} guide_checkpoint.")
        self._frozen = self.reference if frozen else None
        if guide_checkpoint is not None:
            self._frozen = self._load_frozen("guide", guide_checkpoint)
            guide_identity, base_identity = self._frozen.identity, self.reference.identity
            guide_options, base_options = guide_identity.options, base_identity.options
            if guide_options["problem"] != base_options["problem"]:
                raise InputError(
                    f"the guide {guide_checkpoint} is of {guide_options['problem']}, but its base "
                    f"of {base_options['problem']}."
                )
            adversarial = (
                "lambda_" in guide_options and guide_identity.base == base_identity.fingerprint
            )
            if guide == "adversary" and not adversarial:
                raise InputError(
                    f"guide_checkpoint {guide_checkpoint} is no AdversarialVariant trained against "
                    f"the base {base}: for any other model give guide `other`."
                )
            heads = [options["net"].get("heads") for options in (guide_options, base_options)]
            if heads[0] != heads[1]:
                raise InputError(
                    f"the guide {guide_checkpoint} has {heads[0]} heads, the base {heads[1]}."
                )
        changes = {"guide": guide, "context": context, "query_key": query_key}
        net = changed_net(self.hparams["problem"], self.net, "guided_net", **changes)
        self._build(net, guided=frozen)

    @override
    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self._frozen is not None:
            self.model.guide = self._guide_attention

    @override
    def teardown(self, stage: str) -> None:
        # The number of a raw text in its batch would be mistaken for the index of a corpus's text.
        if self._frozen is not None:
            self.model.guide = no_guide

    def _guide_attention(self, batch: TextBatch) -> Tensor:
        """Attention (R, H, N) of the guide for texts of the running split."""
        rows, mask = self.problem.instances(batch)
        weights = self._outputs().attention(rows, mask)
        if self.hparams["guide"] == "shuffled":
            weights = permuted_weights(weights, mask, rows, draws=1, seed=0)[:, :, 0]
        return weights

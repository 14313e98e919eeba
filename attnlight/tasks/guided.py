"""Does attention guide a model that is told what to attend to? (Wiegreffe & Pinter 2019, 3.4)."""

from __future__ import annotations

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
    """A model, trained anew, whose last attention is given.

    Of a classifier it is the MLP of Wiegreffe & Pinter: each word is read alone, by an affine map and
    tanh of the base's embedding and hidden size, and the guide's attention weighs the results; in a
    hierarchical model a guide gives the attention over sentences, and a sentence is the mean of its
    words.

    Of a tagger the guide gives each token its row of attention in each head of the last layer, joined
    by sentence and token; below that nothing is given. In Yang's (2020) released code its probe's
    given attention never reached the encoder: its three figures are those of guide `learned`. Where
    attention is given as it is, queries and keys of the last layer have nothing to do, and the model
    has none (a parameter that no loss reaches would also stop plain `ddp`). With `query_key` they are
    there, trained, and move what is given: attention is proportional to it and to the exponential of
    their scores. Zero scores leave it as it is, and over uniform attention this is guide `learned`.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        base: Checkpoint of the base model, or the folder of its run.
        guide: Where attention comes from. `uniform`; `learned`, the model's own: of a tagger a plain
            retraining; `base`, frozen; `shuffled`, the base's, shuffled within each text, heads
            alike: as peaked, and says nothing of the words; `adversary`, that of an adversary of
            this base, and `other`, that of any model of the corpus with as many heads, such as the
            base's from another seed, both frozen and from `guide_checkpoint`.
        guide_checkpoint: Checkpoint of the guide.
        query_key: Let a tagger's trained queries and keys move the frozen attention.
        context: Of a tagger `full`: the base's encoder and readout, which have other ways from a
            token to its tag than attention; or `tokens`, the stricter probe: each token is read
            alone, by an affine map and tanh, without position, and the readout is `text`, so that
            nothing reaches a tag but through the attention given to its token. Null: `full` of a
            tagger; a classifier's words are always read alone.
        shuffle_seed: Seed of the shuffles; an instance's is the same in every epoch.
        options: What differs from the base's training, see `FromBase`.

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
        shuffle_seed: int = 0,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, base, **options)
        given = guide not in ("uniform", "learned")
        if query_key and not given:
            raise InputError(f"query_key is for frozen attention; with guide {guide} leave it out.")
        if (guide in ("adversary", "other")) != (guide_checkpoint is not None):
            wants = "needs a" if guide_checkpoint is None else "takes no"
            raise InputError(f"guide {guide} {wants} guide_checkpoint.")
        self._frozen = self.reference if given else None
        if guide_checkpoint is not None:
            self._frozen = self._refer("guide", guide_checkpoint)
            of_guide, of_base = self._frozen.identity, self.reference.identity
            there, own = of_guide.options, of_base.options
            if there["problem"] != own["problem"]:
                raise InputError(
                    f"the guide {guide_checkpoint} is of {there['problem']}, but its base of "
                    f"{own['problem']}."
                )
            of_this_base = "lambda_" in there and of_guide.base == of_base.fingerprint
            if guide == "adversary" and not of_this_base:
                raise InputError(
                    f"guide_checkpoint {guide_checkpoint} is no AdversarialVariant trained against "
                    f"the base {base}: for any other model give guide `other`."
                )
            heads = [options["net"].get("heads") for options in (there, own)]
            if heads[0] != heads[1]:
                raise InputError(
                    f"the guide {guide_checkpoint} has {heads[0]} heads, the base {heads[1]}."
                )
        asked = {"guide": guide, "context": context, "query_key": query_key}
        net = changed_net(self.hparams["problem"], self.net, "guided_net", **asked)
        self._build(net, guided=given)

    @override
    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self._frozen is not None:
            self.model.guide = self._guidance

    @override
    def teardown(self, stage: str) -> None:
        # A raw text's number in its batch would be taken for the index of a text of the corpus.
        if self._frozen is not None:
            self.model.guide = no_guide

    def _guidance(self, batch: TextBatch) -> Tensor:
        """Attention (R, H, N) of the guide for the texts of the split that is running."""
        rows, mask = self.problem.instances(batch)
        weights, _ = self._outputs().read(rows, mask)
        if self.hparams["guide"] == "shuffled":
            seed: int = self.hparams["shuffle_seed"]
            weights = permuted_weights(weights, mask, rows, draws=1, seed=seed)[:, :, 0]
        return weights

"""How much does a variant differ from its base model? (Wiegreffe & Pinter 2019, 3 and 4)."""

from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.hooks.validate_output import broken_rows
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.samplers import OnceSampler
from attnlight.errors import InputError
from attnlight.functional import js_divergence, kendall_tau, kl_divergence, total_variation
from attnlight.functional.divergence import normalized_js
from attnlight.functional.ranking import TIE, dense_ranks
from attnlight.functional.readout.heads import head_divergences
from attnlight.models.readout import Readout
from attnlight.reference import CachedOutputs, FrozenBase, using_split

_MATCHED_ON: Literal["validation"] = "validation"
_PAIRS, _TEXTS = 1 << 16, 128  # size of the batches on which heads are matched


class BaseDivergence(InterpretabilityTest):
    """Compare attention and prediction with those of a base model for the same text.

    Columns: `attention_js`, the Jensen-Shannon divergence of the two attention distributions over
    the items of the row (nats, at most ln 2; the mean over heads); `attention_js_share`, JS
    divergence normalised by its maximum on the row (NaN for one item); `prediction_tvd`, the total
    variation distance of the two predictions (for two classes the absolute difference of
    probability); `base_max_attention` and `base_prediction` of the base. Their curves over
    validation epochs show how an adversary moves away from its base.

    `attention_kl` is the KL divergence of the model's attention from the base's, likewise (nats;
    infinite where the base gives 0 to an item that the model weighs). `attention_kl_elements` is KL
    as Yang's (2020) released code averages it: over the elements of the row, which divides its sum by
    the number of items, and over the heads in order, without matching them. That code also averages
    over boundary tokens and padding.

    Heads have no order: in a model trained from scratch they are permuted arbitrarily. Each head of
    the base is therefore matched with one head of the model, such that the mean of `attention_js`
    over all rows of the validation split is minimal: with the tested weights, and before the test
    split is read. The record's metadata have the model's head for each of the base's (`heads`).
    There are two additional columns: `attention_js_heads`, one value for each head of the base, and
    `attention_js_mean`, the divergence between the means over heads.

    With `rankings` there is also `attention_tau`, Kendall's tau-b between the two attentions over the
    items of the row, the mean over the heads where it is defined. It is undefined if either attention
    ties all items (scores within 1e-5 of the largest are ties), and NaN if it is for all heads.

    The base is evaluated once per text; `attnlight.reference` caches its outputs.

    Args:
        base: Checkpoint of the base model; None: the base of the task, which must be a variant.
        match_heads: Match heads first; false compares them in order, which suits a model that was
            initialised with the base's weights.
        rankings: Also compare the rankings of the items by the two attentions.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    measures: tuple[str, ...] = ("attention_js", "prediction_tvd")

    def __init__(
        self,
        base: str | None = None,
        match_heads: bool = True,
        rankings: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self.base = base
        self.match_heads = match_heads
        self.rankings = rankings
        self._reference: FrozenBase | None = None
        self._outputs: CachedOutputs | None = None
        self._heads: list[int] | None = None

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        reference = getattr(around.owner, "reference", None)
        if self.base is None and not isinstance(reference, FrozenBase):
            raise InputError(
                f"{self.name} compares with a base model, and the tested model is no variant of one: "
                "give the checkpoint of a base as `base`."
            )
        self._reference = reference if self.base is None else FrozenBase(self.base)
        assert self._reference is not None
        self._reference.require_corpus(around.corpus)
        self.metadata = {
            "base": str(self._reference.path),
            "base_fingerprint": self._reference.identity.fingerprint,
        } | ({"tie": TIE} if self.rankings else {})

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        assert self._outputs is not None
        base_weights = self._base_attention(self._outputs, output)
        base_logits = self._outputs.logits(output.rows, batch).double()
        in_order = output.weights.double()
        weights = in_order if self._heads is None else in_order[:, self._heads]
        divergence = js_divergence(weights, base_weights)  # (R, H)
        elements = kl_divergence(in_order, base_weights).mean(dim=-1) / output.mask.sum(dim=-1)
        probabilities = output.logits.double().softmax(dim=-1)
        columns = {
            "attention_js": divergence.mean(dim=-1),
            "attention_js_share": normalized_js(weights, base_weights, output.mask),
            "attention_kl": kl_divergence(weights, base_weights).mean(dim=-1),
            "attention_kl_elements": elements,
            "prediction_tvd": total_variation(probabilities, base_logits.softmax(dim=-1)),
            "base_max_attention": base_weights.amax(dim=-1).mean(dim=-1),
            "base_prediction": base_logits.argmax(dim=-1),
        }
        if self.rankings:
            reach = output.mask.repeat_interleave(weights.shape[1], dim=0)
            pair = (weights, base_weights)
            ranks, base_ranks = (dense_ranks(w.flatten(0, 1), reach) for w in pair)
            tau, _ = kendall_tau(ranks, base_ranks, reach)
            columns["attention_tau"] = tau.view(weights.shape[:2]).nanmean(dim=1)
        if divergence.shape[1] == 1:
            return columns
        mean = js_divergence(weights.mean(dim=1), base_weights.mean(dim=1))
        return columns | {"attention_js_heads": divergence, "attention_js_mean": mean}

    def _base_attention(self, outputs: CachedOutputs, output: AttentionOutput) -> Tensor:
        """Attention (R, H, N) of the base for the rows of an output, float64."""
        heads, classes = output.weights.shape[1], output.logits.shape[1]
        if (outputs.heads, outputs.classes) != (heads, classes):
            raise InputError(
                f"the base of {self.name} has {outputs.heads} heads and {outputs.classes} classes, "
                f"the model {heads} and {classes}."
            )
        return outputs.attention(output.rows, output.mask).double()

    @override
    def begin(self, around: Surroundings) -> None:
        assert self._reference is not None
        corpus, device = around.corpus, around.strategy.root_device
        self._outputs = self._reference.outputs(corpus, around.split, device)
        heads, self._heads = self._outputs.heads, None
        if heads > 1:
            self.measures = (*type(self).measures, "attention_js_mean")
        if heads > 1 and self.match_heads:
            from scipy.optimize import linear_sum_assignment

            outputs = self._reference.outputs(corpus, _MATCHED_ON, device)
            texts, model = corpus.dataset(_MATCHED_ON), around.model
            divergences = torch.zeros(heads, heads, dtype=torch.double, device=device)
            with using_split(_MATCHED_ON):
                for positions in OnceSampler(texts.lengths, _TEXTS, *around.place, pairs=_PAIRS):
                    output = model(texts[positions].to(device))
                    base = self._base_attention(outputs, output)
                    broken = broken_rows(output)
                    finite = slice(None) if broken is None else ~broken
                    divergences += head_divergences(output.weights[finite], base[finite])
            divergences = around.strategy.reduce(divergences, reduce_op="sum")
            # The model's head for each of the base's, for the minimal sum of divergences.
            self._heads = linear_sum_assignment(divergences.cpu().numpy())[1].tolist()
            matched = {"heads": self._heads, "heads_matched_on": _MATCHED_ON}
            self.metadata = {**self.metadata, **matched}
        super().begin(around)

"""Does attention order the words as the prediction depends on each of them?"""

from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from attnlight.attribution import build_attributions
from attnlight.attribution.occlusion import Occlusion
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.functional.attribution.log_odds import OPPOSING, log_odds, opposing_items
from attnlight.functional.correlation import somers_d
from attnlight.functional.masking import allowed_classes
from attnlight.functional.position_sample import LEAST, PositionSample
from attnlight.functional.ranking import TIE
from attnlight.functional.readout.instances import other_items
from attnlight.models.readout import Readout
from attnlight.probing.leave_one_out import deletion_effects


class LeaveOneOutAgreement(InterpretabilityTest):
    """Compare attention with how far the prediction moves when each item is deleted.

    The effect of an item is the log odds of the predicted class of the complete text less those
    after the item is deleted and the text is encoded and attended to again (leave-one-out). Columns:

    * `somers_d_<method>`: over the pairs of items whose effects differ in size by more than `least`
      of the text's largest, the share that the sizes of the method's scores order alike less the
      share ordered the other way (Somers' D). From -1 to 1. Scores within 1e-5 of the row's largest
      are ties. Undefined where no pair differs so, or the model does not define the method.
    * `opposing_mass`: attention, mean over heads, on the items that speak against the prediction:
      those whose deletion raises its log odds, by more than a tenth of the largest effect beyond what
      the deletion of the median item raises them by, if it does (`opposing_items`).
    * `supporting`: number of items whose deletion lowers the log odds by more than a tenth of the
      largest effect.
    * `largest_effect`: size of the largest effect, in log odds; `log_odds`: those of the prediction,
      undefined where the text allows no other class.
    * `resampled_somers_d_attention`, where `resampled_texts` is given: `somers_d_attention` where each
      item is replaced by words of the texts that are read (`WordSampler`) in place of being deleted,
      on so many texts; undefined on the others, and where the words of the corpus are not known.

    With `positions`, so many items of each text are deleted: the first ones by the methods, and a seeded
    sample of the others. Items, and pairs of them, are then weighted by their inverse inclusion
    probability, and the largest effect is that of the deleted items.

    For a tagger, the token whose tag is predicted is left out, since deleting it leaves no prediction.
    Texts of fewer than two items are undefined.

    Args:
        methods: Names of methods, or mappings `{name: ..., option: value}`.
        least: Difference of effects, as a share of the text's largest, above which a pair counts.
        positions: Items of a text that are deleted, at least 20; None: all. Only where rows are texts.
        resampled_texts: Number of texts, chosen by a seeded hash, on which words are also resampled.
        resamples: Draws of each word there, each of which costs as much as its deletion.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = ("attention", "attention_value_norm"),
        least: float = 0.1,
        resampled_texts: int | None = None,
        resamples: int = 2,
        positions: int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, resampled_texts=resampled_texts)
        self._require_at_least(LEAST, positions=positions)
        if not 0 <= least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be in [0, 1).")
        self.least, self.resampled_texts, self.positions = least, resampled_texts, positions
        self.methods = build_attributions(methods, self.name)
        self._resampling = Occlusion(
            replacement="resample", budget=self.budget, resamples=resamples, seed=self.seed
        )
        self.measures = (
            *(f"somers_d_{label}" for label in self.methods),
            *(("resampled_somers_d_attention",) if resampled_texts else ()),
            *("opposing_mass", "supporting", "largest_effect", "log_odds"),
        )
        self.metadata = {
            "target": "predicted class of the complete text",
            "least": least,
            "opposing": OPPOSING,
            "tie": TIE,
            "positions": positions,
        }
        self._resampled = torch.empty(0, dtype=torch.long)

    @override
    def begin(self, around: Surroundings) -> None:
        super().begin(around)
        assert self._recorder is not None
        if not self.resampled_texts:
            return
        chosen = choose(self._recorder.instances, self.resampled_texts, self.seed)
        try:
            self._resampling.word_sampler = around.sampler_of_texts
        except InputError:  # texts without a corpus or a tokenizer
            chosen = chosen[:0]
        self._resampled = torch.from_numpy(chosen)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        target, items = output.logits.argmax(-1), other_items(batch, output)
        scores = {}
        for label, method in self.methods.items():
            try:
                scores[label] = method(readout.model, batch, output, target).abs()
            except InputError:  # such as of values, which not every model has
                scores[label] = readout.weights.new_full(items.shape, torch.nan)
        sample, known, others = None, None, items
        if self.positions:
            drawn = [ranks for ranks in scores.values() if not ranks.isnan().all()]
            sample = PositionSample.of_texts(batch, output, drawn, self.positions, self.seed)
            items = known = sample.known
        effects = deletion_effects(readout.model, batch, output, target, self.budget, known)
        alone = allowed_classes(output.logits).sum(-1, keepdim=True) < 2  # no other class
        effects = effects.masked_fill(alone, 0.0)
        sizes = effects.abs().masked_fill(~items, 0.0)
        largest = sizes.amax(-1, keepdim=True)
        columns, pairs = {}, None if sample is None else sample.pair_weights()
        for label, ranks in scores.items():
            every = ranks, sizes, items
            ranks, moved, shown = every if sample is None else sample.compact(*every)
            columns[f"somers_d_{label}"] = somers_d(ranks, moved, shown, self.least, pairs)
        if self.resampled_texts:
            resampled = torch.full_like(readout.weights[:, 0], torch.nan)
            rows = torch.isin(output.rows[:, 0], self._resampled.to(resampled.device))
            if rows.any():
                part = readout.select(rows)
                moved = self._resampling(part.model, part.batch, part.output, target[rows]).abs()
                those = readout.weights[rows], moved, others[rows]
                resampled[rows] = somers_d(*those, self.least)
            columns["resampled_somers_d_attention"] = resampled
        times = items.double() if sample is None else sample.item_weights()
        opposing = opposing_items(effects, items) * times * readout.weights
        columns["opposing_mass"] = opposing.sum(-1).clamp(max=1)
        columns["supporting"] = ((effects > OPPOSING * largest) * times).sum(-1)
        columns["largest_effect"] = largest.squeeze(-1)
        odds = log_odds(readout.logits, target)
        columns["log_odds"] = odds.masked_fill(alone.squeeze(-1), torch.nan)
        undefined = readout.undefined(fewest=2) | (sizes.isnan() & items).any(-1)
        return fill_undefined(columns, undefined) | {"length": readout.lengths}

"""Do explanations agree with what people call the reason? (DeYoung et al. 2020)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, build_attributions
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.hooks.text_columns import score_columns
from attnlight.callbacks.marked import marking_column, tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.pairs import EVIDENCE
from attnlight.data.rationales import ANNOTATORS, MAX_ANNOTATORS, RATIONALE
from attnlight.functional import (
    annotator_agreement,
    expected_average_precision,
    plausibility,
    random_rankings,
    span_f1,
)
from attnlight.functional.ranking import TIE, first_items
from attnlight.functional.readout.instances import marked_items
from attnlight.models.readout import Readout

_MEASURES = ("auprc", "token_f1", "iou_f1")


class Plausibility(InterpretabilityTest):
    """Compare explanations of the predicted class with what people marked, beside chance.

    An item belongs to the rationale if the corpus's column is positive for it or, if items are
    sentences, for any of its words. With m of n attended items in the rationale, for each method:

    * `auprc_<method>`: average precision of the scores against the rationale, tied items at one
      threshold (within 1e-5 of the largest size of a score).
    * `token_f1_<method>`: F1 of the m items of highest score, which is also their precision and their
      recall. Of tied items at the threshold each counts with the probability of being chosen.
    * `iou_f1_<method>`: F1 of the spans of these m items (ties from left to right). Spans are maximal
      runs of items; two match if their intersection over union is at least 0.5.

    Items are ordered by signed score where a method has signs. All three are means over texts; ERASER
    divides mean precision and mean recall of spans instead. Beside them:

    * `chance_auprc`, `chance_token_f1`: their exact expectations for a random order; the second is
      m / n. `chance_iou_f1`: the mean over `draws` random sets of m items.
    * `human_auprc`, `human_token_f1`, `human_iou_f1`: one annotator's marks as the explanation and
      another's as the rationale, the mean over all pairs of those who marked something, where several
      people marked each text.
    * `rationale_items`: m; `without_rationale`: whether m is 0. The columns before are undefined then.

    A rationale gives the reason of the label; the prediction may be another class, and its reason
    another one.

    Args:
        methods: Attribution methods by name, or with options: `{name: occlusion, replacement: pad}`.
        column: Per-token column of the corpus with the rationale, positive where a token belongs to
            it; null: `rationale`, or else `evidence`.
        draws: Number of random sets of `chance_iou_f1`.
        keep_scores: Also record `probabilities` and, as `scores_<method>`, the scores themselves, one
            list per row in the order of its items: `attnlight export` writes them in ERASER's format.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = DEFAULT_METHODS,
        column: str | None = None,
        draws: int = 20,
        keep_scores: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, draws=draws)
        self.methods = build_attributions(methods, self.name)
        self._columns = [RATIONALE, EVIDENCE] if column is None else [column]
        self.draws = draws
        self.keep_scores = keep_scores
        self.metadata: dict[str, Any] = {"tie": TIE}
        self._set_measures(people=False)

    def _set_measures(self, people: bool) -> None:
        names = [f"{measure}_{label}" for label in self.methods for measure in _MEASURES]
        beside = ["chance", "human"] if people else ["chance"]
        names += [f"{source}_{measure}" for source in beside for measure in _MEASURES]
        self.measures = (*names, "without_rationale")

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        texts = tested_split(around)
        if texts is not None:
            column = marking_column(self.name, self._columns, texts.extras)
            items = "words" if texts.whole_words else "tokens"
            self.metadata |= {"items": "sentences" if texts.nested else items}
            self._set_measures(people=column == RATIONALE and ANNOTATORS in texts.extras)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        column = marking_column(self.name, self._columns, list(batch.extras))
        marked, mask = marked_items(batch.extras[column] > 0, batch, output), output.mask
        count, target = marked.sum(-1), output.logits.argmax(-1)
        columns: dict[str, Any] = {}
        kept: dict[str, Tensor] = {}
        for label, method in self.methods.items():
            scores, others = method.explain(readout.model, batch, output, target)
            defined = mask & ~scores.isnan()  # a tagger's own token cannot be deleted
            found = plausibility(scores.nan_to_num(), marked & defined, defined)
            columns |= {f"{name}_{label}": values for name, values in (found | others).items()}
            kept[label] = scores
        orders = random_rankings(mask, output.rows, self.draws, self.seed)
        chosen = first_items(orders, count[:, None]).flatten(0, 1)
        of_draws = span_f1(chosen, marked.repeat_interleave(self.draws, 0)).view(-1, self.draws)
        share = count / readout.lengths.double()
        columns["chance_auprc"] = expected_average_precision(count, readout.lengths)
        columns["chance_token_f1"] = share.masked_fill(count == 0, torch.nan)
        columns["chance_iou_f1"] = of_draws.mean(-1)
        if column == RATIONALE and ANNOTATORS in batch.extras:
            bits = batch.extras[ANNOTATORS]
            each = [(bits >> place) & 1 > 0 for place in range(MAX_ANNOTATORS)]
            marks = torch.stack([marked_items(marks, batch, output) for marks in each])
            found = annotator_agreement(marks[marks.any(-1).any(-1)], mask)
            columns |= {f"human_{name}": values for name, values in found.items()}
        columns |= {"rationale_items": count, "without_rationale": (count == 0).double()}
        if not self.keep_scores:
            return columns
        return columns | score_columns(kept, mask) | {"probabilities": output.probabilities}

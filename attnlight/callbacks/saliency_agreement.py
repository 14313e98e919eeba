"""Do attribution methods agree on which items matter?"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, build_attributions
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.hooks.text_columns import score_columns
from attnlight.functional.correlation import TOP, pearson_r, rank_agreement, top_count
from attnlight.functional.divergence import js_divergence
from attnlight.functional.ranking import TIE, dense_ranks
from attnlight.functional.readout.instances import other_items
from attnlight.models.readout import Readout

# Weights are a factor of `gradient_x_attention`: its agreement with attention is built in.
METHODS = tuple(name for name in DEFAULT_METHODS if name != "gradient_x_attention")


class SaliencyAgreement(InterpretabilityTest):
    """Agreement of attribution methods on the items of each row, for every pair of methods.

    All explain the predicted class. Signed methods are compared by size, so that they rank like
    unsigned ones, unless `signed`. For methods `<one>` and `<other>`, by their labels:

    * `tau_<one>_<other>`: Kendall's tau-b, from -1 to 1.
    * `spearman_<one>_<other>`: Spearman's rank correlation, from -1 to 1.
    * `pearson_<one>_<other>`: Pearson's correlation, from -1 to 1.
    * `js_<one>_<other>`: Jensen-Shannon divergence (nats, at most ln 2) of the absolute scores, each
      normalised to sum to 1.
    * `overlap_<one>_<other>`: share of the top k items by one that are among the top k by the other,
      with k a tenth of the items, rounded up. Ties at the boundary are broken at random, for each
      method by itself: the column is the exact expectation.

    Scores within 1e-5 of the row's largest are ties. Correlations are undefined if a method ties
    all items (`tied_<method>` is 1) or has no score of one, and all columns for a row of one item.
    `chance_overlap`, k over the number of items, is the overlap of random orders. If rows are tokens
    (a tagger), a method that deletes items has no score of the token itself, and its pairs exclude
    this token.

    Args:
        methods: Names of attribution methods, or mappings such as
            `{name: occlusion, replacement: delete, label: deletion}`; at least two.
        signed: Compare signed methods by their signed scores.
        keep_scores: Also record the scores, with their signs, one list per row in the order of its
            items, as `scores_<method>`: `attnlight reliability` compares them between runs, which
            gives the agreement of each pair its ceiling.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = METHODS,
        signed: bool = False,
        keep_scores: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self.methods = build_attributions(methods, self.name, least=2)
        self.signed, self.keep_scores = signed, keep_scores
        self.metadata = {"tie": TIE, "top": 1 / TOP, "signed": signed}
        self._pairs = list(combinations(self.methods, 2))
        self.measures = tuple(f"tau_{one}_{other}" for one, other in self._pairs)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        mask, target = output.mask, output.logits.argmax(-1)
        scores = {
            label: method(readout.model, batch, output, target)
            for label, method in self.methods.items()
        }
        compared = scores if self.signed else {label: scores[label].abs() for label in scores}
        others = other_items(batch, output)
        known = {label: mask & (others | ~values.isnan()) for label, values in compared.items()}
        columns: dict[str, Any] = {}
        for label, values in compared.items():
            columns[f"tied_{label}"] = (dense_ranks(values, known[label]).amax(-1) < 1).double()
        for one, other in self._pairs:
            items, pair = known[one] & known[other], (compared[one], compared[other])
            found = rank_agreement(*pair, items) | {"pearson": pearson_r(*pair, items)}
            js = js_divergence(*(_shares(x, items) for x in pair))
            found["js"] = js.masked_fill(items.sum(-1) < 2, torch.nan)
            columns |= {f"{measure}_{one}_{other}": values for measure, values in found.items()}
        chance = top_count(readout.lengths) / readout.lengths.double()
        columns["chance_overlap"] = chance.masked_fill(readout.lengths < 2, torch.nan)
        return columns | (score_columns(scores, mask) if self.keep_scores else {})


def _shares(scores: Tensor, items: Tensor) -> Tensor:
    """Sizes of scores (R, N) as shares of their sum over some items; NaN where all are 0."""
    sizes = scores.abs().double().masked_fill(~items, 0.0)
    return sizes / sizes.sum(-1, keepdim=True)

"""Does the top item matter more than another? (Serrano & Smith 2019, 4)."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Level, Measured, fill_undefined
from attnlight.functional import js_divergence
from attnlight.functional.ranking import TIE, lower_and_tied, random_others
from attnlight.models.readout import SCORES, Gradient, Readout

_ELEMENTS = 1 << 16  # probabilities compared at once: so many fit a CPU's cache


class SingleErasure(InterpretabilityTest):
    """Erase the top item of a ranking, or another item, and compare the effects on the prediction.

    Rankings are `attention`, `gradient` (of the probability of `target` by the weights) and
    `gradient_x_attention`; ties go to the item further left. The remaining attention is
    renormalised. With p the original prediction, q_i the prediction without item i, w_i its attention
    (mean over heads), t the top item and r another one, the columns of each ranking are:

    * `flip_top`: whether erasing t changes the decision.
    * `flip_other_drawn`, `delta_weight_drawn` (w_t - w_r), `delta_js_drawn`
      (JS(p, q_t) - JS(p, q_r), nats): for one uniform draw of r, which is never t.
    * `flip_other_expected`, `delta_weight_expected`, `delta_js_expected`: the means over all r.
    * `outdone_expected`: share of all r whose JS(p, q_r) is above that of t.

    JS that are ties by `dense_ranks` are equal: neither is above the other, and the difference of a
    draw is 0. Rows with fewer than two items are undefined.

    With several heads an item is erased from all of them, and rankings are by the mean of their
    scores. `<column>_by_head` (R, H) is of each head alone, ranked by its scores, the others fixed:
    exact, since their contribution is a constant for each class.

    Args:
        gradient: Rank by the signed gradient, as the paper does, or by its absolute value.
        released: Also record the draw of the released code as `flip_other_released`,
            `delta_weight_released` and `delta_js_released`: an index from 1 to L - 1 of L, hence never
            the first item, and sometimes the top item itself.
        level: `words`: the items are the words inside the sentences of a hierarchical model, as
            `HasWordLevel` says. The weight of a word is that inside its sentence, whatever the weight
            of the sentence; after an erasure the rest of the sentence is renormalised, and a sentence
            whose words are all erased is passed over. None: the items of the last attention layer, as
            in the paper.
        target: The class whose probability the rankings by gradient differentiate, by its name, or by
            its number where classes are not called by numbers; or `runner_up`, the class of the second
            highest logit of each row, for two classes the gradient with the other sign. None: the
            predicted class, as in the paper. Effects are those on the prediction in any case.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    joins_batches = True
    measures = tuple(
        f"{measure}_{score}"
        for measure in ("flip_top", "flip_other_expected", "delta_js_expected", "outdone_expected")
        for score in SCORES
    )

    def __init__(
        self,
        gradient: Gradient = "signed",
        released: bool = False,
        level: Level = None,
        target: int | str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self.gradient, self.level, self.target = gradient, level, target
        self.released = released
        self.metadata = {"gradient": gradient, "gradient_of": target, "level": level, "tie": TIE}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        return readout.columns(self._columns, self._columns)

    def _columns(self, readout: Readout) -> dict[str, Tensor]:
        output, weights = readout.output, readout.weights
        target = self._target_class(output.logits.shape[-1])
        tops = readout.rankings(self.gradient, target)[..., 0]  # (R, 3)
        js, flips = _effects(readout)
        lower, tied = lower_and_tied(js, output.mask)
        count = (readout.lengths - 1).clamp(min=1)[:, None]  # of other items
        top_weight, top_js = weights.gather(-1, tops), js.gather(-1, tops)
        above = readout.lengths[:, None] - (lower + tied).gather(-1, tops)
        mean_weight, mean_js, mean_flips = (
            (values.sum(-1, keepdim=True) - values.gather(-1, tops)) / count
            for values in (weights, js, flips)
        )
        measured = {
            "flip_other_expected": mean_flips,
            "delta_weight_expected": top_weight - mean_weight,
            "delta_js_expected": top_js - mean_js,
            "outdone_expected": above / count,
        }
        draw = output.mask, output.rows, tops, self.seed
        others = {"drawn": random_others(*draw)}
        if self.released:
            others["released"] = random_others(*draw, released=True)
        for name, places in others.items():
            equal = lower.gather(-1, tops) == lower.gather(-1, places)
            delta_js = (top_js - js.gather(-1, places)).masked_fill(equal, 0.0)
            measured[f"flip_other_{name}"] = flips.gather(-1, places)
            measured[f"delta_weight_{name}"] = top_weight - weights.gather(-1, places)
            measured[f"delta_js_{name}"] = delta_js
        measured["flip_top"] = flips.gather(-1, tops)
        columns = {
            f"{measure}_{score}": column
            for measure, values in measured.items()
            for score, column in zip(SCORES, values.unbind(-1), strict=True)
        }
        return fill_undefined(columns, readout.undefined(fewest=2), output.logits.dtype)


def _effects(readout: Readout) -> tuple[Tensor, Tensor]:
    """JS of the prediction without each item, and whether it flips, (R, N), 0 off the mask."""
    logits, mask = readout.erase(), readout.output.mask
    js = torch.zeros_like(logits[..., 0])
    row, item = mask.nonzero().unbind(-1)
    # Items alone, without padding: the logarithms of all classes dominate the cost of this test.
    # Classes are few, so that a CPU is faster along the items.
    before = readout.logits.softmax(-1).mT.contiguous()
    size = max(1, _ELEMENTS // logits.shape[-1])
    for place in torch.split(torch.arange(len(row), device=row.device), size):
        after = logits[row[place], item[place]].mT.contiguous().softmax(0)
        js[row[place], item[place]] = js_divergence(before[:, row[place]].mT, after.mT)
    flips = logits.argmax(-1) != readout.logits.unsqueeze(1).argmax(-1)
    return js, flips.masked_fill(~mask, False).double()

"""Does attention find the words that people edited to turn the label? (Kaushik et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, build_attributions
from attnlight.batch import AttentionOutput, HasGuide, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.marked import tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError
from attnlight.functional import average_precision, expected_average_precision
from attnlight.functional.alignment import move_weights, rank_of_marked
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.ranking import TIE
from attnlight.models.readout import Readout, readout_of
from attnlight.probing.swaps import Blocks, aligned_blocks, single_edit_logits

_METHOD_MEASURES = ("auprc", "mass", "rank", "auprc_used")
_PAIR_MEASURES = ("turns", "correct", "correct_original")
_SIDE_MEASURES = (
    *("edit_share", "chance_auprc", "auprc_first", "auprc_last"),
    *("edits", "largest_effect", "turning_edits", "moved_attention_turns"),
)


class CounterfactualUse(InterpretabilityTest):
    """Do explanations find the words of a text that people edited until its label turned?

    A row is an edit, which is measured with its original: both are explained, each for its own
    predicted class, and a measure is the mean over the two texts in which it is defined. Rows that are no
    edit are undefined, and pairs whose prediction does not turn have `turns` 0 and nothing else
    but `correct` and `correct_original`: whether the class of the edit, and of the original, is
    predicted.

    The two texts are aligned by their longest common runs of items (`functional.alignment.align`). The
    edited items of a text are those that the other one lacks or has others for; an insertion has none
    in the text without it. For each method:

    * `auprc_<method>`: average precision of the scores, signed where a method has signs, against the
      edited items.
    * `mass_<method>`: share of the sizes of all scores that edited items have; of attention, its mass.
    * `rank_<method>`: share of the other items that rank above an edited one, tied ones counted half,
      mean over edited ones; 0.5 for a random order, lower is better.
    * `auprc_used_<method>`: average precision against the items of used edits alone. Each edit is
      applied alone and the text read again; its effect is the decrease of the log odds of the class
      explained. An edit is used if it has at least the share `used` of the text's largest effect.

    Beside them are `edit_share`, the share of edited items, which is the mass of uniform attention;
    `chance_auprc`, the exact expectation for a random order; `auprc_first` and `auprc_last`, for the
    order from left to right and back; `edits`, their number; `largest_effect` in log odds;
    `turning_edits`, the share of edits that turn the prediction alone; and `moved_attention_turns`:
    whether the text's prediction turns if its attention is that of the other text, moved along the
    alignment and renormalised (`functional.alignment.move_weights`), by the exact readout.

    Edits of a query are aligned as equal passages: only `turns` and `moved_attention_turns` are defined.
    A model with a `guide` has attention for complete texts only, and no effects of single edits.

    `original` is the dataset index of the original; intervals resample originals, with all their edits.

    Args:
        methods: Attribution methods by name, or with options: `{name: occlusion, replacement: pad}`.
        used: Share of the largest effect of an edit at which another edit is used.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = DEFAULT_METHODS,
        used: float = 0.5,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not 0 < used <= 1:
            raise InputError(f"used of {self.name} is {used}; it must be above 0 and at most 1.")
        self.methods = build_attributions(methods, self.name)
        self.used = used
        of_methods = (f"{name}_{label}" for name in _METHOD_MEASURES for label in self.methods)
        self.measures = (*of_methods, *_SIDE_MEASURES, *_PAIR_MEASURES)
        self.metadata = {"clusters": "original", "tie": TIE, "used": used}
        self._split: Any = None

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        corpus = around.corpus
        if not isinstance(corpus, TextDataModule) or corpus.edits.edit_of is None:
            raise InputError(
                f"{self.name} needs a corpus of texts and edits of them: set edit_of of "
                "TextDataModule or PairDataModule to the column that joins an original and its "
                "edits, as configs/data/counterfactual_imdb.yaml does."
            )
        self._split = tested_split(around)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        split, model, device = self._split, readout.model, output.mask.device
        at = np.searchsorted(split.index, batch.index.cpu().numpy())
        of = np.full(len(batch), -1) if split.edit_of is None else split.edit_of[at]
        rows = np.flatnonzero(of >= 0)
        undefined = torch.full((len(batch),), torch.nan, dtype=torch.float64, device=device)
        columns: dict[str, Any] = dict.fromkeys((*self.measures, "original"), undefined)
        if not len(rows):
            return columns
        originals = split[np.searchsorted(split.index, of[rows]).tolist()].to(device)
        pairs = torch.from_numpy(rows).to(device)
        with torch.no_grad():
            outputs = model(originals)
        edit = readout.select(torch.from_numpy(of >= 0).to(device))
        before, after = (x.logits.argmax(-1) for x in (outputs, edit.output))
        turns = before != after
        found = {"turns": turns.double(), "original": originals.index.double()}
        if edit.batch.labels is not None and originals.labels is not None:
            found["correct_original"] = (before == originals.labels).double()
            found["correct"] = (after == edit.batch.labels).double()
        columns |= {name: undefined.index_put((pairs,), x) for name, x in found.items()}
        if turns.any():
            # Selected by place, not by index: several edits may share one original.
            chosen = originals.select(turns), outputs.select(turns, turns)
            original, edit = readout_of(*chosen, model), edit.select(turns)
            one, other, edited = aligned_blocks(original.batch, edit.batch)
            found = {"edits": edited.sum(-1).double()}
            first = self._side(original, edit, (one, other, edited))
            second = self._side(edit, original, (other, one, edited))
            found |= {name: torch.stack([x, second[name]]).nanmean(0) for name, x in first.items()}
            columns |= {name: undefined.index_put((pairs[turns],), x) for name, x in found.items()}
        return columns

    def _side(self, text: Readout, other: Readout, blocks: Blocks) -> dict[str, Tensor]:
        """Measures (P,) of texts beside others; blocks are those of `single_edit_logits`."""
        (own, _, edited), mask = blocks, text.output.mask
        target = text.output.logits.argmax(-1)
        items = edited.gather(1, own.clamp(min=0)) & mask
        effects, turned = self._effects(text, other, blocks)
        largest = effects.nan_to_num(-torch.inf).amax(-1)
        by_item = effects.gather(1, own.clamp(min=0))
        used = items & (by_item >= self.used * largest[:, None]) & (by_item > 0)
        count, length = items.sum(-1), mask.sum(-1)
        places = torch.arange(mask.shape[1], device=mask.device).double().expand(mask.shape)
        found = {
            "edit_share": count / length.double(),
            "chance_auprc": expected_average_precision(count, length),
            "auprc_first": average_precision(-places, items, mask),
            "auprc_last": average_precision(places, items, mask),
        }
        for label, method in self.methods.items():
            scores, _ = method.explain(text.model, text.batch, text.output, target)
            sizes = scores.abs().masked_fill(~mask, 0.0)
            found[f"auprc_{label}"] = average_precision(scores, items, mask)
            found[f"mass_{label}"] = (sizes * items).sum(-1) / sizes.sum(-1)
            found[f"rank_{label}"] = rank_of_marked(scores, items, mask)
            found[f"auprc_used_{label}"] = average_precision(scores, used, mask)
        found = fill_undefined(found, count == 0)
        return found | {
            "largest_effect": largest.masked_fill(largest.isinf(), torch.nan),
            "turning_edits": turned.nanmean(-1),
            "moved_attention_turns": _moved_attention_turns(text, other, blocks),
        }

    def _effects(self, text: Readout, other: Readout, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Decrease of the log odds by each edit alone, and whether it turns the prediction, (P, K)."""
        edited, target, model = blocks[2], text.output.logits.argmax(-1), text.model
        if isinstance(model, HasGuide) and model.guide is not None:
            undefined = torch.full(edited.shape, torch.nan, dtype=torch.float64)
            return undefined.to(edited.device), undefined.to(edited.device)
        whole, logits = single_edit_logits(model, text.batch, other.batch, blocks, self.budget)
        effects = log_odds(whole, target)[:, None] - log_odds(logits, target)
        turned = (logits.argmax(-1) != target[:, None]).double()
        return effects, turned.masked_fill(effects.isnan(), torch.nan)


def _moved_attention_turns(text: Readout, other: Readout, blocks: Blocks) -> Tensor:
    """Whether a text's prediction turns with the attention of the other one, (P,) float64."""
    own, others = (
        of_items.masked_fill(~side.output.mask, -1)
        for of_items, side in zip(blocks[:2], (text, other), strict=True)
    )
    moved = move_weights(other.output.weights, others, own)
    lost = moved.isnan().flatten(1).any(-1)
    weights = moved.nan_to_num().to(text.output.weights.dtype)
    after = text.candidates(weights.unsqueeze(2)).squeeze(1).argmax(-1)
    return (after != text.output.logits.argmax(-1)).double().masked_fill(lost, torch.nan)

"""Does attention cite the sentences that an answer needs? (Cohen-Wang et al. 2024, 2025)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import AnswerAttention, LearnedHeads, build_attributions
from attnlight.batch import AttentionOutput, HasAnswerAttention, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, fill_undefined
from attnlight.data.pairs import EVIDENCE
from attnlight.data.rationales import RATIONALE
from attnlight.errors import InputError
from attnlight.functional import average_precision, expected_average_precision
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.correlation import somers_d, spearman_rho
from attnlight.functional.ranking import TIE, first_items, ranking
from attnlight.functional.readout.instances import marked_items, rows_are_texts
from attnlight.models.readout import Readout
from attnlight.probing.context_ablation import Way, ablated, random_subsets

LEAVE_ONE_OUT = "leave_one_out"
METHODS = ("attention", "answer_attention", "input_gradient", "context_cite", "random")
_MEASURES = ("somers_d", "lds", "necessary", "sufficient")
_MARKED = ("auprc", "finds")


class ContextAblation(InterpretabilityTest):
    """Leave items of a context out, and compare the effect on the answer with scores of the items.

    Items are the sentences of a passage, or its tokens, and the answer is the predicted class of the
    complete context. The effect of an item is the decrease of the log odds of the answer without it. For
    each method, and for `leave_one_out`, these effects themselves:

    * `somers_d_<method>`: Somers' D of the sizes of the scores given the sizes of the effects, over pairs
      of items whose effects differ by more than `least` of the text's largest.
    * `lds_<method>`: the linear datamodelling score, Spearman's correlation over `subsets` random sets
      of items between the log odds where only these stay and the sum of their scores.
    * `drop_<k>_<method>`: decrease of the log odds without the k items of highest score, where more than
      k are there.
    * `necessary_<method>`: whether the answer is another one without the item of highest score, which
      the method would cite; `sufficient_<method>`: whether it is the same with that item alone.
    * `auprc_<method>` and `finds_<method>`, where supporting items are marked (`evidence` or
      `rationale`): average precision of the scores against them, and whether the highest is one.

    Beside them are `chance_auprc`, the exact expectation for a random order, `chance_finds`, the share of
    marked items, `correct`, `log_odds` of the answer, `largest_effect`, and `prompts`: the tokens that
    were computed for all sets, as a multiple of the complete prompt's. Contexts of one item are undefined,
    as are methods that read the layers of an `AnswerModel` for other models.

    Args:
        methods: Attribution methods by name, or with options: `{name: context_cite, ablations: 64}`.
        way: How items are left out. `removed` from the prompt; `masked`: no later token attends to them,
            and all keep their positions; `hidden` from question and answer alone: other sentences may
            have taken on what they say. Models that are no `AnswerModel` are read with items removed.
        subsets: Number of random sets, each of which keeps an item with probability 1/2 and at least one.
        top: Numbers k of items to drop.
        least: Difference of effects, as a share of the largest, from which Somers' D counts a pair.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True
    shows_table = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = METHODS,
        way: Way = "removed",
        subsets: int = 32,
        top: Sequence[int] = (1, 3, 5),
        least: float = 0.1,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, top=min(top, default=1))
        self._require_at_least(2, subsets=subsets)
        if not 0 <= least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be in [0, 1).")
        self.way, self.subsets, self.top = way, subsets, sorted({*top})
        self.least = least
        self.methods = build_attributions(methods, self.name)
        if LEAVE_ONE_OUT in self.methods:
            raise InputError(
                f"{self.name} has {LEAVE_ONE_OUT} itself: give the method another `label`."
            )
        drops = [f"drop_{count}" for count in self.top]
        of_methods = (
            f"{measure}_{label}"
            for measure in (*_MEASURES, *drops, *_MARKED)
            for label in (*self.methods, LEAVE_ONE_OUT)
        )
        others = (
            "chance_auprc",
            "chance_finds",
            "correct",
            "log_odds",
            "largest_effect",
            "prompts",
        )
        self.measures = (*of_methods, *others)
        described = {label: method.metadata for label, method in self.methods.items()}
        self.metadata = {"methods": described, "way": way, "least": least, "tie": TIE}

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Tensor]:
        if not rows_are_texts(batch, output):
            raise InputError(
                f"{self.name} needs a model with one row for each text, not for each token."
            )
        items, target, model = output.mask, output.logits.argmax(-1), readout.model
        count, size = items.sum(-1), items.shape[1]
        scores = {
            label: method(model, batch, output, target)
            if isinstance(model, HasAnswerAttention)
            or not isinstance(method, AnswerAttention | LearnedHeads)
            else torch.full(items.shape, torch.nan, dtype=torch.float64, device=items.device)
            for label, method in self.methods.items()
        }
        with torch.no_grad():
            single = items.unsqueeze(1) & ~torch.eye(size, dtype=torch.bool, device=items.device)
            random = random_subsets(items, batch.index, self.subsets, self.seed)
            sets = [items.unsqueeze(1), single, random]
            logits, cost = self._ablated(readout, sets)
            odds = [log_odds(part, target) for part in logits]
            effects = (odds[0] - odds[1]).masked_fill(~items, 0.0)
            scores[LEAVE_ONE_OUT] = effects
            tops = [
                first_items(ranking(x.nan_to_num(), items), count.new_tensor(1)) & items
                for x in scores.values()
            ]
            dropped = [
                items & ~first_items(ranking(x.nan_to_num(), items), count.new_tensor(k))
                for x in scores.values()
                for k in self.top
            ]
            # A set of which nothing stays is not read; its measures are undefined.
            dropped = [torch.where(kept.any(-1, keepdim=True), kept, items) for kept in dropped]
            found, more = self._ablated(readout, [torch.stack(tops, 1), torch.stack(dropped, 1)])
        alone, without = found
        falls = odds[0] - log_odds(without, target)
        turned = (logits[1].argmax(-1) != target[:, None]).double()
        everything = torch.ones_like(random[:, :, 0])
        columns: dict[str, Tensor] = {}
        for number, (label, values) in enumerate(scores.items()):
            top, unknown = tops[number], (values.isnan() & items).any(-1)
            columns[f"somers_d_{label}"] = somers_d(values.abs(), effects.abs(), items, self.least)
            sums = (random * values.masked_fill(~items, 0.0).unsqueeze(1)).sum(-1)
            columns[f"lds_{label}"] = spearman_rho(sums, odds[2], everything)
            kept = (alone[:, number].argmax(-1) == target).double()
            columns[f"necessary_{label}"] = (turned * top).sum(-1).masked_fill(unknown, torch.nan)
            columns[f"sufficient_{label}"] = kept.masked_fill(unknown, torch.nan)
            for place, k in enumerate(self.top):
                fall = falls[:, number * len(self.top) + place]
                columns[f"drop_{k}_{label}"] = fall.masked_fill((count <= k) | unknown, torch.nan)
        columns |= self._marked(batch, output, scores, tops)
        columns |= {"log_odds": odds[0].squeeze(1), "largest_effect": effects.abs().amax(-1)}
        cost[:, 1 : 1 + size].masked_fill_(~items, 0.0)  # of padding
        columns["prompts"] = 1 + cost[:, 1:].sum(-1) + more.sum(-1)
        columns["correct"] = torch.full_like(columns["prompts"], torch.nan)
        if batch.labels is not None:
            columns["correct"] = (target == batch.labels).double()
        undefined = [name for name in columns if name not in ("correct", "log_odds")]
        few = fill_undefined({name: columns[name] for name in undefined}, count < 2)
        return columns | few | {"length": count}

    def _ablated(self, readout: Readout, sets: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Logits (R, K, C) of each of several groups of sets (R, K, N), and the cost of each set."""
        texts = readout.model, readout.batch, readout.output
        logits, cost = ablated(*texts, torch.cat(list(sets), dim=1), self.way, self.budget)
        sizes = [part.shape[1] for part in sets]
        return list(torch.split(logits.double(), sizes, dim=1)), cost

    def _marked(
        self,
        batch: TextBatch,
        output: AttentionOutput,
        scores: Mapping[str, Tensor],
        tops: Sequence[Tensor],
    ) -> dict[str, Tensor]:
        """Agreement of scores with the items that the corpus marks; NaN where it marks none."""
        items, column = (
            output.mask,
            next((n for n in (EVIDENCE, RATIONALE) if n in batch.extras), ""),
        )
        marked = torch.zeros_like(items)
        if column:
            marked = marked_items(batch.extras[column] > 0, batch, output)
        count, size = marked.sum(-1), items.sum(-1)
        columns = {
            "chance_auprc": expected_average_precision(count, size),
            "chance_finds": count / size.double(),
        }
        for (label, values), top in zip(scores.items(), tops, strict=True):
            unknown = (values.isnan() & items).any(-1)
            found = {
                f"auprc_{label}": average_precision(values.nan_to_num(), marked, items),
                f"finds_{label}": (top & marked).any(-1).double(),
            }
            columns |= fill_undefined(found, unknown)
        return fill_undefined(columns, count == 0)

"""Does attention cite the sentences that an answer needs? (Cohen-Wang et al. 2024, 2025)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import AnswerAttention, LearnedHeads, build_attributions
from attnlight.attribution.learned_heads import HeadLearner, Heads
from attnlight.batch import AttentionOutput, HasAnswerAttention, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.hooks.epoch_recorder import EpochRecorder
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.pairs import EVIDENCE
from attnlight.data.rationales import RATIONALE
from attnlight.errors import InputError
from attnlight.functional import average_precision, expected_average_precision
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.correlation import somers_d, spearman_rho
from attnlight.functional.masking import allowed_classes
from attnlight.functional.ranking import TIE, first_items, ranking
from attnlight.functional.readout.instances import marked_items, rows_are_texts
from attnlight.models.readout import Readout
from attnlight.probing.context_ablation import Way, ablated, random_subsets, single_subsets

LEAVE_ONE_OUT = "leave_one_out"
METHODS: tuple[str | dict[str, Any], ...] = (
    "attention",
    "answer_attention",
    {"name": "answer_attention", "of": "value_norm", "label": "answer_value_norm"},
    {"name": "answer_attention", "of": "rollout", "label": "answer_rollout"},
    "input_gradient",
    "context_cite",
    "random",
)
_MARKED = ("auprc", "finds")
_OF_METHODS = ("somers_d", "lds", "necessary", "sufficient", *_MARKED, "passes")
_OTHERS = ("chance_auprc", "chance_finds", "correct", "log_odds", "largest_effect", "prompts")


class _LeftOut(NamedTuple):
    """What leaving items out does to the answers of R contexts of N items.

    Attributes:
        items: The items, (R, N) bool.
        answer: The class that is the answer, (R,).
        odds: Its log odds, (R,).
        effects: Their decrease without each item, (R, N).
        turned: Whether another answer is likelier without each item, (R, N) float64.
        sets: Random sets of items that stay, (R, K, N) bool.
        random: The log odds where only these stay, (R, K).
        cost: Tokens computed, as a multiple of the complete prompt's, (R,).
    """

    items: Tensor
    answer: Tensor
    odds: Tensor
    effects: Tensor
    turned: Tensor
    sets: Tensor
    random: Tensor
    cost: Tensor


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
      the method would cite; `sufficient_<method>`: whether it is the same with that item alone. The
      column `cited_<method>` has the place of that item.
    * `auprc_<method>` and `finds_<method>`, where supporting items are marked (`evidence` or
      `rationale`): average precision of the scores against them, and whether the highest is one.
    * `passes_<method>`: forward passes of a text that the scores cost, a backward pass counted as two.

    Beside them are `chance_auprc`, the exact expectation for a random order, `chance_finds`, the share of
    marked items, `correct`, `log_odds` of the answer, `largest_effect`, and `prompts`: the tokens that
    were computed for all sets, as a multiple of the complete prompt's. Contexts of one item or of one
    allowed answer are undefined, as are methods that read the layers of an `AnswerModel` for other models.

    Args:
        methods: Attribution methods by name, or with options: `{name: context_cite, ablations: 64}`.
        way: How items are left out. `removed` from the prompt; `masked`: no later token attends to them,
            and all keep their positions; `hidden` from question and answer alone: other sentences may
            have taken on what they say. Models that are no `AnswerModel` are read with items removed.
        subsets: Number of random sets, each of which keeps an item with probability 1/2 and at least one.
        top: Numbers k of items to drop.
        least: Difference of effects, as a share of the largest, from which Somers' D counts a pair.
        heads: File of heads that were learned from other texts; the methods `best_head` and
            `learned_heads` are added.
        learn: File of heads to write, learned from the texts of this test (one process only).
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
        heads: str | None = None,
        learn: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, top=min(top, default=1))
        self._require_at_least(2, subsets=subsets)
        if not 0 <= least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be in [0, 1).")
        self.way, self.subsets, self.top = way, subsets, sorted({*top})
        self.least, self.learn = least, learn
        self._learner: HeadLearner | None = None
        learned: dict[str, Any] = {"name": "learned_heads", "file": heads}
        added = [learned | {"best": True, "label": "best_head"}, learned] if heads else []
        self.methods = build_attributions([*methods, *added], self.name)
        if LEAVE_ONE_OUT in self.methods:
            raise InputError(
                f"{self.name} has {LEAVE_ONE_OUT} itself: give the method another `label`."
            )
        names = (*_OF_METHODS, *(f"drop_{count}" for count in self.top))
        labels = (*self.methods, LEAVE_ONE_OUT)
        self.measures = (*(f"{name}_{label}" for name in names for label in labels), *_OTHERS)
        self.metadata: dict[str, Any] = {
            "way": way,
            "least": least,
            "tie": TIE,
            "heads": Heads.read(heads).table() if heads else None,
        }

    @override
    def begin(self, around: Surroundings) -> None:
        if self.learn and around.place[1] > 1:
            raise InputError(
                f"{self.name} learns heads in one process, not {around.place[1]}: set "
                "trainer.devices to 1."
            )
        super().begin(around)
        self._learner = HeadLearner(around.model) if self.learn else None

    @override
    def finish(self, tests: Sequence[InterpretabilityTest]) -> EpochRecorder | None:
        recorder = super().finish(tests)
        if recorder is not None and self._learner is not None and self.learn is not None:
            self._learner.write(self.learn)
        return recorder

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        if not rows_are_texts(batch, output):
            raise InputError(
                f"{self.name} needs a model with one row for each text, not for each token."
            )
        answer, count = output.logits.argmax(-1), output.mask.sum(-1)
        # Methods that read layers of a model that has none are undefined.
        layered = isinstance(readout.model, HasAnswerAttention)
        scores = {
            label: method(readout.model, batch, output, answer)
            if layered or not isinstance(method, AnswerAttention | LearnedHeads)
            else torch.full_like(output.mask, torch.nan, dtype=torch.float64)
            for label, method in self.methods.items()
        }
        with torch.no_grad():
            left = self._leave_out(readout, answer)
            scores[LEAVE_ONE_OUT] = left.effects
            cited, logits, cost = self._cite(readout, scores)
        if self._learner is not None:
            self._learner.add(batch, output, left.sets, left.random, left.effects)
        marked = torch.zeros_like(output.mask)
        column = next((name for name in (EVIDENCE, RATIONALE) if name in batch.extras), None)
        if column is not None:
            marked = marked_items(batch.extras[column] > 0, batch, output)
        supporting = marked.sum(-1)
        columns = {
            "chance_auprc": expected_average_precision(supporting, count),
            "chance_finds": supporting / count.double(),
        }
        for number, (label, values) in enumerate(scores.items()):
            found = self._judge(values, left, marked, cited[:, number], logits[:, number])
            unknown = (values.isnan() & left.items).any(-1)
            named = {f"{name}_{label}": column for name, column in found.items()}
            columns |= fill_undefined(named, unknown)
            method = self.methods.get(label)
            passes = 1 if method is None else method.passes
            each = count if method is None or method.replacement else torch.ones_like(count)
            columns[f"passes_{label}"] = passes * each.double()
        unmarked = [name for name in columns if name.startswith(("chance", *_MARKED))]
        columns |= fill_undefined({n: columns[n] for n in unmarked}, supporting == 0)
        columns |= {"largest_effect": left.effects.abs().amax(-1), "prompts": left.cost + cost}
        alone = allowed_classes(output.logits).sum(-1) < 2  # no other answer
        columns = fill_undefined(columns, alone | (count < 2))
        correct = torch.full_like(left.odds, torch.nan)
        if batch.labels is not None:
            correct = (answer == batch.labels).double()
        odds = left.odds.masked_fill(alone, torch.nan)
        return columns | {"correct": correct, "log_odds": odds, "length": count}

    def _leave_out(self, readout: Readout, answer: Tensor) -> _LeftOut:
        """The effects of leaving out each item, and random sets of items."""
        items, texts = readout.output.mask, (readout.model, readout.batch, readout.output)
        sets = random_subsets(items, readout.batch.index, self.subsets, self.seed)
        every = [items.unsqueeze(1), single_subsets(items), sets]
        logits, cost = ablated(*texts, torch.cat(every, dim=1), self.way, self.budget)
        whole, single, random = torch.split(logits, [part.shape[1] for part in every], dim=1)
        odds = log_odds(whole, answer)
        effects = (odds - log_odds(single, answer)).masked_fill(~items, 0.0)
        turned = ((single.argmax(-1) != answer.unsqueeze(1)) & items).double()
        cost[:, 1 : 1 + items.shape[1]].masked_fill_(~items, 0.0)  # of padding
        total = 1 + cost[:, 1:].sum(-1)
        return _LeftOut(
            items, answer, odds.squeeze(1), effects, turned, sets, log_odds(random, answer), total
        )

    def _cite(
        self, readout: Readout, scores: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The item that each of M methods cites, what is left of the answer, and the cost.

        Returns:
            The items of highest score (R, M, N) bool; logits (R, M, 1 + K, C) with that item alone and
            without the first k; the cost of all these sets, (R,).
        """
        items, texts = readout.output.mask, (readout.model, readout.batch, readout.output)
        cited, sets = [], []
        for values in scores.values():
            order = ranking(values.nan_to_num(), items)
            firsts = [first_items(order, order.new_tensor(k)) & items for k in (1, *self.top)]
            cited.append(firsts[0])
            # A set of which nothing stays is not read; its measures are undefined.
            rest = [items & ~first for first in firsts[1:]]
            rest = [torch.where(kept.any(-1, keepdim=True), kept, items) for kept in rest]
            sets += [firsts[0], *rest]
        logits, cost = ablated(*texts, torch.stack(sets, dim=1), self.way, self.budget)
        parted = logits.reshape(len(logits), len(scores), -1, logits.shape[-1])
        return torch.stack(cited, dim=1), parted, cost.sum(-1)

    def _judge(
        self, values: Tensor, left: _LeftOut, marked: Tensor, cited: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """Measures (R,) of scores (R, N); `cited` (R, N) and logits (R, 1 + K, C) are of `_cite`."""
        items, count = left.items, left.items.sum(-1)
        sums = (left.sets * values.masked_fill(~items, 0.0).unsqueeze(1)).sum(-1)
        every = torch.ones_like(sums, dtype=torch.bool)
        # Six digits, so that rounding parts no ties.
        largest = (x.abs().amax(-1, keepdim=True).clamp(min=1e-30) for x in (sums, left.random))
        pairs = zip((sums, left.random), largest, strict=True)
        sums, odds = ((x / size * 1e6).round() for x, size in pairs)
        falls = left.odds.unsqueeze(1) - log_odds(logits[:, 1:], left.answer)
        return {
            "somers_d": somers_d(values.abs(), left.effects.abs(), items, self.least),
            "lds": spearman_rho(sums, odds, every),
            "necessary": (left.turned * cited).sum(-1),
            "sufficient": (logits[:, 0].argmax(-1) == left.answer).double(),
            "cited": cited.double().argmax(-1).double(),
            "auprc": average_precision(values.nan_to_num(), marked, items),
            "finds": (cited & marked).any(-1).double(),
        } | {
            f"drop_{k}": falls[:, place].masked_fill(count <= k, torch.nan)
            for place, k in enumerate(self.top)
        }

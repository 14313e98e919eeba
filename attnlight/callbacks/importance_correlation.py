"""Does attention agree with gradients and leave-one-out? (Jain & Wallace 2019, 4.1)."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.hooks.text_columns import score_columns
from attnlight.callbacks.surroundings import Surroundings
from attnlight.errors import InputError
from attnlight.functional import kendall_tau
from attnlight.functional.position_sample import LEAST, PositionSample
from attnlight.functional.ranking import TIE, dense_ranks
from attnlight.functional.readout.instances import other_items
from attnlight.models.readout import Readout
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out

Gradient = Literal["detached", "attached"]
_MANY = 2_000  # classes; half a minute for 16 texts on one core
_LONG = 5_000  # items; about a minute on one core where the encoder is recurrent
_FEW = 8  # classes over which gradients are summed where nothing else is asked
_GRADIENTS = {"detached": "input_gradient", "attached": "input_gradient_attached"}


class ImportanceCorrelation(InterpretabilityTest):
    """Kendall's tau-b between attention and measures of each item's importance to the prediction.

    Scores of the items are their attention (mean over heads), `input_gradient` (gradient times
    embedding with attention held constant, as published), `input_gradient_attached` (the gradient
    flows through attention too) and `loo` (the change of the prediction when the item is deleted,
    with the remaining text encoded and attended to again). For each pair of scores except the two
    gradients:

    * `tau_<one>_<other>`, such as `tau_attention_loo`, from -1 to 1.
    * `p_<one>_<other>`: its two-sided p-value, of this row alone.

    Scores within 1e-5 of the row's largest are ties. Tau is undefined if a score ties all items, as
    for a text of one item. With several heads, `tau_attention_<other>_heads` and
    `p_attention_<other>_heads` have one value per head.

    With `positions`, so many items of each text are deleted: the first ones by attention and by
    gradient, and a seeded sample of the others. Taus with `loo` are estimates, to which a pair of items
    contributes by the inverse of the probability that both are deleted; `low_<one>_loo` and
    `high_<one>_loo` are a 95 % interval of the text's tau, and there are no p-values with `loo`.

    If rows are tokens (a tagger), the gradients are of the token's predicted class, and a word is
    deleted once for all other tokens of its sentence. The token itself cannot be deleted: taus with
    `loo` exclude it, and its score is NaN.

    Args:
        leave_one_out: Compute `loo`, which encodes texts again.
        gradients: The gradients to compute.
        classes: Sum gradients over `all` classes, as published, which takes a backward pass for each, or
            take those of the log odds of the `predicted` class, in one. For two classes, and for
            tokens, both order the items alike. None: `all` of up to 8 named classes, of more the
            `predicted` one.
        positions: Items of a text that are deleted, at least 20; None: all. Only where rows are texts,
            and not with `keep_scores`.
        keep_scores: Also record the scores themselves, one list per row in the order of its items,
            as `scores_attention`, `scores_loo` and so on: `attnlight reliability` compares them
            between runs.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        leave_one_out: bool = True,
        gradients: Sequence[Gradient] = ("detached", "attached"),
        keep_scores: bool = False,
        classes: Literal["all", "predicted"] | None = None,
        positions: int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not leave_one_out and not gradients:
            raise InputError(f"{self.name} needs leave_one_out or one of gradients to compare.")
        self._require_at_least(LEAST, positions=positions)
        if positions and keep_scores:
            raise InputError(
                f"keep_scores of {self.name} records the scores of all items: leave out positions."
            )
        self.leave_one_out, self.positions = leave_one_out, positions
        self.gradients = [kind for kind in _GRADIENTS if kind in gradients]
        self.keep_scores = keep_scores
        self.classes = classes
        self.metadata: dict[str, Any] = {
            "tie": TIE,
            "gradients": self.gradients,
            "gradients_of": classes or "all",
            "leave_one_out": leave_one_out,
            "positions": positions,
        }
        named = [_GRADIENTS[kind] for kind in self.gradients]
        loo = ["loo"] if leave_one_out else []
        self._pairs = [("attention", name) for name in named + loo]
        self._pairs += [(name, "loo") for name in named if loo]
        self.measures = tuple(f"tau_{one}_{other}" for one, other in self._pairs)

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        few = len(around.classes) <= _FEW
        self.metadata["gradients_of"] = self.classes or ("all" if few else "predicted")

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        scores, sample = self._scores(readout)
        # A token cannot be deleted and predicted: pairs with `loo` are over the other items.
        others = other_items(batch, output)
        columns: dict[str, Any] = {}
        ranks_of = cache(lambda name, mask: dense_ranks(scores[name], mask))
        for one, other in self._pairs:
            mask = others if other == "loo" else output.mask
            drawn = sample if other == "loo" else None
            ranks = ranks_of(other, mask if drawn is None else drawn.known)
            ways = {f"{one}_{other}": (ranks_of(one, mask), ranks)}
            if one == "attention" and output.weights.shape[1] > 1:
                heads = [dense_ranks(weights, mask) for weights in output.weights.unbind(1)]
                each = torch.stack(heads, 1)
                ways[f"{one}_{other}_heads"] = each, ranks.unsqueeze(1).expand_as(each)
            for pair, both in ways.items():
                if drawn is None:
                    found = dict(zip(("tau", "p"), kendall_tau(*both, mask), strict=True))
                else:
                    found = dict(zip(("tau", "low", "high"), drawn.tau(*both), strict=True))
                    found["p"] = torch.full_like(found["tau"], torch.nan)
                columns |= {f"{measure}_{pair}": values for measure, values in found.items()}
        return columns | (score_columns(scores, output.mask) if self.keep_scores else {})

    def _scores(self, readout: Readout) -> tuple[dict[str, Tensor], PositionSample | None]:
        """Scores (R, N) by name, and the sampled items of leave-one-out; None: all are deleted."""
        model, batch, output = readout.model, readout.batch, readout.output
        scores = {"attention": output.weights.mean(1)}
        classes = self.metadata["gradients_of"]
        many = classes == "all" and output.logits.shape[1] > _MANY
        if self.gradients and many:
            self._say_once(
                f"the model has {output.logits.shape[1]:,} classes; gradients take time quadratic in "
                "their number. To avoid it set classes: predicted in the test."
            )
        for kind in self.gradients:
            scores[_GRADIENTS[kind]] = input_gradient(
                model, batch, output, detached=kind == "detached", classes=classes
            )
        sample = None
        if self.leave_one_out and self.positions:
            drawn = batch, output, list(scores.values()), self.positions, self.seed
            sample = PositionSample.of_texts(*drawn)
        elif self.leave_one_out and output.mask.shape[1] > _LONG:
            self._say_once(
                f"a text has {output.mask.shape[1]:,} items; leave-one-out takes time quadratic in their "
                "number. To avoid it set positions: 64 in the test where rows are texts, else "
                "leave_one_out: false, or truncate in the corpus."
            )
        if self.leave_one_out:
            only = None if sample is None else sample.known
            scores["loo"] = leave_one_out(model, batch, output, self.budget, only)
        return scores, sample

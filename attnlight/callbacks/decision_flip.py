"""How much must be erased before the decision flips? (Serrano & Smith 2019, 5, and its minimum)."""

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Level, Measured, fill_undefined
from attnlight.errors import InputError
from attnlight.functional.ranking import TIE, random_rankings
from attnlight.models.readout import SCORES, Gradient, Readout

RANKINGS = (*SCORES, "random")
_MEASURES = ("removed_count", "removed_fraction", "removed_mass", "needs_all", "never_flips")
_MINIMAL = ("minimal_count", *(f"{measure}_minimal" for measure in _MEASURES[1:]))


class DecisionFlip(InterpretabilityTest):
    """Erase items from the top of a ranking until the decision changes.

    Rankings are `attention`, `gradient` (of the probability of `target` by the weights),
    `gradient_x_attention`, `random` (the mean over several draws), `random_first` (the first of
    these draws) and `minimal`, the smallest set of items whose erasure changes the decision. After
    each step the remaining attention is renormalised. The columns of a ranking:

    * `removed_count`, `removed_fraction` (of the row's items) and `removed_mass` (of its attention,
      mean over heads or, of words, over sentences) when the decision first changes.
    * `needs_all`: whether the decision changes only when no attention remains.
    * `never_flips`: whether no step changes the decision. The other columns are undefined then.
    * `excess`: items beyond the minimum, whose count is `minimal_count`.

    Under `random` the first four are means over the draws that flip, and `never_flips` is the share
    of those that do not. `length` is the number of items. If the readout is not affine, the minimum
    is unknown and its columns are undefined. Ties in a ranking go to the item further left; rows
    without items are undefined.

    With several heads an item is erased from all of them, rankings are by the mean of their scores,
    and the minimum is an upper bound, the best of the greedy orders. `<column>_by_head` (R, H) is of
    each head alone, ranked by its scores, the others fixed: the minimum is exact then, and `random`
    is of one draw.

    Args:
        draws: Random orders for each instance; the paper uses 5.
        gradient: Rank by the signed gradient, as the paper does, or by its absolute value.
        emptied: Prediction when no attention remains: from the `bias` alone, as in the paper, or
            from `uniform` attention over all items (Mohankumar et al. 2020; for one head).
        level: `words`: the items are the words inside the sentences of a hierarchical model, as in
            `SingleErasure`; None: the items of the last attention layer, as in the paper.
        target: The class whose probability the rankings by gradient differentiate, by its name or
            number, or `runner_up`, as in `SingleErasure`; None: the predicted class, as in the paper.
            The decision that flips is the model's in any case.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    joins_batches = True
    measures = (
        *(f"{measure}_{name}" for measure in _MEASURES[1:] for name in (*RANKINGS, "minimal")),
        "minimal_count",
        *(f"excess_{name}" for name in RANKINGS),
    )

    def __init__(
        self,
        draws: int = 5,
        gradient: Gradient = "signed",
        emptied: Literal["bias", "uniform"] = "bias",
        level: Level = None,
        target: int | str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, draws=draws)
        self.gradient, self.level, self.target = gradient, level, target
        self.draws = draws
        self.emptied = emptied
        self.metadata = {
            "draws": draws,
            "gradient": gradient,
            "gradient_of": target,
            "level": level,
            "tie": TIE,
            "emptied": emptied,
            "minimal": "exact for one head and by head, an upper bound for several heads together, "
            "null without item logits",
            "draws_by_head": 1,
        }

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        heads = output.weights.shape[1]
        if self.emptied == "uniform" and heads > 1:
            raise InputError(
                f"emptied of {self.name} is uniform, which is for models of one attention head; "
                f"this one has {heads}. Use bias."
            )
        if self.emptied == "uniform":
            uniform = output.mask / output.mask.sum(-1, keepdim=True).clamp(min=1)
            uniform = uniform.to(output.weights.dtype)[:, None, None]
            empty = readout.candidates(uniform).squeeze(1)
            readout = type(readout)(readout.batch, readout.output, readout.model, empty)
        measure, measure_heads = (partial(self._columns, draws=draws) for draws in (self.draws, 1))
        return readout.columns(measure, measure_heads) | {"length": readout.lengths}

    def _columns(self, readout: Readout, draws: int) -> dict[str, Tensor]:
        output = readout.output
        random = random_rankings(output.mask, output.rows, draws, self.seed)
        target = self._target_class(output.logits.shape[-1])
        rankings = readout.rankings(self.gradient, target)
        orders = torch.cat([rankings, random], dim=1)  # (R, 3 + D, N)
        counts = readout.first_flips(orders)
        columns: dict[str, Tensor] = {}
        for measure, values in _removed(readout, orders, counts).items():
            *score_columns, first = values[:, : len(SCORES) + 1].unbind(-1)
            columns |= zip((f"{measure}_{name}" for name in SCORES), score_columns, strict=True)
            columns[f"{measure}_random"] = values[:, len(SCORES) :].nanmean(-1)
            columns[f"{measure}_random_first"] = first
        minimal_set = readout.minimal_flips()
        if minimal_set is None:
            unknown = torch.full_like(readout.weights[:, 0], torch.nan)
            columns |= dict.fromkeys(_MINIMAL, unknown)
        else:
            size, members = minimal_set
            order = (~members).byte().argsort(dim=-1, stable=True)
            removed = _removed(readout, order.unsqueeze(1), size.unsqueeze(1)).values()
            columns |= zip(_MINIMAL, (column.squeeze(1) for column in removed), strict=True)
        for name in RANKINGS:
            columns[f"excess_{name}"] = columns[f"removed_count_{name}"] - columns["minimal_count"]
        return fill_undefined(columns, readout.undefined(fewest=1), output.logits.dtype)


def _removed(readout: Readout, orders: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Each of `_MEASURES` after erasing the first `counts` (R, K) of orders (R, K, N), (R, K)."""
    weights = readout.weights.unsqueeze(1).expand(orders.shape).gather(-1, orders)
    erased = torch.arange(orders.shape[-1], device=orders.device) < counts.unsqueeze(-1)
    never = counts < 0
    count = counts.double()
    remains, total = weights.masked_fill(erased, 0.0).sum(-1) > 0, weights.sum(-1)
    values = {
        "removed_count": count,
        "removed_fraction": count / readout.lengths.clamp(min=1).unsqueeze(-1),
        "removed_mass": weights.masked_fill(~erased, 0.0).sum(-1) / total.where(total > 0, 1.0),
        "needs_all": (~remains).double(),
    }
    defined = {name: column.masked_fill(never, torch.nan) for name, column in values.items()}
    return defined | {"never_flips": never.double()}

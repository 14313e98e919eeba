"""Can a very different attention give the same output? (Jain & Wallace 2019, 4.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.parts import readouts_of_parts
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.functional import (
    blackbox_adversary,
    largest_js,
    read,
    search_adversary,
    total_variation,
    worst_case_attention,
    worst_case_js,
)
from attnlight.functional.frontier import EPSILONS
from attnlight.functional.heads import head_readout, own_attention, own_items

# Weights (rows x heads x items) at a time: what is tried in the place of each takes some 8 KiB.
_WEIGHTS = 1 << 16
_SEARCHED = ("search_js", "search_tvd", "search_gap")


class AdversarialAttention(InterpretabilityTest):
    """Find attention as different as possible from the model's own that keeps its prediction.

    Columns: `worst_js`, the largest Jensen-Shannon divergence (nats, at most 0.693) from the own
    attention among attentions that move the prediction by at most epsilon; `worst_tvd`, how far
    that one moves it; `worst_share`, `worst_js` over the largest JS that any attention on the text
    can have, undefined for one item. A large value alone says little: attention that is faithful
    but redundant, such as over ten words that each carry the signal, has one too.

    For two classes and an affine readout `worst_js` is exact. For more classes it is a lower bound,
    and `upper_js` an upper one. Where the readout is not affine it is the best of all attention on
    one item, some mixtures of two, and what is searched: a lower bound, and `upper_js` is undefined.

    With several heads each is changed alone, the others held, to which the above applies; columns are
    means over heads, and `<column>_by_head` (R, H) holds the parts. `joint_js` is of all heads
    changed together, the mean over heads of their JS: a lower bound, from heads that take their own
    adversary one after the other, as far as the prediction stays.

    With `search`, `search_js` and `search_tvd` are what Jain and Wallace's search finds at the same
    epsilon, and `search_gap` is `worst_js - search_js`. With `frontier`, `frontier_js` (R, 12) is
    `worst_js` at each of the record's `frontier_epsilons`, from which
    `attnlight.functional.frontier` bounds mean JS by mean TVD; for two classes, one head and an
    affine readout.

    Args:
        epsilon: Largest total variation distance between the predictions; the released code's
            results have 0.05 here and `search_epsilon: 0.01`.
        frontier: Also solve for the grid of tolerances, at about ten times the cost.
        search: Also run the search, at thousands of times the cost.
        search_instances: Search for this many instances, chosen by a seeded hash; None: all.
        starts: Attentions that the search starts from.
        steps: Its steps of Adam.
        learning_rate: That of Adam.
        amsgrad: Whether Adam uses the largest second moment so far.
        penalty: Weight of the distance between predictions beyond `search_epsilon`.
        search_epsilon: Distance that the search does not penalise; None: `epsilon`.
        start_scale: Standard deviation of the scores at the start.
        spread: Weight of the mean JS between the attentions of an instance.
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances, chosen by a seeded hash; None: all.
        seed: Seed of the starts and of the choice of instances.
        figures: Draw the paper's histogram and violins, and the frontier where there is one.
    """

    measures: ClassVar[tuple[str, ...]] = ("worst_js", "worst_share", "worst_tvd", "upper_js")

    def __init__(
        self,
        epsilon: float = 0.01,
        frontier: bool = False,
        search: bool = False,
        search_instances: int | None = None,
        starts: int = 5,
        steps: int = 500,
        learning_rate: float = 0.01,
        amsgrad: bool = True,
        penalty: float = 500.0,
        search_epsilon: float | None = None,
        start_scale: float = 3.0,
        spread: float = 1.0,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
    ) -> None:
        super().__init__(every_n_epochs, max_instances, seed, figures)
        if not epsilon > 0:
            raise InputError(f"epsilon of {self.name} is {epsilon}; it must be above 0.")
        for option, number in (
            ("starts", starts),
            ("steps", steps),
            ("search_instances", 1 if search_instances is None else search_instances),
        ):
            if number < 1:
                raise InputError(f"{option} of {self.name} is {number}; it must be at least 1.")
        self.epsilon = epsilon
        self.frontier = frontier
        self.search = search
        self.search_instances = search_instances
        self.options: dict[str, Any] = {
            "starts": starts,
            "steps": steps,
            "learning_rate": learning_rate,
            "amsgrad": amsgrad,
            "penalty": penalty,
            "search_epsilon": search_epsilon,
            "start_scale": start_scale,
            "spread": spread,
        }
        if search:
            self.measures = (*type(self).measures, *_SEARCHED)  # type: ignore[misc]
        self._chosen: Tensor | None = None

    @property
    @override
    def metadata(self) -> Mapping[str, Any]:
        about: dict[str, Any] = {
            "epsilon": self.epsilon,
            "worst": "each head alone; exact for two classes and item logits, else a lower bound",
            "upper": "exact for two classes, an upper bound for more, null without item logits",
            "joint": "all heads together, a lower bound",
        }
        if self.frontier:
            about["frontier_epsilons"] = list(EPSILONS)
        if self.search:
            about["search"] = self.options | {"instances": self.search_instances}
        return about

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel
    ) -> Mapping[str, Tensor]:
        found = [self._measure(*part, model) for part in _parts(batch, output)]
        return {name: torch.cat([part[name] for part in found]) for name in found[0]}

    def _measure(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel
    ) -> dict[str, Tensor]:
        heads = _Heads(output, model)
        found, searched = self._search(batch, output, model) if self.search else (None, None)
        adversary, worst, upper = self._worst(batch, output, model, found)
        columns = {
            "worst_js": worst,
            "worst_share": worst / heads.largest_js(),
            "worst_tvd": heads.moved(adversary),
            "upper_js": upper,
        }
        if found is not None and searched is not None:
            moved = heads.moved(found).masked_fill(searched.isnan(), torch.nan)
            gap = worst - searched
            columns |= {"search_js": searched, "search_tvd": moved, "search_gap": gap}
        shown = {name: by_head.mean(-1) for name, by_head in columns.items()}
        if worst.shape[1] > 1:
            shown["joint_js"] = _joint_js(output, model, adversary, worst, self.epsilon)
            shown |= {f"{name}_by_head": by_head for name, by_head in columns.items()}
        shown |= self._frontier(output)
        undefined = worst.isnan().any(-1) | ~output.mask.any(-1)
        dtype = torch.promote_types(output.logits.dtype, torch.float32)
        return {
            name: column.to(dtype).masked_fill(
                undefined if column.ndim == 1 else undefined[:, None], torch.nan
            )
            for name, column in shown.items()
        }

    def _worst(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel, found: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Adversaries (R, H, N), their JS (R, H), and what no JS exceeds, (R, H)."""
        weights, items, mask = output.weights, output.item_logits, output.mask
        if items is not None:
            return worst_case_attention(weights, items, mask, self.epsilon, found)
        readout = partial(model.readout, output)
        part = readouts_of_parts(batch, output, model)
        adversary, js = blackbox_adversary(weights, readout, mask, self.epsilon, found, part)
        return adversary, js, torch.full_like(js, torch.nan)

    def _frontier(self, output: AttentionOutput) -> dict[str, Tensor]:
        items = output.item_logits
        if not self.frontier or items is None or items.shape[1] > 1 or items.shape[-1] > 2:
            return {}
        epsilons = torch.tensor(EPSILONS, dtype=torch.float64, device=items.device)
        js = worst_case_js(output.weights[:, 0], items[:, 0], output.mask, epsilons)
        return {"frontier_js": js}

    def _search(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel
    ) -> tuple[Tensor, Tensor]:
        """Adversaries (R, H, N) and their JS (R, H), the own and NaN where none is searched."""
        adversary = output.weights.double().clone()
        js = torch.full_like(adversary[..., 0], torch.nan)
        rows = self._wanted(output.rows[:, 0])
        if not rows.any():
            return adversary, js
        part = output.select(self._wanted(batch.index), rows)
        # Under inference mode the output's own tensors could be in no graph. An RNN of a readout
        # has a backward pass in evaluation mode without cuDNN alone.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            part = part.apply(torch.clone)
            found = search_adversary(
                part.weights,
                partial(model.readout, part) if part.item_logits is None else part.item_logits,
                part.mask,
                self.epsilon,
                part.rows,
                seed=self.seed,
                **self.options,
            )
        adversary[rows], js[rows] = found
        return adversary, js

    def _wanted(self, index: Tensor) -> Tensor:
        """Which of these dataset rows to search for, (R,) bool."""
        if self._chosen is None:
            return torch.ones_like(index, dtype=torch.bool)
        return torch.isin(index, self._chosen.to(index.device))

    @override
    def _begin(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        stage: Literal["val", "test"],
        epoch: int | None,
    ) -> None:
        super()._begin(trainer, module, stage, epoch)
        if not self.search or self.search_instances is None:
            return
        assert self._sheet is not None
        rows = choose(self._sheet.instances, self.search_instances, self.seed)
        self._chosen = torch.from_numpy(rows)


def _parts(
    batch: TextBatch, output: AttentionOutput
) -> Iterator[tuple[TextBatch, AttentionOutput]]:
    """A batch and its output in parts of rows whose adversaries fit into memory together."""
    size = max(1, _WEIGHTS // max(1, output.weights[:1].numel()))
    if len(output.rows) <= size:
        yield batch, output
        return
    numbers = torch.arange(len(output.rows), device=output.rows.device)
    for start in range(0, len(numbers), size):
        rows = (numbers >= start) & (numbers < start + size)
        texts = torch.isin(batch.index, output.rows[rows, 0])
        yield batch.select(texts), output.select(texts, rows)


def _joint_js(
    output: AttentionOutput, model: AttentionModel, adversary: Tensor, js: Tensor, epsilon: float
) -> Tensor:
    """Mean JS (R,) of heads that take their adversaries (R, H, N) while the prediction stays."""
    items = output.item_logits
    held = output.weights if items is None else output.weights.double()

    def predict(weights: Tensor) -> Tensor:
        if items is None:
            return model.readout(output, weights.unsqueeze(2)).squeeze(1).double().softmax(-1)
        return read(weights, items.double()).softmax(-1)

    own, total = predict(held), torch.zeros_like(js[:, 0])
    for head in range(js.shape[1]):
        tried = held.clone()
        tried[:, head] = adversary[:, head].to(held.dtype)
        # An adversary is often just at epsilon: rounding must not decide.
        kept = total_variation(predict(tried), own) <= epsilon * (1 + 1e-5)
        held = torch.where(kept[:, None, None], tried, held)
        total += torch.where(kept, js[:, head], 0.0)
    return total / js.shape[1]


class _Heads:
    """The heads of R rows, each by itself beside the others as they are."""

    def __init__(self, output: AttentionOutput, model: AttentionModel) -> None:
        own, reach = own_attention(output.weights, output.mask)
        self._own, self._reach = own, reach
        self._shape = output.weights.shape[:2]
        self._read: Callable[[Tensor], Tensor]
        if output.item_logits is None:
            self._read = head_readout(partial(model.readout, output), output.weights)
        else:
            self._read = partial(read, item_logits=own_items(own, output.item_logits, reach))

    def moved(self, attention: Tensor) -> Tensor:
        """How far attention (R, H, N) in place of each head's own moves the prediction, (R, H)."""
        others = torch.stack([attention.flatten(0, 1), self._own], dim=1)
        found, own = self._read(others).softmax(-1).unbind(1)
        return total_variation(found, own).reshape(self._shape)

    def largest_js(self) -> Tensor:
        """The largest JS that any attention can have, (R, H); NaN for fewer than two items."""
        largest = largest_js(self._own, self._reach)
        return largest.masked_fill(self._reach.sum(-1) < 2, torch.nan).reshape(self._shape)

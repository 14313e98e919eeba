"""Can a very different attention give the same output? (Jain & Wallace 2019, 4.2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.functional import max_js, total_variation
from attnlight.functional.readout.heads import flatten_heads
from attnlight.models.readout import Readout
from attnlight.statistics.frontier import EPSILONS

# Weights (rows x heads x items) at a time: what is tried in the place of each takes some 8 KiB.
_WEIGHTS = 1 << 16
_SEARCHED = ("search_js", "search_tvd", "search_gap")


@dataclass(frozen=True)
class GradientSearch:
    """Jain and Wallace's search by gradient, by default with the constants of their released code.

    Args:
        instances: Search for this many instances, chosen by a seeded hash; null: all.
        starts: Attentions that the search starts from.
        steps: Its steps of Adam.
        learning_rate: That of Adam.
        amsgrad: Whether Adam uses the largest second moment so far.
        penalty: Weight of the distance between predictions beyond `epsilon`.
        epsilon: Distance that the search does not penalise; null: that of the test.
        start_scale: Standard deviation of the scores at the start.
        spread: Weight of the mean JS between the attentions of an instance.
    """

    instances: int | None = None
    starts: int = 5
    steps: int = 500
    learning_rate: float = 0.01
    amsgrad: bool = True
    penalty: float = 500.0
    epsilon: float | None = None
    start_scale: float = 3.0
    spread: float = 1.0


class AdversarialAttention(InterpretabilityTest):
    """Find attention as different as possible from the model's own that keeps its prediction.

    Columns: `worst_js`, the largest Jensen-Shannon divergence (nats, at most 0.693) from the own
    attention among attentions that move the prediction by at most epsilon; `worst_tvd`, how far
    that one moves it; `worst_share`, `worst_js` over the largest JS that any attention on the text
    can have, undefined for one item. A large value alone says little: attention that is faithful
    but redundant, such as over ten words that each carry the signal, has one too.

    For two classes and an affine readout `worst_js` is exact. For more classes it is a lower bound,
    by linear programs that take up to tens of milliseconds, and `upper_js` an upper one; of a
    tagger's sentence one token is measured then, chosen by a seeded hash, and on validation epochs
    of `fit` the rows of `program_instances` texts: all columns are undefined in the other rows.
    Where the readout is not affine `worst_js` is the best of all attention on one item, some
    mixtures of two, and what is searched: a lower bound, and `upper_js` is undefined.

    With several heads each is changed alone, the others held, to which the above applies; columns are
    means over heads, and `<column>_by_head` (R, H) holds the parts. `joint_js` is of all heads
    changed together, the mean over heads of their JS: a lower bound, from heads that take their own
    adversary one after the other, as far as the prediction stays.

    With `search`, `search_js` and `search_tvd` are what Jain and Wallace's search finds at the same
    epsilon, and `search_gap` is `worst_js - search_js`. With `frontier`, `frontier_js` (R, 12) is
    `worst_js` at each of the record's `frontier_epsilons`, from which
    `attnlight.statistics.frontier` bounds mean JS by mean TVD; for two classes, one head and an
    affine readout.

    Args:
        epsilon: Largest total variation distance between the predictions; the released code's
            results have 0.05 here and 0.01 in `search`.
        frontier: Also solve for the grid of tolerances, at about ten times the cost.
        program_instances: With more than two classes and an affine readout, measure this many
            texts on validation epochs of `fit`, chosen by a seeded hash; None: all; 0: measure all
            rows, at test too, without the programs, which misses most where many classes compete.
        search: Also run the search, at thousands of times the cost, with the options of a
            `GradientSearch`; true: with its defaults.
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances, chosen by a seeded hash; None: all.
        seed: Seed of the starts and of the choice of instances.
        figures: Draw the paper's histogram and violins, and the frontier where there is one.
    """

    metadata: dict[str, Any]
    measures: ClassVar[tuple[str, ...]] = ("worst_js", "worst_share", "worst_tvd", "upper_js")

    def __init__(
        self,
        epsilon: float = 0.01,
        frontier: bool = False,
        program_instances: int | None = 256,
        search: GradientSearch | bool = False,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
    ) -> None:
        super().__init__(every_n_epochs, max_instances, seed, figures)
        if not epsilon > 0:
            raise InputError(f"epsilon of {self.name} is {epsilon}; it must be above 0.")
        self._require_at_least(0, program_instances=program_instances)
        self.epsilon = epsilon
        self.frontier = frontier
        self.program_instances = program_instances
        self.search = GradientSearch() if search is True else search or None
        if self.search is not None:
            options = asdict(self.search)
            counts = {f"search.{name}": options[name] for name in ("instances", "starts", "steps")}
            self._require_at_least(1, **counts)
            self.hparams["search"] = options
            self.measures = (*type(self).measures, *_SEARCHED)  # type: ignore[misc]
        programs = program_instances != 0
        tried = ["lightest item", "linear programs", "one and two items", "search"]
        used = [True, programs, True, self.search is not None]
        self.metadata = {
            "epsilon": epsilon,
            "worst": "each head alone; exact for two classes and item logits, else a lower bound",
            "upper": "exact for two classes, an upper bound for more, null without item logits",
            "joint": "all heads together, a lower bound",
            # What is tried on which rows with more than two classes and item logits.
            "several_classes": {
                "candidates": [name for name, there in zip(tried, used, strict=True) if there],
                "texts": None,
                "rows": "one of each text" if programs else "all",
            },
        }
        if frontier:
            self.metadata["frontier_epsilons"] = list(EPSILONS)
        if self.search is not None:
            self.metadata["search"] = asdict(self.search)
        self._searched: Tensor | None = None
        self._solved: Tensor | None = None

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Tensor]:
        index, position = output.rows.unbind(-1)
        measured = torch.ones_like(index, dtype=torch.bool)
        if readout.by_programs and self.program_instances != 0:
            # Programs take long: they are solved for one row of each chosen text.
            measured[:] = False
            texts = index if self._solved is None else self._solved.to(index.device)
            for text in torch.unique(index[torch.isin(index, texts)]).tolist():
                rows = (index == text).nonzero().squeeze(-1)
                # The text's number is in the seed, or all sentences would share their position.
                place = choose(position[rows].cpu().numpy(), 1, self.seed + text)
                measured[rows[position[rows] == int(place[0])]] = True
        chosen = readout if measured.all() else readout.select(measured)
        parts = [self._measure(part) for part in chosen.blocks(_WEIGHTS)]
        columns = {}
        for name in parts[0]:
            column = torch.cat([part[name] for part in parts])
            columns[name] = column.new_full((len(measured), *column.shape[1:]), torch.nan)
            columns[name][measured] = column
        return columns

    def _measure(self, readout: Readout) -> dict[str, Tensor]:
        output, found = readout.output, None
        if self.search is not None:
            # The model's own attention, and NaN, where none is searched.
            found = output.weights.double().clone()
            searched = torch.full_like(found[..., 0], torch.nan)
            index = output.rows[:, 0]
            texts = index if self._searched is None else self._searched.to(index.device)
            rows = torch.isin(index, texts)
            if rows.any():
                options = asdict(self.search) | {"seed": self.seed}
                del options["instances"]
                options["search_epsilon"] = options.pop("epsilon")
                found[rows], searched[rows] = readout.select(rows).search(self.epsilon, **options)
        programs = self.program_instances != 0
        adversary, worst, upper = readout.worst_case(self.epsilon, found, programs)
        # The largest that any attention can have; a single item has no choice.
        own, reach = flatten_heads(output.weights, output.mask)
        largest = max_js(own, reach).reshape(worst.shape)
        largest = largest.masked_fill((readout.lengths < 2)[:, None], torch.nan)
        columns = {
            "worst_js": worst,
            "worst_share": worst / largest,
            "worst_tvd": _moved(readout, adversary),
            "upper_js": upper,
        }
        if found is not None:
            moved = _moved(readout, found).masked_fill(searched.isnan(), torch.nan)
            gap = worst - searched
            columns |= {"search_js": searched, "search_tvd": moved, "search_gap": gap}
        shown = {name: by_head.mean(-1) for name, by_head in columns.items()}
        if worst.shape[1] > 1:
            shown["joint_js"] = _joint_js(readout, adversary, worst, self.epsilon)
            shown |= {f"{name}_by_head": by_head for name, by_head in columns.items()}
        curve = readout.worst_case_curve(EPSILONS) if self.frontier else None
        if curve is not None:
            shown["frontier_js"] = curve
        undefined = worst.isnan().any(-1) | ~output.mask.any(-1)
        dtype = torch.promote_types(output.logits.dtype, torch.float32)
        return {
            name: column.to(dtype).masked_fill(
                undefined if column.ndim == 1 else undefined[:, None], torch.nan
            )
            for name, column in shown.items()
        }

    @override
    def _begin(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        stage: Literal["val", "test"],
        epoch: int | None,
    ) -> None:
        solved = None if epoch is None else self.program_instances or None
        self.metadata["several_classes"]["texts"] = solved
        super()._begin(trainer, module, stage, epoch)
        assert self._recorder is not None
        counts = (None if self.search is None else self.search.instances, solved)
        self._searched, self._solved = (
            None
            if count is None
            else torch.from_numpy(choose(self._recorder.instances, count, self.seed))
            for count in counts
        )


def _moved(readout: Readout, attention: Tensor) -> Tensor:
    """How far attention (R, H, N) in place of each head's own moves the prediction, (R, H)."""
    own, _ = flatten_heads(readout.output.weights, readout.output.mask)
    pairs = torch.stack([attention.flatten(0, 1), own], dim=1).unsqueeze(1)
    found, before = readout.by_head().candidates(pairs).softmax(-1).unbind(1)
    return total_variation(found, before).reshape(attention.shape[:2])


def _joint_js(readout: Readout, adversary: Tensor, js: Tensor, epsilon: float) -> Tensor:
    """Mean JS (R,) of heads that take their adversaries (R, H, N) while the prediction stays."""
    held, total = readout.output.weights.double(), torch.zeros_like(js[:, 0])
    own = readout.candidates(held.unsqueeze(2)).squeeze(1).softmax(-1)
    for head in range(js.shape[1]):
        tried = held.clone()
        tried[:, head] = adversary[:, head]
        # An adversary is often just at epsilon: rounding must not decide.
        found = readout.candidates(tried.unsqueeze(2)).squeeze(1).softmax(-1)
        kept = total_variation(found, own) <= epsilon * (1 + 1e-5)
        held = torch.where(kept[:, None, None], tried, held)
        total += torch.where(kept, js[:, head], 0.0)
    return total / js.shape[1]

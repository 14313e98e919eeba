"""Can a very different attention give the same output? (Jain & Wallace 2019, 4.2.2)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.hooks.readouts import WEIGHTS
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.selection import choose, row_hashes
from attnlight.errors import InputError
from attnlight.functional.adversary.local_search import most_evaluations
from attnlight.models.readout import Readout
from attnlight.statistics.frontier import EPSILONS

_SEARCH_MEASURES = ("search_js", "search_tvd", "search_gap")
_WIDER = "worst_js_"  # and a wider tolerance: the column of the worst case there


@dataclass(frozen=True)
class GradientSearch:
    """Jain and Wallace's gradient search, by default with the constants of their released code.

    Args:
        instances: Search for this many instances, chosen by a seeded hash; null: all.
        starts: Number of initial attentions.
        steps: Number of steps of Adam.
        learning_rate: Learning rate of Adam.
        amsgrad: Whether Adam uses the largest second moment so far.
        penalty: Weight of the distance between predictions beyond `epsilon`.
        epsilon: Distance without penalty; null: that of the test.
        start_scale: Standard deviation of the initial scores.
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
    """Worst-case attention: as different as possible from the original, with the same prediction.

    Columns: `worst_js`, the largest Jensen-Shannon divergence (nats, at most 0.693) from the original
    attention among attentions that move the prediction by at most epsilon; `worst_tvd`, the
    prediction's move under that attention; `worst_share`, `worst_js` divided by the maximum JS that
    any attention on the text can have, undefined for one item. A large value alone is weak evidence:
    attention that is faithful but redundant, such as over ten words that each carry the signal, has
    one too.

    For two classes and an affine readout `worst_js` is exact. Otherwise it is a lower bound, so that
    the largest JS is at least as large, and one token of a tagger's sentence is measured, chosen by a
    seeded hash, and on validation epochs of `fit` only the rows of `program_instances` texts: all
    columns are undefined in other rows. For more classes and an affine readout it comes from linear
    programs that take up to tens of milliseconds, and `upper_js` is an upper bound (both are exact
    for a text that may be answered with two of them). If the readout is not affine it is the best
    that `opaque_adversary` finds, and `upper_js` is undefined. That takes about a tenth of a second
    for a row of the package's classifiers, and for all other models, whose readout may cost much
    more, `evaluations` of it a head.

    With several heads each is changed alone, the others fixed, as above; columns are means over
    heads, and `<column>_by_head` (R, H) has the values of each. `joint_js` is the mean JS over heads
    that are changed together: a lower bound, from replacing heads one after the other by their
    worst-case attention as long as the prediction stays within epsilon.

    With `search`, `search_js` and `search_tvd` are the results of Jain and Wallace's search at the
    same epsilon, and `search_gap` is `worst_js - search_js`. With `frontier`, `frontier_js` (R, 12)
    is `worst_js` at each of the record's `frontier_epsilons`, from which
    `attnlight.statistics.frontier` bounds mean JS by mean TVD; for models of two classes, one head
    and an affine readout. `worst_js_<epsilon>`, such as `worst_js_0.05`, is `worst_js` at one of
    `wider_epsilons`, for any readout.

    Args:
        epsilon: Largest total variation distance between the predictions; the released code's
            results have 0.05 here and 0.01 in `search`.
        frontier: Also solve for the grid of tolerances, at about ten times the cost.
        program_instances: With more than two classes or a readout that is not affine, measure this
            many texts on validation epochs of `fit`, chosen by a seeded hash; None: all; 0: measure
            all rows, also at test, without linear programs: a much weaker bound for many classes.
        evaluations: Most evaluations of a readout that is neither affine nor of one of the package's
            classifiers, for each head; a gradient counts as two more. None: no limit, as for these:
            at most 9,600 for two classes and 17,100 for six, a quarter of it as a rule.
        search: Also run the search, at thousands of times the cost, with the options of a
            `GradientSearch`; true: with its defaults.
        wider_epsilons: Larger tolerances in ascending order, each at the cost of the first.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    metadata: dict[str, Any]
    joins_batches = True
    measures: tuple[str, ...] = ("worst_js", "worst_share", "worst_tvd", "upper_js")

    def __init__(
        self,
        epsilon: float = 0.01,
        frontier: bool = False,
        program_instances: int | None = 256,
        evaluations: int | None = 2000,
        search: GradientSearch | bool = False,
        wider_epsilons: Sequence[float] = (),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not epsilon > 0:
            raise InputError(f"epsilon of {self.name} is {epsilon}; it must be above 0.")
        tolerances = [epsilon, *wider_epsilons]
        if tolerances != sorted(set(tolerances)):
            raise InputError(
                f"wider_epsilons of {self.name} are {list(wider_epsilons)}; they must ascend from above "
                f"epsilon, {epsilon}."
            )
        self._require_at_least(0, program_instances=program_instances)
        self._require_at_least(3, evaluations=evaluations)
        self.epsilon = epsilon
        self.frontier, self.wider_epsilons = frontier, tuple(wider_epsilons)
        self.program_instances, self.evaluations = program_instances, evaluations
        self.search = GradientSearch() if search is True else search or None
        if self.search is not None:
            options = asdict(self.search)
            counts = {f"search.{name}": options[name] for name in ("instances", "starts", "steps")}
            self._require_at_least(1, **counts)
            self.hparams["search"] = options
            self.measures = (*self.measures, *_SEARCH_MEASURES)
        self.measures = (*self.measures, *(f"{_WIDER}{e:g}" for e in self.wider_epsilons))
        programs = program_instances != 0
        candidates = ["lightest item", "linear programs", "one and two items", "search"]
        used = [True, programs, True, self.search is not None]
        self.metadata = {
            "epsilon": epsilon,
            "worst": "each head alone; exact for two classes and item logits, else a lower bound",
            "upper": "exact for two classes, an upper bound for more, null without item logits",
            "joint": "all heads together, a lower bound",
            # Of more than two classes and item logits; without item logits `rows` and `texts` too.
            "several_classes": {
                "candidates": [name for name, use in zip(candidates, used, strict=True) if use],
                "texts": None,
                "rows": "one of each text" if programs else "all",
            },
        }
        if frontier:
            self.metadata["frontier_epsilons"] = list(EPSILONS)
        if self.search is not None:
            self.metadata["search"] = asdict(self.search)
        self._search_texts: Tensor | None = None
        self._program_texts: Tensor | None = None

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        index = output.rows[:, 0]
        measured = None  # all
        if readout.by_programs and self.program_instances != 0:
            # Linear programs are slow: they are solved for one row of each chosen text.
            chosen_texts = self._program_texts
            texts = index if chosen_texts is None else chosen_texts.to(index.device)
            measured = one_row_of_each_text(output.rows, texts, self.seed)
        if not readout.affine:
            most = most_evaluations(readout.logits.shape[-1])
            most = most if readout.cheap else self.evaluations or most
            effort = "some hundred" if self.program_instances == 0 else f"at most {most:,}"
            self._say_once(
                "the readout is not affine in attention, so the largest JS is at least worst_js. The search "
                f"evaluates the readout {effort} times for each head of a row; max_instances limits the rows."
            )
        chosen = readout if measured is None else readout.select(measured)
        # The candidates for each weight take some 8 KiB.
        parts = [self._measure(part) for part in chosen.blocks(WEIGHTS)]
        columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if measured is None:
            return columns
        for name, column in columns.items():
            missing = column.new_full((len(index), *column.shape[1:]), torch.nan)
            columns[name] = missing.index_put((measured,), column)
        return columns

    def _measure(self, readout: Readout) -> dict[str, Tensor]:
        output, candidates = readout.output, None
        if self.search is not None:
            # The original attention, and a JS of NaN, in rows without a search.
            candidates = output.weights.double().clone()
            search_js = torch.full_like(candidates[..., 0], torch.nan)
            index = output.rows[:, 0]
            texts = index if self._search_texts is None else self._search_texts.to(index.device)
            rows = torch.isin(index, texts)
            if rows.any():
                options = asdict(self.search) | {"seed": self.seed}
                del options["instances"]
                options["search_epsilon"] = options.pop("epsilon")
                attention, js = readout.select(rows).search(self.epsilon, **options)
                candidates[rows], search_js[rows] = attention, js
        solve = partial(
            readout.worst_case,
            programs=self.program_instances != 0,
            evaluations=self.evaluations,
            seed=self.seed,
        )
        adversary, worst_js, upper_js = solve(self.epsilon, candidates)
        by_head = {
            "worst_js": worst_js,
            "worst_share": worst_js / readout.max_js_by_head(),
            "worst_tvd": readout.tvd_by_head(adversary),
            "upper_js": upper_js,
        }
        if candidates is not None:
            search_tvd = readout.tvd_by_head(candidates).masked_fill(search_js.isnan(), torch.nan)
            searched = search_js, search_tvd, worst_js - search_js
            by_head |= zip(_SEARCH_MEASURES, searched, strict=True)
        columns = {name: values.mean(-1) for name, values in by_head.items()}
        if worst_js.shape[1] > 1:
            columns["joint_js"] = readout.joint_js(adversary, worst_js, self.epsilon)
            columns |= {f"{name}_by_head": values for name, values in by_head.items()}
        found = adversary
        for epsilon in self.wider_epsilons:  # what is within a tolerance is within a wider one
            found, js, _ = solve(epsilon, found)
            columns[f"{_WIDER}{epsilon:g}"] = js.mean(-1)
        curve = readout.worst_case_curve(EPSILONS) if self.frontier else None
        if curve is not None:
            columns["frontier_js"] = curve
        undefined = worst_js.isnan().any(-1) | ~output.mask.any(-1)
        return fill_undefined(columns, undefined, output.logits.dtype)

    @override
    def begin(self, around: Surroundings) -> None:
        program_texts = None if around.epoch is None else self.program_instances or None
        self.metadata["several_classes"]["texts"] = program_texts
        super().begin(around)
        assert self._recorder is not None
        counts = (None if self.search is None else self.search.instances, program_texts)
        texts = self._recorder.instances
        self._search_texts, self._program_texts = (
            None if count is None else torch.from_numpy(choose(texts, count, self.seed))
            for count in counts
        )


def one_row_of_each_text(rows: Tensor, texts: Tensor, seed: int) -> Tensor:
    """One of the rows (R, 2) of each of some texts, by a hash of its position, as a mask (R,) bool.

    `rows` are dataset indices and positions, `texts` dataset indices in any order.
    """
    index, position = rows.cpu().numpy().T
    # The seed depends on the text, or all sentences would share the position.
    order = np.lexsort((row_hashes(position, seed + index), index))
    text, first, number = np.unique(index[order], return_index=True, return_inverse=True)
    wanted = np.isin(text, texts.cpu().numpy())[number]
    chosen = np.empty(len(index), dtype=bool)
    chosen[order] = wanted & (position[order] == position[order[first]][number])
    return torch.from_numpy(chosen).to(rows.device)

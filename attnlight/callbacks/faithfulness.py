"""Does the prediction depend on the items that an explanation ranks first? (ERASER, 2020)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, Explanation, build_attributions
from attnlight.attribution.base import passes_of
from attnlight.attribution.occlusion import Occlusion
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.dataset import TokenDataset
from attnlight.data.word_sampler import word_replacements
from attnlight.errors import InputError
from attnlight.functional.attribution.faithfulness import (
    EXACT,
    LEAST,
    choose_rows,
    probability_drops,
    random_sets,
    share_counts,
)
from attnlight.functional.ranking import TIE, first_items, ranking
from attnlight.functional.readout.instances import other_items, rows_are_texts
from attnlight.models.readout import Readout
from attnlight.probing.leave_one_out import complete_logits, left_out_logits
from attnlight.probing.subsets import Replacement, subset_logits
from attnlight.reference.rows import GivenTexts

RANDOM = "random"
# Direction and range of each measure.
MEASURES: dict[str, tuple[str, tuple[float, float]]] = {
    "comprehensiveness": ("higher is better", (-1.0, 1.0)),
    "sufficiency": ("lower is better", (-1.0, 1.0)),
    "normalized_comprehensiveness": ("higher is better", (0.0, 1.0)),
    "normalized_sufficiency": ("higher is better", (0.0, 1.0)),
    "resampled_comprehensiveness": ("higher is better", (-1.0, 1.0)),
    "resampled_sufficiency": ("lower is better", (-1.0, 1.0)),
}
_Side = Literal["comprehensiveness", "sufficiency"]
# Without the first items, and with these alone.
_SIDES: tuple[_Side, ...] = ("comprehensiveness", "sufficiency")
# Items, or classes if they are more, of the sets that are treated at once (rows x sets x items).
_ELEMENTS = 1 << 25


class Faithfulness(InterpretabilityTest):
    """Comprehensiveness and sufficiency of the items that each attribution method ranks first.

    The items of a text are ranked by a method's score for the predicted class p of the complete
    text: by signed score where the method is signed, the items that speak most for p first, else by
    size. Scores within 1e-5 of the row's largest are ties, which go to the item further left. The top
    of a share is that share of the items, rounded up and at least one. Columns, each the mean over
    the shares (the area over the perturbation curve, AOPC, of DeYoung et al. 2020; their formula also
    counts a share of 0, whose comprehensiveness is 0, their code does not):

    * `comprehensiveness_<method>`: probability of p less that without the top items. From -1 to 1,
      higher is better.
    * `sufficiency_<method>`: probability of p less that of the top items alone. From -1 to 1, lower
      is better.
    * `normalized_comprehensiveness_<method>` and `normalized_sufficiency_<method>`, where chosen
      (Carton et al. 2020): with e the probability of p less that of the empty text (of no item, or of
      replaced ones alone), and d each of the differences above, d / e and 1 - d / e, clipped to [0, 1];
      higher is better for both. Undefined where e is less than 1e-5.
    * `resampled_comprehensiveness_<method>` and `resampled_sufficiency_<method>`, where chosen: the
      first two with words resampled, whatever the `replacement` is.
    * `<measure>_<method>_at` (R, S): the measure at each share.
    * `excess_<measure>_<method>`: the measure less that of `random`; better in the same direction.

    `random` is always among the methods: the expectation over all orders of the items, exact for
    rows of at most 7 items, the mean of seeded draws for longer ones. Further columns of a method are
    recorded as `<column>_<method>`. `length` is the number of items. A method is undefined in rows of
    several items whose scores it does not all know.

    Methods that differ in sign alone (`by_size`) are computed once, and equal sets of a text are read
    once. Deletions of single items are not read again where `occlusion` by deletion is a method. Outside of
    `fit` the test says at first about how many forward passes it takes.

    Where rows are tokens (a tagger), a row's own token is not one of its items: it always remains.
    With `max_instances`, as many rows at most are measured: of that many sentences one token, of
    fewer sentences several; the other rows of these sentences are undefined. A text without items is
    undefined.

    Args:
        methods: Names of methods, or mappings `{name: ..., option: value}`; a `label` names the
            columns of a method in place of its name.
        shares: Shares of the items, above 0 and at most 1.
        replacement: What becomes of the other items: `delete`, the text is encoded and attended to
            without them (if none remains, the logits are those of an empty context); `unk` or `pad`,
            their tokens are replaced by the unknown or by the padding token, without features of the
            removed words; `resample`, each of their tokens is replaced by words of the corpus
            (`WordSampler`), and probabilities are means over draws; `attention`, they are erased from
            attention alone, the rest renormalised.
        measures: Which of the two measures to record, also normalised and resampled: each takes half
            of the sets.
        normalized: Record the normalised measures too.
        draws: Random orders of rows of more than 7 items.
        resampled: Also record the measures with `resample` beside those with `replacement`.
        resamples: Draws of `resample`, the same for all sets; each costs as much as `unk`.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = DEFAULT_METHODS,
        shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2, 0.5),
        replacement: Replacement | Literal["attention", "resample"] = "delete",
        normalized: bool = False,
        draws: int = 5,
        measures: Sequence[_Side] = _SIDES,
        resampled: bool = False,
        resamples: int = 8,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, draws=draws, resamples=resamples)
        if not shares or not all(0 < share <= 1 for share in shares):
            raise InputError(
                f"shares of {self.name} are {list(shares)}; each must be above 0 and at most 1."
            )
        if not measures:
            raise InputError(
                f"measures of {self.name} are {list(measures)}; expected one or both of: "
                f"{', '.join(_SIDES)}."
            )
        self.shares = list(shares)
        self.replacement: Replacement | Literal["attention", "resample"] = replacement
        self.normalized, self.resampled = normalized, resampled
        self.draws = draws
        self.resamples = resamples
        named = [spec for spec in methods if spec not in (RANDOM, {"name": RANDOM})]
        self.methods = build_attributions([*named, RANDOM], self.name, least=2)
        del self.methods[RANDOM]  # its expectation is computed here
        left_out = {"normalized": not normalized, "resampled": not resampled}
        self._sides = [name for name in _SIDES if name in measures]
        self._names = [
            name
            for name in MEASURES
            if name.rpartition("_")[2] in measures and not left_out.get(name.partition("_")[0])
        ]
        self.measures = (
            *(f"{name}_{label}" for name in self._names for label in [*self.methods, RANDOM]),
            *(f"excess_{name}_{label}" for name in self._names for label in self.methods),
        )
        self.metadata = {
            "target": "predicted class of the complete text",
            "shares": self.shares,
            "replacement": replacement,
            "random": f"exact expectation for at most {EXACT} items, else mean of {draws} draws",
            "tie": TIE,
            "direction": {name: MEASURES[name][0] for name in self._names},
            "range": {name: MEASURES[name][1] for name in self._names},
            "excess": "measure less that of random, better in the same direction",
        }
        if normalized:
            self.metadata["least_difference_of_empty_text"] = LEAST
        self._rows_of_text: int | None = None

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        target, items = output.logits.argmax(-1), other_items(batch, output)
        chosen = torch.ones_like(target, dtype=torch.bool)
        if self._rows_of_text is not None and not rows_are_texts(batch, output):
            chosen = choose_rows(output.rows, self._rows_of_text, self.seed)
        explained: dict[str, Explanation] = {}
        for method in sorted(self.methods.values(), key=lambda method: method.by_size):
            if method.computation not in explained:
                explanation = method.explain(readout.model, batch, output, target)
                explained[method.computation] = explanation
        orders, unknown = [], []
        columns: dict[str, Tensor] = {}
        for label, method in self.methods.items():
            scores, more = explained[method.computation]
            signed = method.signed and not method.by_size
            orders.append(ranking(scores if signed else scores.abs(), items))
            unknown.append((scores.isnan() & items).any(-1) & (items.sum(-1) > 1))
            columns |= {f"{name}_{label}": values for name, values in more.items()}
        known = self._known(readout)
        # (measures, methods and random, R, S)
        shape = len(self._names), len(self.methods) + 1, len(target), len(self.shares)
        values = torch.full(shape, torch.nan, dtype=torch.float64, device=target.device)
        sets = 2 * len(self.shares) * (len(self.methods) + self.draws) + 2**EXACT
        size = max(1, _ELEMENTS // (sets * max(items.shape[1], output.logits.shape[-1])))
        with torch.no_grad():
            defined = (chosen & items.any(-1)).nonzero().squeeze(-1)
            for rows in torch.split(defined, size) if len(defined) else ():
                part = torch.stack([order[rows] for order in orders], dim=1)
                part_of_rows = rows, items[rows], part, target[rows]
                measured = self._measured(readout, *part_of_rows, self.replacement, known)
                if self.resampled:
                    again = self._measured(readout, *part_of_rows, "resample")[: len(self._sides)]
                    measured = torch.cat([measured, again])
                values[:, :, rows] = measured
        values[:, :-1].masked_fill_(torch.stack(unknown).unsqueeze(-1), torch.nan)
        labels = [*self.methods, RANDOM]
        for name, of_methods in zip(self._names, values, strict=True):
            means = of_methods.mean(-1)
            for label, mean, at in zip(labels, means, of_methods, strict=True):
                columns |= {f"{name}_{label}": mean, f"{name}_{label}_at": at}
                if label != RANDOM:
                    columns[f"excess_{name}_{label}"] = mean - means[-1]
        dtype = torch.promote_types(output.logits.dtype, torch.float32)
        columns = {name: column.to(dtype) for name, column in columns.items()}
        return columns | {"length": items.sum(-1)}

    def _passes(self, items: float) -> float:
        """Estimate of the forward passes of a text of so many items, a backward pass counted as two.

        As if the sets of all rankings differed; those of one item cost nothing.
        """
        scores = passes_of(self.methods.values(), items)
        counts = share_counts(torch.tensor([max(1, round(items))]), self.shares)[0].tolist()
        draws = {"attention": 0, "resample": self.resamples}.get(self.replacement, 1)
        read = 0.0
        for count in {count for count in counts if count > 1}:
            kept = {"comprehensiveness": 1 - count / items, "sufficiency": count / items}
            for side in self._sides:
                read += kept[side] if self.replacement == "delete" else draws
                read += self.resamples * self.resampled
        return 1 + scores + read * (len(self.methods) + self.draws)

    @torch.no_grad()
    def _known(self, readout: Readout) -> Tensor | None:
        """Logits of sets that are read anyway, as `subset_logits` takes them."""
        if self.replacement != "delete":
            return None
        texts = readout.model, readout.batch, readout.output
        complete = complete_logits(*texts).unsqueeze(1)
        deleting = (
            isinstance(method, Occlusion) and method.replacement == "delete"
            for method in self.methods.values()
        )
        if any(deleting):
            return torch.cat([left_out_logits(*texts, self.budget), complete], dim=1)
        return pad(complete, (0, 0, readout.output.mask.shape[1], 0), value=torch.nan)

    def _measured(
        self,
        readout: Readout,
        rows: Tensor,
        items: Tensor,
        orders: Tensor,
        target: Tensor,
        replacement: Replacement | Literal["attention", "resample"],
        known: Tensor | None = None,
    ) -> Tensor:
        """Measures of rows (r,), by measure, by method and then random, (measures, M + 1, r, S).

        Of their items (r, N) bool by each method's ranking (r, M, N) for the class explained, (r,);
        `known` is that of `subset_logits`.
        """
        output, (count, methods, _) = readout.output, orders.shape
        counts = share_counts(items.sum(-1), self.shares)
        first = first_items(orders.unsqueeze(2), counts.unsqueeze(1))  # (r, M, S, N)
        sides = [_SIDES.index(name) for name in self._sides]
        drawn, weights = random_sets(items, output.rows[rows], counts, self.draws, self.seed)
        weights = weights[:, sides]
        used = (weights > 0).flatten(1, 2).any(1).unsqueeze(-1)
        drawn = torch.where(used, drawn, items.unsqueeze(1))
        ends = torch.stack([items, torch.zeros_like(items)], dim=1)  # everything, and nothing
        ranked = torch.stack([items[:, None, None] & ~first, first], dim=1)[:, sides]
        ranked = ranked.flatten(1, 3)
        kept = torch.cat([ends, ranked, drawn], dim=1) | (output.mask[rows] & ~items).unsqueeze(1)
        if replacement == "attention":
            each = [readout.keep(rows, kept)]
        else:
            of_words = replacement, self.word_sampler, readout.batch, self.resamples, self.seed
            each = [
                subset_logits(
                    readout.model, readout.batch, output, rows, kept, kind, self.budget, known
                )
                for kind in word_replacements(*of_words)
            ]
        drops = torch.stack([probability_drops(one, one[:, 0], target) for one in each]).mean(0)

        def means(values: Tensor) -> Tensor:
            """By measure, method and share: (sides, M + 1, r, S) from values of each set (r, K)."""
            sizes = [2, ranked.shape[1], drawn.shape[1]]
            _, by_method, by_draw = torch.split(values, sizes, dim=1)
            random = (weights @ by_draw[:, None, :, None]).squeeze(-1)  # (r, sides, S)
            by_method = by_method.view(count, len(sides), methods, -1)
            return torch.cat([by_method, random.unsqueeze(2)], dim=2).permute(1, 2, 0, 3)

        measures = means(drops)
        if self.normalized:
            empty = drops[:, 1:2]
            empty = torch.where(empty < LEAST, torch.nan, empty)
            share = means((drops / empty).clamp(0, 1))
            falls = [one if side == 0 else 1 - one for side, one in zip(sides, share, strict=True)]
            measures = torch.cat([measures, torch.stack(falls)])
        return measures

    @override
    def begin(self, around: Surroundings) -> None:
        super().begin(around)
        assert self._recorder is not None
        if self.resampled:
            self.word_sampler = around.word_sampler
        if around.epoch is None and isinstance(around.dataset, TokenDataset | GivenTexts):
            tokens = around.dataset.lengths.sum() / max(1, len(around.dataset.index))
            self._say_once(
                f"about {self._passes(float(tokens)):.0f} forward passes for each of "
                f"{len(self._recorder.instances):,} texts"
            )
        count, texts = self.max_instances, max(1, len(self._recorder.instances))
        self._rows_of_text = None if count is None else max(1, count // texts)

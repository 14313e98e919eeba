"""Rows stand alone: neither padding nor the batch nor a broken row changes another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.functional import (
    average_precision,
    dense_ranks,
    erase_each,
    erase_ranking,
    first_flip,
    js_divergence,
    kendall_tau,
    kl_divergence,
    masked_softmax,
    minimal_flip_set,
    normalized_js,
    opaque_adversary,
    pearson_r,
    permuted_logits,
    permuted_weights,
    plausibility,
    ranking,
    read,
    search_adversary,
    spearman_rho,
    top_overlap,
    total_variation,
    weight_gradient,
    worst_case_attention,
    worst_case_js,
)
from attnlight.functional.adversary.linear_programs import linear_program_attention

EPSILON = 0.05


@dataclass
class Rows:
    """Attention, item logits and scores of rows of all lengths."""

    mask: Tensor
    weights: Tensor
    logits: Tensor
    bias: Tensor
    scores: Tensor
    keys: Tensor

    @property
    def readout(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weights, self.logits, self.bias, self.mask

    def select(self, rows: slice) -> Rows:
        return Rows(**{name: values[rows] for name, values in vars(self).items()})

    def wide(self) -> Rows:
        """With more items, off the mask, before and behind."""
        return Rows(
            pad(self.mask, (2, 3)),
            pad(self.weights, (2, 3)),
            pad(self.logits, (0, 0, 2, 3), value=torch.nan),
            self.bias,
            pad(self.scores, (2, 3), value=torch.nan),
            self.keys,
        )

    def of_items(self, values: Tensor, dim: int = -1) -> list[Tensor]:
        """What each row (...) of values (R, ..., N) has of its items."""
        pairs = zip(values, self.mask, strict=True)
        return [row.index_select(dim, items.nonzero()[:, 0]) for row, items in pairs]

    def in_order(self, values: Tensor) -> list[Tensor]:
        """What each row has of the places that its items take in an order."""
        return [row[: int(n)] for row, n in zip(values, self.mask.sum(-1), strict=True)]

    def order(self) -> Tensor:
        return ranking(self.scores, self.mask)


def rows_of(classes: int = 3, heads: int | None = None, rows: int = 9, items: int = 7) -> Rows:
    random = torch.Generator().manual_seed(classes)
    shape = (rows, items) if heads is None else (rows, heads, items)
    mask = torch.arange(items) < 1 + torch.arange(rows)[:, None] % items
    normal = torch.randn(*shape, classes + 2, dtype=torch.float64, generator=random)
    return Rows(
        mask=mask,
        weights=masked_softmax(2 * normal[..., 0], mask),
        logits=2 * normal[..., 2:],
        bias=torch.randn(rows, classes, dtype=torch.float64, generator=random),
        scores=(2 * normal[..., 1]).round() if heads is None else (2 * normal[:, 0, :, 1]).round(),
        keys=torch.stack([3 * torch.arange(rows), torch.arange(rows) % 2], dim=1),
    )


def opaque(case: Rows, programs: bool) -> tuple[Tensor, Tensor]:
    logits = case.logits.masked_fill(~case.mask[..., None], 0.0)
    return opaque_adversary(
        case.weights,
        lambda given: torch.tanh(read(given.squeeze(1), logits)),
        case.mask,
        EPSILON,
        programs=programs,
        rows=case.keys,
    )


def attention(case: Rows, adversary: Tensor, *measures: Tensor) -> list[list[Tensor]]:
    return [case.of_items(adversary), *map(list, measures)]


Function = Callable[[Rows], Iterable[list[Tensor]]]
READOUTS: dict[str, Function] = {
    "erase_each": lambda case: [case.of_items(erase_each(*case.readout), 0)],
    "erase_ranking": lambda case: [case.in_order(erase_ranking(*case.readout, case.order()))],
    "first_flip": lambda case: [list(first_flip(*case.readout, case.order()))],
    "minimal_flip_set": lambda case: attention(case, *minimal_flip_set(*case.readout)[::-1]),
    "weight_gradient": lambda case: [case.of_items(weight_gradient(*case.readout))],
    "worst_case_attention": lambda case: attention(
        case, *worst_case_attention(case.weights, case.logits, case.mask, EPSILON)
    ),
    "search_adversary": lambda case: attention(
        case, *search_adversary(case.weights, case.logits, case.mask, EPSILON, case.keys, steps=10)
    ),
}
OF_ONE_HEAD: dict[str, Function] = {
    "divergences": lambda case: [
        list(measure(case.weights, masked_softmax(case.weights, case.mask)))
        for measure in (kl_divergence, js_divergence, total_variation)
    ],
    "linear_program_attention": lambda case: [
        case.of_items(linear_program_attention(case.weights, case.logits, case.mask, EPSILON))
    ],
    "ranks": lambda case: [case.of_items(dense_ranks(case.scores, case.mask))],
    "correlations": lambda case: [
        *map(list, kendall_tau(case.scores, case.weights, case.mask)),
        list(spearman_rho(case.scores, case.weights, case.mask)),
        list(pearson_r(case.scores, case.weights, case.mask)),
        list(top_overlap(case.scores, case.weights, case.mask)),
    ],
    "rationales": lambda case: map(
        list,
        [
            average_precision(case.weights, case.scores > 0, case.mask),
            *plausibility(case.weights, (case.scores > 0) & case.mask, case.mask).values(),
        ],
    ),
}
OF_SEVERAL: dict[str, Function] = {
    "permuted_logits": lambda case: [
        list(permuted_logits(case.weights, case.logits, case.mask, case.keys, 5, seed=1))
    ],
    "permuted_weights": lambda case: [
        case.of_items(permuted_weights(case.weights, case.mask, case.keys, 5, seed=1))
    ],
    "normalized_js": lambda case: [
        list(normalized_js(case.weights, masked_softmax(case.weights, case.mask), case.mask))
    ],
}
OPAQUE: dict[str, Function] = {
    "mixtures": lambda case: attention(case, *opaque(case, programs=False)),
    "search": lambda case: attention(case, *opaque(case, programs=True)),
}
TWO_CLASSES: Function = lambda case: [
    list(
        worst_case_js(
            case.weights, case.logits, case.mask, torch.tensor([0.01, 0.3], dtype=torch.float64)
        )
    )
]
CASES = [
    *(pytest.param(f, 3, None, id=name) for name, f in (READOUTS | OF_ONE_HEAD | OPAQUE).items()),
    *(pytest.param(f, 3, 2, id=f"{name}-2") for name, f in (READOUTS | OF_SEVERAL).items()),
    pytest.param(READOUTS["worst_case_attention"], 2, None, id="worst_case_attention-exact"),
]
PARAMETERS = ("function", "classes", "heads")


@pytest.mark.parametrize(PARAMETERS, [*CASES, pytest.param(TWO_CLASSES, 2, None, id="curve")])
def test_neither_padding_nor_the_batch_changes_a_row(
    function: Function, classes: int, heads: int | None
) -> None:
    case = rows_of(classes, heads)
    together = list(function(case))
    for row in range(0, len(case.mask), 4 if function is OPAQUE["search"] else 1):
        alone = function(case.select(slice(row, row + 1)).wide())
        for whole, own in zip(together, alone, strict=True):
            torch.testing.assert_close(own[0], whole[row], rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(PARAMETERS, [*CASES, pytest.param(TWO_CLASSES, 2, None, id="curve")])
def test_a_row_without_numbers_spoils_itself_alone(
    function: Function, classes: int, heads: int | None
) -> None:
    case = rows_of(classes, heads)
    broken = replace(case, logits=case.logits.clone(), scores=case.scores.clone())
    broken.logits[5, ..., 1, 0] = torch.nan
    broken.scores[5, 1] = torch.nan
    undefined = function in [READOUTS["worst_case_attention"], READOUTS["search_adversary"]]
    for place, (whole, own) in enumerate(zip(function(case), function(broken), strict=True)):
        if place and (undefined or function in OPAQUE.values()):
            assert own[5].isnan().all()
        for row in set(range(9)) - {5}:
            torch.testing.assert_close(own[row], whole[row], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(PARAMETERS, CASES)
def test_rows_without_items_and_batches_without_rows(
    function: Function, classes: int, heads: int | None
) -> None:
    case = rows_of(classes, heads, rows=2)
    empty = replace(case, mask=torch.zeros_like(case.mask), weights=0 * case.weights)
    assert all(len(values) == 2 for values in function(empty))
    assert all(len(values) == 0 for values in function(case.select(slice(0))))

"""Average precision against scikit-learn, torchmetrics and all orders of a few items."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

from attnlight.functional import average_precision, expected_average_precision


def rows(levels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of few levels, so that many are tied, relevant items and masks with holes."""
    random = torch.Generator().manual_seed(levels)
    scores = torch.randint(1, levels + 1, (80, 9), generator=random).double() / levels
    mask = torch.rand(80, 9, generator=random) < 0.8
    mask[:, 4] = True
    relevant = torch.rand(80, 9, generator=random) < 0.4
    return scores, relevant, mask


@pytest.mark.parametrize("levels", [1, 2, 4, 1000])
def test_equals_scikit_learn_and_torchmetrics(levels: int) -> None:
    scores, relevant, mask = rows(levels)
    found = average_precision(scores, relevant, mask)
    undefined = 0
    for row, value in enumerate(found):
        items, gold = scores[row, mask[row]], relevant[row, mask[row]]
        if not gold.any():
            undefined += 1
            assert value.isnan()
            continue
        expected = average_precision_score(gold.numpy(), items.numpy())
        assert float(value) == pytest.approx(expected, abs=1e-12)
        assert float(binary_average_precision(items, gold.long())) == pytest.approx(
            expected, abs=1e-6
        )
    assert 0 < undefined < 20


def test_nearly_equal_scores_are_tied() -> None:
    scores = torch.tensor([[0.5, 0.5 + 4.9e-6, 0.1], [0.5, 0.5 + 5.1e-6, 0.1]], dtype=torch.float64)
    relevant = torch.tensor([[False, True, False]]).expand(2, -1)
    found = average_precision(scores, relevant, relevant | True)
    assert found.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("items", range(1, 7))
def test_expectation_is_the_mean_over_all_orders(items: int) -> None:
    """Of which only the ranks of the relevant items count."""
    for count in range(1, items + 1):
        golds = [np.isin(range(items), ranks) for ranks in combinations(range(items), count)]
        mean = np.mean([average_precision_score(gold, range(items)) for gold in golds])
        found = expected_average_precision(torch.tensor(count), torch.tensor(items))
        assert float(found) == pytest.approx(mean, abs=1e-12)


def test_expectation_of_nothing_is_undefined() -> None:
    found = expected_average_precision(torch.tensor([0, 0, 1]), torch.tensor([0, 4, 1]))
    assert [math.isnan(value) for value in found.tolist()] == [True, True, False]
    assert float(found[2]) == pytest.approx(1)

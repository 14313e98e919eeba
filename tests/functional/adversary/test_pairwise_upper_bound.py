"""The bound from pairs of classes: against each pair solved by itself."""

import itertools
import math

import pytest
import torch

from attnlight.functional import read, worst_case_attention
from attnlight.functional._cpu import best_of_each
from attnlight.functional.adversary.exact import max_js_attention
from attnlight.functional.adversary.multiclass import log_ratio_bounds
from attnlight.functional.adversary.pairwise_upper_bound import pairwise_upper_bound
from tests.functional.adversaries import KINDS, case, jensen_shannon, moved


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_the_least_over_all_pairs(
    kind: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, logits, mask = case(kind, rows=16, items=8, classes=5)
    prediction = read(weights, logits).softmax(-1)
    upper = torch.full((16,), math.inf, dtype=torch.float64)
    for c, d in itertools.combinations(range(5), 2):
        low, high = log_ratio_bounds(prediction[:, c], prediction[:, d], epsilon)
        e, bounds = logits[..., c] - logits[..., d], (low[:, None], high[:, None])
        vertex, _ = max_js_attention(weights, e, *bounds, mask)
        upper = torch.minimum(upper, jensen_shannon(vertex, weights))
    found = pairwise_upper_bound(weights, logits, mask, epsilon)
    torch.testing.assert_close(found, upper, rtol=1e-10, atol=1e-12)
    monkeypatch.setattr("attnlight.functional.adversary.pairwise_upper_bound._SOLVED", 3)
    monkeypatch.setattr("attnlight.functional.adversary.pairwise_upper_bound._CHECKED", 20)
    torch.testing.assert_close(pairwise_upper_bound(weights, logits, mask, epsilon), found)


@pytest.mark.parametrize("kind", ["random", "sharp", "few values"])
def test_many_classes_are_bounded(kind: str) -> None:
    weights, logits, mask = case(kind, rows=32, items=9, classes=14)
    adversary, js, upper = worst_case_attention(weights, logits, mask, 0.05)
    assert (moved(adversary, weights, logits) <= 0.05 + 1e-9).all()
    torch.testing.assert_close(js, jensen_shannon(adversary, weights), rtol=1e-9, atol=1e-12)
    assert (js <= upper + 1e-12).all()
    alone = torch.eye(9, dtype=torch.float64).expand(32, -1, -1)
    own = read(weights, logits).softmax(-1).unsqueeze(1)
    kept = (logits.softmax(-1) - own).abs().sum(-1) / 2 <= 0.05
    singles = jensen_shannon(alone, weights.unsqueeze(1)).masked_fill(~(kept & mask), 0.0)
    assert (js >= singles.amax(-1) - 1e-12).all()
    # All on the lightest item keeps the prediction: nothing is further, and it is known to be so.
    light = weights.masked_fill(~mask, math.inf).argmin(-1, keepdim=True)
    easy = kept.gather(1, light).squeeze(1)
    assert easy.any()
    torch.testing.assert_close(js[easy], upper[easy])


def test_the_first_best_entry_of_each_row() -> None:
    rows, values = torch.tensor([4, 2, 4, 2, 7]), torch.tensor([5.0, 3.0, 5.0, 1.0, 2.0])
    places, top = best_of_each(rows, values, torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]))
    assert places.tolist() == [0, 1]
    assert top.tolist() == [9.0, 0.0, 3.0, 0.0, 5.0, 0.0, 0.0, 2.0]
    assert best_of_each(rows[:0], values[:0], top)[0].tolist() == []

"""Chosen items against marked ones: sklearn, torchmetrics, all orders of ties, spans as sets."""

from itertools import combinations, pairwise, permutations
from math import nan

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

from attnlight.functional import (
    annotator_agreement,
    average_precision,
    expected_average_precision,
    plausibility,
    span_f1,
    token_f1,
)
from attnlight.functional.ranking import ranking


def scene(
    rows: int = 80, items: int = 9, seed: int = 0, levels: int = 5
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of few values, marks and a mask with gaps; some rows without marks, some all marked."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, levels - 2, (rows, items), generator=random).double()
    mask = torch.rand(rows, items, generator=random) < 0.8
    mask[:, 3] = True
    share = torch.rand(rows, 1, generator=random)
    marked = (torch.rand(rows, items, generator=random) < share) & mask
    marked[:3], marked[3:6] = False, mask[3:6]
    return scores, marked, mask


def spans(chosen: list[bool]) -> list[set[int]]:
    """Maximal runs as sets of places."""
    found: list[set[int]] = []
    for place, item in enumerate(chosen):
        if item and place and chosen[place - 1]:
            found[-1].add(place)
        elif item:
            found.append({place})
    return found


def naive_span_f1(chosen: list[bool], marked: list[bool]) -> float:
    """ERASER's matching of predicted spans, each with its best gold span, for one text."""
    predicted, gold = spans(chosen), spans(marked)
    if not predicted and not gold:
        return nan
    best = [max((len(p & g) / len(p | g) for g in gold), default=0.0) for p in predicted]
    hits = sum(iou >= 0.5 for iou in best)
    precision = hits / len(predicted) if predicted else 0.0
    recall = hits / len(gold) if gold else 0.0
    return 2 * precision * recall / (precision + recall) if hits else 0.0


@pytest.mark.parametrize("levels", [1, 2, 4, 1000])
def test_average_precision_is_that_of_scikit_learn_and_torchmetrics(levels: int) -> None:
    scores, marked, mask = scene(levels=levels)
    scores = scores.sub(scores.min() - 1).div(levels)  # in (0, 1], as torchmetrics asks for
    found = average_precision(scores, marked | ~mask, mask)
    assert torch.equal(found.isnan(), ~marked.any(-1))
    for row in found.isfinite().nonzero().flatten().tolist():
        items, gold = scores[row, mask[row]], marked[row, mask[row]]
        expected = average_precision_score(gold, items)
        assert float(found[row]) == pytest.approx(expected, abs=1e-12)
        assert float(binary_average_precision(items, gold.long())) == pytest.approx(
            expected, abs=1e-6
        )
    assert 0 < found.isnan().sum() < 20


def test_nearly_equal_scores_are_tied() -> None:
    scores = torch.tensor([[0.5, 0.5 + 4.9e-6, 0.1], [0.5, 0.5 + 5.1e-6, 0.1]], dtype=torch.float64)
    relevant = torch.tensor([[False, True, False]]).expand(2, -1)
    assert average_precision(scores, relevant, relevant | True).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("items", range(1, 7))
def test_expected_average_precision_is_the_mean_over_all_orders(items: int) -> None:
    """Of which only the ranks of the relevant items count."""
    for count in range(1, items + 1):
        golds = [np.isin(range(items), ranks) for ranks in combinations(range(items), count)]
        mean = np.mean([average_precision_score(gold, range(items)) for gold in golds])
        found = expected_average_precision(torch.tensor(count), torch.tensor(items))
        assert float(found) == pytest.approx(mean, abs=1e-12)


def test_the_expectation_of_nothing_is_undefined() -> None:
    found = expected_average_precision(torch.tensor([0, 0, 1]), torch.tensor([0, 4, 1]))
    assert found.tolist() == pytest.approx([nan, nan, 1], nan_ok=True)


def test_token_f1_is_sklearns_averaged_over_all_ways_to_break_ties() -> None:
    scores, marked, mask = scene(rows=60, items=6)
    found = plausibility(scores, marked, mask)["token_f1"]
    tied = 0
    for row in range(len(scores)):
        places = mask[row].nonzero().squeeze(-1).tolist()
        count = int(marked[row].sum())
        if not count:
            assert found[row].isnan()
            continue
        ordered = [
            order
            for order in permutations(places)
            if all(scores[row, a] >= scores[row, b] for a, b in pairwise(order))
        ]
        tied += len(ordered) > 1
        gold = [bool(marked[row, place]) for place in places]
        values = [f1_score(gold, [p in order[:count] for p in places]) for order in ordered]
        assert float(found[row]) == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert tied > 20


def test_iou_f1_equals_spans_as_sets() -> None:
    scores, marked, mask = scene(rows=300, items=14, seed=1)
    found = plausibility(scores, marked, mask)["iou_f1"]
    order = ranking(scores, mask)
    seen = set()
    for row in range(len(scores)):
        top = set(order[row, : int(marked[row].sum())].tolist())
        chosen = [place in top for place in range(14)]
        expected = naive_span_f1(chosen, marked[row].tolist())
        assert float(found[row]) == pytest.approx(expected, abs=1e-12, nan_ok=True)
        seen.add(round(expected, 3))
    assert len(seen) > 8


def test_half_of_a_span_matches_it() -> None:
    marked = torch.tensor([[True] * 4])
    assert span_f1(torch.tensor([[True, True, False, False]]), marked).item() == 1.0
    assert span_f1(torch.tensor([[True, False, False, False]]), marked).item() == 0.0


def test_nothing_marked_and_nothing_chosen_is_undefined() -> None:
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert token_f1(nothing, nothing).isnan().all()
    assert token_f1(nothing, ~nothing).item() == 0.0


class TestAnnotators:
    def test_pairs_one_by_one(self) -> None:
        random = torch.Generator().manual_seed(3)
        mask = torch.rand(40, 8, generator=random) < 0.9
        shares = torch.rand(4, 40, 1, generator=random)
        marks = (torch.rand(4, 40, 8, generator=random) < shares) & mask
        marks[1:, :5] = False
        found = annotator_agreement(marks, mask)
        for row in range(40):
            items = mask[row]
            own = [m for m in marks[:, row, :] if m.any()]
            pairs = list(permutations(own, 2))
            expected = {
                "auprc": [average_precision_score(b[items], a[items].double()) for a, b in pairs],
                "token_f1": [f1_score(b[items], a[items]) for a, b in pairs],
                "iou_f1": [naive_span_f1(a.tolist(), b.tolist()) for a, b in pairs],
            }
            for name, values in expected.items():
                mean = sum(values) / len(values) if values else nan
                assert float(found[name][row]) == pytest.approx(mean, abs=1e-12, nan_ok=True)
        assert found["auprc"][:5].isnan().all()

    def test_one_annotator_has_nobody_to_agree_with(self) -> None:
        marks = torch.ones(1, 2, 3, dtype=torch.bool)
        assert all(v.isnan().all() for v in annotator_agreement(marks, marks[0]).values())
        assert all(v.isnan().all() for v in annotator_agreement(marks[:0], marks[0]).values())

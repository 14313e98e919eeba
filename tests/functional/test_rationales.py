"""Chosen items against marked ones: sklearn, all orders of ties, and spans as sets."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations
from math import nan

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from attnlight.functional import annotator_agreement, plausibility, span_f1, token_f1
from attnlight.functional.ranking import ranking, top_share


def scene(rows: int = 80, items: int = 9, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of few values, marks and a mask with gaps; some rows without marks, some all marked."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (rows, items), generator=random).double()
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


def test_auprc_is_sklearns() -> None:
    scores, marked, mask = scene()
    found = plausibility(scores, marked, mask)["auprc"]
    for row in range(len(scores)):
        items = mask[row]
        expected = nan
        if marked[row].any():
            expected = average_precision_score(marked[row, items], scores[row, items])
        assert float(found[row]) == pytest.approx(expected, abs=1e-12, nan_ok=True)


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


def test_shares_sum_to_the_count_and_equal_items_share() -> None:
    scores, _, mask = scene()
    for wanted in (1, 2, 5):
        count = mask.sum(-1).clamp(max=wanted)
        shares = top_share(scores, count, mask)
        torch.testing.assert_close(shares.sum(-1), count.double())
        assert not shares[~mask].any()
        for row, (one, other) in (
            (r, pair) for r in range(80) for pair in combinations(range(9), 2)
        ):
            if mask[row, one] and mask[row, other] and scores[row, one] == scores[row, other]:
                assert shares[row, one] == shares[row, other]


def test_nothing_marked_and_nothing_chosen_is_undefined() -> None:
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert token_f1(nothing, nothing).isnan().all()
    assert token_f1(nothing, ~nothing).item() == 0.0


class TestAnnotators:
    def test_by_hand(self) -> None:
        """Three people mark ab, bc and nothing in a text of the words abcd; the third does not count."""
        marks = torch.tensor([[[1, 1, 0, 0]], [[0, 1, 1, 0]], [[0, 0, 0, 0]]]).bool()
        found = annotator_agreement(marks, torch.ones(1, 4, dtype=torch.bool))
        # F1 of {a, b} and {b, c} is 1/2; their spans share 1 of 3 words. AP: the two marked words are
        # a tie with precision 1/2 that finds one; the other is found last, with precision 1/2.
        assert found["token_f1"].item() == pytest.approx(0.5)
        assert found["iou_f1"].item() == 0.0
        assert found["auprc"].item() == pytest.approx(0.5)

    def test_pairs_one_by_one(self) -> None:
        random = torch.Generator().manual_seed(3)
        mask = torch.rand(40, 8, generator=random) < 0.9
        marks = (
            torch.rand(4, 40, 8, generator=random) < torch.rand(4, 40, 1, generator=random)
        ) & mask
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

"""Alignment of a text with its edit, attention moved along it, and ranks of marked items."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

from attnlight.functional.alignment import align, move_weights, rank_of_marked

TEXT = ["the", "film", "is", "not", "good", "at", "all"]
EDITS = {  # the edit, what is edited of the text and of the edit
    "replaced": ("the film is so good at all", ["not"], ["so"]),
    "deleted": ("the film is good at all", ["not"], []),
    "inserted": ("the old film is not good at all", [], ["old"]),
    "doubled": ("the film film is not good at all", [], ["film"]),
    "moved": ("not the film is good at all", ["not"], ["not"]),
    "both ends": ("a film is not good", ["the", "at", "all"], ["a"]),
    "everything": ("x y", TEXT, ["x", "y"]),
    "nothing": (" ".join(TEXT), [], []),
}


@pytest.mark.parametrize(("other", "deleted", "inserted"), EDITS.values(), ids=EDITS)
def test_blocks_rebuild_both_texts(other: str, deleted: list[str], inserted: list[str]) -> None:
    edit = other.split()
    first, second, edited = align(TEXT, edit)
    assert [w for w, b in zip(TEXT, first, strict=True) if edited[b]] == deleted
    assert [w for w, b in zip(edit, second, strict=True) if edited[b]] == inserted
    common = [
        [w for w, b in zip(x, y, strict=True) if not edited[b]]
        for x, y in ((TEXT, first), (edit, second))
    ]
    assert common[0] == common[1]
    assert first == sorted(first)
    assert second == sorted(second)
    assert {*first, *second} == set(range(len(edited)))


def test_common_words_of_long_texts_are_not_junk() -> None:
    """`difflib` by default ignores elements that are frequent in more than 200."""
    first, second, edited = align(["a"] * 300, ["a"] * 299 + ["c"])
    assert sum(not edit for edit in edited) == 299
    assert (len(first), len(second)) == (300, 300)


def naive_move(weights: list[float], source: list[int], target: list[int]) -> list[float]:
    moved = []
    for block in target:
        mass = sum(w for w, b in zip(weights, source, strict=True) if b == block >= 0)
        moved.append(mass / target.count(block) if block >= 0 else 0.0)
    return [value / sum(moved) for value in moved] if sum(moved) else [float("nan")] * len(moved)


def test_moved_attention_is_that_of_the_blocks() -> None:
    source = torch.tensor([[-1, 0, 1, 1, 2, 3], [0, 0, 1, 2, 3, -1]])
    target = torch.tensor([[0, 1, 2, 2, 4, -1, -1], [5, 5, -1, -1, -1, -1, -1]])
    weights = torch.rand(2, 3, 6, dtype=torch.float64).masked_fill(source[:, None] < 0, 0.0)
    weights /= weights.sum(-1, keepdim=True)
    moved = move_weights(weights, source, target)
    for text in range(2):
        for head in range(3):
            expected = naive_move(
                weights[text, head].tolist(), source[text].tolist(), target[text].tolist()
            )
            torch.testing.assert_close(
                moved[text, head],
                torch.tensor(expected, dtype=torch.float64),
                equal_nan=True,
                rtol=1e-12,
                atol=1e-12,
            )
    assert moved[1].isnan().all()  # nothing of the second text has a place


def test_rank_is_one_less_the_area_under_the_roc_curve() -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 5, (40, 9), generator=random).double()  # with ties
    mask = torch.rand(40, 9, generator=random) < 0.8
    marked = mask & (torch.rand(40, 9, generator=random) < 0.4)
    found = rank_of_marked(scores, marked, mask)
    for row, value in enumerate(found.tolist()):
        real, gold = scores[row, mask[row]], marked[row, mask[row]]
        if gold.all() or not gold.any():
            assert math.isnan(value)
        else:
            assert value == pytest.approx(1 - roc_auc_score(gold, real))

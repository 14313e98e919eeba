"""Seeded choices against splitmix64 in Python integers, and the rules that use them."""

from typing import Any

import datasets
import numpy as np
import pytest

from attnlight.data.documents import DocumentReader
from attnlight.data.parts import open_documents
from attnlight.data.selection import SelectedRows, Selection, choose, choose_stratified
from attnlight.data.sources import Source
from attnlight.data.tokenization import TextRules
from attnlight.errors import InputError

MASK = (1 << 64) - 1


def splitmix(state: int) -> int:
    """Splitmix64's step in Python integers, as its authors give it in C."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [0, 1378, -5])
def test_choice_takes_the_smallest_splitmix_hashes(seed: int) -> None:
    assert splitmix(0) == 0xE220A8397B1DCDAF  # first output of the reference code for seed 0
    rows = np.arange(0, 3000, 3)
    start = splitmix(seed & MASK)
    expected = sorted(sorted(rows.tolist(), key=lambda row: splitmix((start + row) & MASK))[:100])
    assert choose(rows, 100, seed).tolist() == expected


def test_length_limits_are_inclusive_and_counted() -> None:
    texts = ["a b", "a b", "a", "a b", "a b c d", "a b c d e", ""]
    rows = datasets.Dataset.from_dict({"text": texts})
    reader = DocumentReader(rows, Source(path="corpus", split="test", text="text"))
    labels = np.array([-1, -1, 0, 0, 0, 0, 0])  # the first two have no class
    part = open_documents(reader, labels, TextRules(), Selection(min_tokens=2, max_tokens=4))
    assert part.rows.tolist() == [3, 4]
    dropped = {"classes": 2, "min_tokens": 2, "max_tokens": 1}
    assert part.counts() == {"rows": 2, "dropped": 5, "dropped_by": dropped}


@pytest.mark.parametrize(("amount", "left"), [(0.2, 20), (1.0, 100), (7, 7), (100, 100)])
def test_subset_takes_a_share_or_a_number(amount: float, left: int) -> None:
    kept = SelectedRows("split test", np.arange(100))
    selection = Selection(subset={"test": amount, "validation": 3})
    selection.apply_subsets({"test": kept}, complete=False)
    assert len(kept.rows) == left


def plain_choice(
    rows: list[int], labels: list[int], groups: list[int], fraction: float, seed: int
) -> list[int]:
    """The rule in plain Python: by class, whole groups in the order of their first rows' hashes."""
    start = splitmix(seed & MASK)
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    chosen: list[int] = []
    for label in sorted(set(labels)):
        of_class = [m for m in members.values() if labels[m[0]] == label]
        of_class.sort(key=lambda m: splitmix((start + rows[m[0]]) & MASK))
        total = sum(map(len, of_class))
        room = min(max(round(fraction * total), 1), total - 1)
        for member in of_class:
            if len(member) <= room:
                chosen += member
                room -= len(member)
    return sorted(rows[place] for place in chosen)


@pytest.mark.parametrize(
    ("seed", "fraction", "copies"), [(0, 0.2, 500), (3, 0.5, 60), (9, 0.01, 9)]
)
def test_stratified_choice_follows_its_rule(seed: int, fraction: float, copies: int) -> None:
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(1000, 300, replace=False))
    labels = random.choice(4, 300, p=[0.6, 0.3, 0.09, 0.01])
    groups = random.integers(1, copies, size=300).astype(np.uint64)
    expected = plain_choice(rows.tolist(), labels.tolist(), groups.tolist(), fraction, seed)
    assert choose_stratified(rows, labels, groups, fraction, seed).tolist() == expected
    # So are validation texts that stay together.
    places, train = np.arange(300), SelectedRows("split train", np.arange(300))
    expected = plain_choice(places.tolist(), labels.tolist(), groups.tolist(), fraction, seed)
    if not expected:
        return
    selection = Selection(validation_fraction=fraction, split_seed=seed)
    moved = selection.split_off(train, labels, groups, together=True)["validation"].rows
    assert moved.tolist() == expected
    assert not np.isin(groups[moved], groups[train.rows]).any()
    assert sorted([*moved, *train.rows]) == places.tolist()


def test_each_class_gives_its_share_and_keeps_a_row() -> None:
    labels = np.repeat([0, 1, 2, 3], [100, 10, 2, 1])
    rows, groups = np.arange(113), np.arange(113, dtype=np.uint64)
    for fraction, counts in ((0.2, [20, 2, 1, 0]), (0.99, [99, 9, 1, 0]), (0.01, [1, 1, 1, 0])):
        chosen = choose_stratified(rows, labels, groups, fraction, seed=1)
        assert np.bincount(labels[chosen], minlength=4).tolist() == counts


def test_test_texts_are_disjoint_spread_and_split_off_before_validation() -> None:
    keys = np.arange(1, 1001, dtype=np.uint64)
    keys[500:520] = keys[:20]  # twenty texts occur twice
    train = SelectedRows("split train", np.arange(1000))
    labels = np.arange(1000) // 500
    selection = Selection(test_fraction=0.2, validation_fraction=0.25, split_seed=3)
    moved = selection.split_off(train, labels, keys)
    test, validation = moved["test"].rows, moved["validation"].rows
    assert (len(test), len(validation), len(train.rows)) == (200, 200, 600)
    assert sorted([*test, *validation, *train.rows]) == list(range(1000))
    assert not np.isin(keys[test], keys[[*train.rows, *validation]]).any()
    assert abs(np.sum(test % 500 < 250) - 100) < 5 * np.sqrt(200) / 2  # shuffled, not the first
    assert {rows.counts()["dropped"] for rows in (*moved.values(), train)} == {0}


@pytest.mark.parametrize("option", ["test_fraction", "validation_fraction"])
def test_texts_that_are_too_many_copies_of_each_other_cannot_be_split(option: Any) -> None:
    train, labels = SelectedRows("split train", np.arange(20)), np.arange(20) % 2
    selection = Selection(**{option: 0.2})
    with pytest.raises(InputError, match=rf"{option}: 0\.2.*equal texts"):
        selection.split_off(train, labels, (labels + 1).astype(np.uint64), together=True)
    # Texts without a word are no copies of each other.
    moved = selection.split_off(train, labels, np.zeros(20, np.uint64), together=True)
    assert [len(part.rows) for part in moved.values()] == [4]

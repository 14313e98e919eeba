import datasets
import numpy as np
import pytest

from attnlight.data.documents import DocumentReader
from attnlight.data.parts import Part, open_documents
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
    rows = np.arange(0, 3000, 3)
    start = splitmix(seed & MASK)
    expected = sorted(sorted(rows.tolist(), key=lambda row: splitmix((start + row) & MASK))[:100])
    assert choose(rows, 100, seed).tolist() == expected


def test_splitmix_itself_gives_the_published_first_value() -> None:
    assert splitmix(0) == 0xE220A8397B1DCDAF  # first output of the reference code for seed 0


def test_choice_depends_on_row_numbers_not_on_company() -> None:
    all_rows = np.arange(10_000)
    chosen = set(choose(all_rows, 1000, 3).tolist())
    assert chosen > set(choose(all_rows, 100, 3).tolist())
    without = np.array([row for row in all_rows if row % 7])
    assert set(choose(without, 500, 3).tolist()) <= {
        *chosen
    }  # fewer rows, larger hashes are never taken before smaller ones


def test_choice_is_spread_and_changes_with_the_seed() -> None:
    first, second = (choose(np.arange(100_000), 20_000, seed) for seed in (0, 1))
    tenths = np.bincount(first // 10_000, minlength=10)
    assert np.all(np.abs(tenths - 2000) < 5 * np.sqrt(2000 * 0.8))
    common = len(np.intersect1d(first, second))
    assert abs(common - 4000) < 5 * np.sqrt(4000)


def documents(selection: Selection, *texts: str) -> Part[DocumentReader]:
    """The split of the texts within the limits; the first two have no class."""
    rows = datasets.Dataset.from_dict({"text": texts})
    reader = DocumentReader(rows, Source(path="corpus", split="test", text="text"))
    labels = np.array([-1, -1, *[0] * (len(texts) - 2)])
    return open_documents(reader, labels, TextRules(), selection)


def test_length_limits_are_inclusive_and_counted() -> None:
    texts = ("a b", "a b", "a", "a b", "a b c d", "a b c d e", "")
    part = documents(Selection(min_tokens=2, max_tokens=4), *texts)
    assert part.rows.tolist() == [3, 4]
    assert part.counts() == {
        "rows": 2,
        "dropped": 5,
        "dropped_by": {"classes": 2, "min_tokens": 2, "max_tokens": 1},
    }


@pytest.mark.parametrize(
    ("selection", "filter_"),
    [(Selection(min_tokens=9), "min_tokens: 9"), (Selection(max_tokens=1), "max_tokens: 1")],
)
def test_a_filter_that_leaves_nothing_is_named(selection: Selection, filter_: str) -> None:
    with pytest.raises(
        InputError, match=f"no text of split test of corpus is left after {filter_}"
    ):
        documents(selection, "a", "a", "a b c", "a b c d")


def test_validation_and_training_share_no_row() -> None:
    train = SelectedRows("split train", np.arange(10, 110))
    none, keys = np.zeros(110, np.int64), np.arange(110, dtype=np.uint64)
    validation = Selection(validation_fraction=0.25, split_seed=7).split_off(train, none, keys)[
        "validation"
    ]
    assert len(validation.rows) == 25
    assert sorted([*train.rows, *validation.rows]) == list(range(10, 110))
    assert validation.counts()["dropped"] == train.counts()["dropped"] == 0


@pytest.mark.parametrize(("amount", "left"), [(0.2, 20), (1.0, 100), (7, 7), (100, 100)])
def test_subset_takes_a_share_or_a_number(amount: float, left: int) -> None:
    kept = SelectedRows("split test", np.arange(100))
    Selection(subset={"test": amount}).apply_subsets({"test": kept})
    assert len(kept.rows) == left


def test_subset_larger_than_the_split_is_refused() -> None:
    with pytest.raises(InputError, match="subset of test is 6, but split test has only 5 texts"):
        Selection(subset={"test": 6}).apply_subsets(
            {"test": SelectedRows("split test", np.arange(5))}
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_tokens": 5, "max_tokens": 4}, "no text can satisfy both"),
        ({"validation_fraction": 1.0}, "between 0 and 1"),
        ({"test_fraction": 0.0}, "test_fraction is 0.0"),
        ({"subset": {"dev": 3}}, "subset names dev"),
        ({"subset": {"test": 1.5}}, "subset of test is 1.5"),
        ({"subset": {"test": 0}}, "subset of test is 0"),
    ],
)
def test_values_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Selection(**options)


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
    groups = random.integers(copies, size=300).astype(np.uint64)
    chosen = choose_stratified(rows, labels, groups, fraction, seed)
    expected = plain_choice(rows.tolist(), labels.tolist(), groups.tolist(), fraction, seed)
    assert chosen.tolist() == expected


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
    assert moved["test"].counts()["dropped"] == train.counts()["dropped"] == 0


@pytest.mark.parametrize("seed", [0, 4])
def test_validation_texts_that_stay_together_follow_the_rule_of_test_texts(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, labels = np.arange(200), random.integers(3, size=200)
    stories = random.integers(1, 60, size=200).astype(np.uint64)
    train = SelectedRows("split train", rows)
    selection = Selection(validation_fraction=0.15, split_seed=seed)
    validation = selection.split_off(train, labels, stories, together=True)["validation"].rows
    expected = plain_choice(rows.tolist(), labels.tolist(), stories.tolist(), 0.15, seed)
    assert validation.tolist() == expected
    assert not np.isin(stories[validation], stories[train.rows]).any()
    assert sorted([*validation, *train.rows]) == rows.tolist()


def test_validation_texts_that_stay_together_and_cannot_be_split() -> None:
    train = SelectedRows("split train", np.arange(20))
    with pytest.raises(InputError, match=r"validation_fraction: 0\.2.*equal texts"):
        Selection(validation_fraction=0.2).split_off(
            train, np.arange(20) % 2, np.ones(20, np.uint64), together=True
        )


def test_texts_that_are_too_many_copies_of_each_other_cannot_be_split() -> None:
    train = SelectedRows("split train", np.arange(20))
    with pytest.raises(InputError, match=r"test_fraction: 0\.2.*equal texts"):
        Selection(test_fraction=0.2).split_off(
            train, np.arange(20) % 2, (np.arange(20) % 2 + 1).astype(np.uint64)
        )


def test_texts_without_a_word_are_no_copies_of_each_other() -> None:
    train = SelectedRows("split train", np.arange(20))
    moved = Selection(test_fraction=0.2).split_off(
        train, np.arange(20) % 2, np.zeros(20, np.uint64)
    )
    assert len(moved["test"].rows) == 4


def test_an_option_that_is_not_used_is_not_part_of_the_identity() -> None:
    assert "test_fraction" not in Selection(validation_fraction=0.1).identity()
    assert Selection(test_fraction=0.1).identity()["test_fraction"] == 0.1


def test_subset_of_a_split_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"subset names validation.*it has train"):
        Selection(subset={"validation": 3}).apply_subsets(
            {"train": SelectedRows("train", np.arange(5))}
        )
    Selection(subset={"validation": 3}).apply_subsets(
        {"train": SelectedRows("train", np.arange(5))}, complete=False
    )

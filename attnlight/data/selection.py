"""Which rows of a source make a split: length limits, seeded choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

Rows = NDArray[np.int64]


def choose(rows: Rows, count: int, seed: int) -> Rows:
    """The `count` of `rows` whose hashes are smallest, in their order.

    A row's hash depends on the seed and its number alone, so that the choice outlives versions of
    random generators, and a larger choice contains a smaller one.

    Example:
        >>> choose(np.arange(10), 3, seed=0).tolist()
        [1, 5, 7]
    """
    smallest = np.argsort(_hash(rows, seed), kind="stable")[:count]
    return np.sort(rows[smallest])


def _hash(rows: Rows, seed: int) -> NDArray[np.uint64]:
    """Splitmix64 (Steele et al. 2014) of the seed, then of each row number added to it."""
    state: NDArray[np.uint64] = np.array([seed], np.int64).view(np.uint64)
    for added in (np.zeros(1, np.uint64), rows.astype(np.uint64)):
        state = state + added + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def choose_stratified(
    rows: Rows, labels: Rows, groups: NDArray[np.uint64], fraction: float, seed: int
) -> Rows:
    """A share of the rows of each class, in their order; the rows of a group stay together.

    Classes are taken one by one: their groups in the order of their first rows' hashes (`choose`),
    each that still fits, until round(fraction * n) of the n rows are there, at least one and not
    all of them. A class of one row, and a group that is larger than the share, is not chosen.

    Args:
        rows: n rows, ascending.
        labels: Class of each, (n,); a group has that of its first row.
        groups: Equal numbers for rows that belong together, (n,).
        fraction: The share, between 0 and 1.
        seed: Seed of the hash.
    """
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(group)
    order = np.argsort(_hash(rows[first], seed), kind="stable")
    chosen = np.zeros(len(sizes), bool)
    for label in np.unique(labels[first]):
        candidates = order[labels[first][order] == label]
        total = int(sizes[candidates].sum())
        room = min(max(round(fraction * total), 1), total - 1)
        for candidate in candidates:
            if not room:
                break
            if sizes[candidate] <= room:
                chosen[candidate] = True
                room -= sizes[candidate]
    return rows[chosen[group]]


@dataclass
class Kept:
    """Rows of a source that a split keeps.

    Attributes:
        name: What messages call the split.
        rows: Row numbers in the source, ascending.
        dropped: Rows dropped, by the option that dropped them.
    """

    name: str
    rows: Rows
    dropped: dict[str, int] = field(default_factory=dict)

    def keep(self, rows: Rows, option: str, asked: object) -> None:
        """Drop all other rows and count them.

        Args:
            rows: The rows that stay.
            option: Name of the option that drops the others.
            asked: Its value, for messages.

        Raises:
            InputError: No row is left.
        """
        if not len(rows):
            raise InputError(f"no text of {self.name} is left after {option}: {asked}")
        if len(rows) < len(self.rows):
            self.dropped[option] = len(self.rows) - len(rows)
        self.rows = rows

    def counts(self) -> dict[str, Any]:
        """Rows kept and dropped, for `corpus.json`."""
        dropped = {"dropped": sum(self.dropped.values()), "dropped_by": self.dropped}
        return {"rows": len(self.rows)} | dropped


AnyKept = TypeVar("AnyKept", bound=Kept)


@dataclass(frozen=True)
class Selection:
    """Which texts are used.

    Args:
        min_tokens: Drop texts of fewer tokens; an empty text has none.
        max_tokens: Drop texts of more tokens.
        validation_fraction: Share of the training texts that become the validation split.
        test_fraction: Share of the training texts that become the test split, before those that
            validate.
        subset: Split to the share of its texts (below 1 or 1.0) or to the number of texts to use.
        seed: Seed of what is split off and chosen.

    Raises:
        InputError: A value is out of range.
    """

    min_tokens: int | None = None
    max_tokens: int | None = None
    validation_fraction: float | None = None
    subset: Mapping[str, int | float] = field(default_factory=dict)
    seed: int = 0
    test_fraction: float | None = None

    def __post_init__(self) -> None:
        low, high = self.min_tokens, self.max_tokens
        if low is not None and high is not None and low > high:
            raise InputError(f"min_tokens is {low} and max_tokens is {high}: no text fits")
        for option in ("validation_fraction", "test_fraction"):
            fraction = getattr(self, option)
            if fraction is not None and not 0 < fraction < 1:
                raise InputError(f"{option} is {fraction}; it must lie between 0 and 1")
        for split, amount in self.subset.items():
            if split not in ("train", "validation", "test"):
                raise InputError(f"subset names {split}; it takes train, validation and test")
            if amount <= 0 or (isinstance(amount, float) and amount > 1):
                raise InputError(
                    f"subset of {split} is {amount}; it must be a share up to 1.0 or a whole "
                    "number of texts"
                )

    def identity(self) -> dict[str, Any]:
        """All options as plain JSON; `test_fraction`, which came later, only where it is used."""
        options = asdict(self)
        if self.test_fraction is None:
            del options["test_fraction"]
        return options

    def divide(self, train: AnyKept, labels: Rows, texts: NDArray[np.uint64]) -> dict[str, AnyKept]:
        """Move test and validation texts out of the training texts, where fractions are given.

        Args:
            train: The training texts.
            labels: Class of each row of the source, (rows,).
            texts: Text of each row of the source as a number (`text_keys`), (rows,).
        """
        moved: dict[str, AnyKept] = {}
        for split in ("test", "validation"):
            fraction = getattr(self, f"{split}_fraction")
            if fraction is None:
                continue
            if split == "test":
                groups = texts[train.rows]  # a copy
                empty = groups == 0  # texts without a word, which do not belong together
                groups[empty] = np.arange(empty.sum(), dtype=np.uint64)
                rows = choose_stratified(
                    train.rows, labels[train.rows], groups, fraction, self.seed
                )
            else:
                rows = choose(train.rows, round(fraction * len(train.rows)), self.seed)
            if split == "test" and not len(rows):
                raise InputError(
                    f"no text of {train.name} can be split off by test_fraction: {fraction}: equal "
                    "texts stay on one side, and each text occurs too often or has a class of its own"
                )
            name = f"the {split} texts split off {train.name}"
            moved[split] = replace(train, name=name, dropped={})
            moved[split].keep(rows, f"{split}_fraction", fraction)
            moved[split].dropped.clear()  # what stays in training is not dropped
            train.rows = np.setdiff1d(train.rows, rows, assume_unique=True)
        return moved

    def cut(self, splits: Mapping[str, Kept], complete: bool = True) -> None:
        """Keep the seeded subset of each split for which one is asked for.

        Args:
            splits: The corpus's splits.
            complete: Refuse a subset of a split that is not among them.

        Raises:
            InputError: The corpus lacks the split, or it has fewer texts.
        """
        for split, amount in self.subset.items():
            kept = splits.get(split)
            if kept is None and complete:
                raise InputError(
                    f"subset names {split}, which this corpus does not have; it has "
                    f"{', '.join(splits)}"
                )
            if kept is None:
                continue
            count = round(amount * len(kept.rows)) if isinstance(amount, float) else amount
            if count > len(kept.rows):
                raise InputError(
                    f"subset of {split} is {amount}, but {kept.name} has {len(kept.rows)} texts to "
                    "choose from"
                )
            kept.keep(choose(kept.rows, count, self.seed), "subset", amount)

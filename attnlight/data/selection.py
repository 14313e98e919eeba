"""Select the rows of a split: length limits and seeded choices."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

Rows = NDArray[np.int64]


def choose(rows: Rows, count: int, seed: int, groups: Rows | None = None) -> Rows:
    """The `count` of `rows` with the smallest hashes, in ascending order.

    A row's hash depends only on the seed and its number, so that the choice does not depend on the
    version of a random generator, and a larger choice contains a smaller one. Of groups (n,), which
    are not divided, those whose first rows have the smallest hashes are chosen, without those that do
    not fit.

    Example:
        >>> choose(np.arange(10), 3, seed=0).tolist()
        [1, 5, 7]
    """
    if groups is None:
        smallest = np.argsort(row_hashes(rows, seed), kind="stable")[:count]
        return np.sort(rows[smallest])
    _, first, group, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    chosen = np.zeros(len(sizes), bool)
    for place in np.argsort(row_hashes(rows[first], seed), kind="stable"):
        if sizes[place] <= count:
            chosen[place] = True
            count -= sizes[place]
    return rows[chosen[group]]


def row_hashes(rows: Rows, seed: int | Rows) -> NDArray[np.uint64]:
    """Splitmix64 (Steele et al. 2014) of the seed, or of each row's, then of that plus its number."""
    state: NDArray[np.uint64] = np.atleast_1d(np.asarray(seed, np.int64)).view(np.uint64)
    for added in (np.zeros(1, np.uint64), rows.astype(np.uint64)):
        state = state + added + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def choose_stratified(
    rows: Rows, labels: Rows, groups: NDArray[np.uint64], fraction: float, seed: int
) -> Rows:
    """A fraction of the rows of each class, in ascending order; groups are not divided.

    For each class, groups are taken in the order of their first rows' hashes (`choose`), skipping
    those that do not fit, until round(fraction * n) of its n rows are chosen, at least one and not
    all of them. A class with one row, or a group larger than the fraction, is never chosen. Of the
    n ascending rows labels and groups are given, (n,); a group has the class of its first row.
    """
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    of_group, chosen = labels[first][group], []
    for inside in (of_group == label for label in np.unique(of_group)):
        total = int(inside.sum())
        count = min(max(round(fraction * total), 1), total - 1)
        chosen.append(choose(rows[inside], count, seed, group[inside]))
    return np.sort(np.concatenate(chosen))


@dataclass
class SelectedRows:
    """Rows of a source that are selected for a split.

    Attributes:
        name: Name of the split in messages.
        rows: Row numbers in the source, ascending.
        originals: `read_originals` of the source, (rows,), whose groups are not divided; None: there
            are no edits.
        dropped: Number of rows dropped, by option.
    """

    name: str
    rows: Rows
    originals: Rows | None = None
    dropped: dict[str, int] = field(default_factory=dict)

    def keep(self, rows: Rows, option: str, value: object) -> None:
        """Keep these rows; drop all others and count them by the option that drops them."""
        if not len(rows):
            raise InputError(f"no text of {self.name} is left after {option}: {value}")
        if len(rows) < len(self.rows):
            self.dropped[option] = len(self.rows) - len(rows)
        self.rows = rows

    def choose(self, count: int, seed: int) -> Rows:
        """The function `choose` of these rows, originals together with their edits."""
        return choose(
            self.rows, count, seed, None if self.originals is None else self.originals[self.rows]
        )

    def counts(self) -> dict[str, Any]:
        """Numbers of rows selected and dropped, for `corpus.json`."""
        dropped = {"dropped": sum(self.dropped.values()), "dropped_by": self.dropped}
        return {"rows": len(self.rows)} | dropped


AnyRows = TypeVar("AnyRows", bound=SelectedRows)


@dataclass(frozen=True)
class Selection:
    """Which texts are used.

    Args:
        validation_fraction: Fraction of the training texts to validate on, in place of a split; 0:
            none is cut.
        test_fraction: Fraction of the training texts to test on, in place of `test`: the same
            fraction of each class, chosen by a hash of seed and row. Equal texts stay together.
            Test texts are split off before validation texts. 0: none is cut.
        min_tokens: Drop texts with fewer tokens in all splits; boundary tokens are not counted, and
            texts are counted before truncation. An empty text has none.
        max_tokens: Drop texts with more tokens in all splits.
        subset: Fraction (0.2) or number (500) of texts to use, by split; a seeded choice.
        split_seed: Seed of `validation_fraction`, `test_fraction` and `subset`.
    """

    validation_fraction: float | None = None
    test_fraction: float | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    subset: dict[str, int | float] | None = None
    split_seed: int = 0

    def __post_init__(self) -> None:
        low, high = self.min_tokens, self.max_tokens
        if low is not None and high is not None and low > high:
            raise InputError(
                f"min_tokens is {low} and max_tokens is {high}: no text can satisfy both"
            )
        for option in ("validation_fraction", "test_fraction"):
            fraction = getattr(self, option)
            if fraction is not None and not 0 <= fraction < 1:
                raise InputError(f"{option} is {fraction}; it must lie between 0 and 1")
        for split, amount in (self.subset or {}).items():
            if split not in ("train", "validation", "test"):
                raise InputError(f"subset names {split}; expected train, validation or test")
            if amount <= 0 or (isinstance(amount, float) and amount > 1):
                raise InputError(
                    f"subset of {split} is {amount}; it must be a fraction up to 1.0 or a whole "
                    "number of texts"
                )

    def identity(self) -> dict[str, Any]:
        """All options as plain JSON, part of the recipe that identifies a prepared corpus."""
        options = asdict(self) | {"subset": self.subset or {}}
        options["seed"] = options.pop("split_seed")
        options["validation_fraction"] = self.validation_fraction or None
        if not self.test_fraction:  # so that fingerprints of other corpora do not change
            del options["test_fraction"]
        return options

    def split_off(
        self, train: AnyRows, labels: Rows, texts: NDArray[np.uint64], together: bool = False
    ) -> dict[str, AnyRows]:
        """Split test and validation texts off the training texts where fractions are given.

        Of each row of the source class and text are given, this as a number (`text_keys`), (rows,).
        `together`: validation texts are chosen as test texts are, the same fraction of each class,
        equal texts together.
        """
        moved: dict[str, AnyRows] = {}
        for split in ("test", "validation"):
            fraction = getattr(self, f"{split}_fraction")
            if not fraction:
                continue
            if split == "test" or together:
                groups = texts[train.rows]  # a copy
                empty = groups == 0  # texts without a word, which form no group
                groups[empty] = np.arange(empty.sum(), dtype=np.uint64)
                chosen = (train.rows, labels[train.rows], groups, fraction, self.split_seed)
                rows = choose_stratified(*chosen)
            else:
                rows = train.choose(round(fraction * len(train.rows)), self.split_seed)
            if (split == "test" or together) and not len(rows):
                raise InputError(
                    f"{split}_fraction: {fraction} cannot split any text off {train.name}: equal "
                    "texts stay together, and each occurs too often or is the only one of its class"
                )
            name = f"the {split} texts split off {train.name}"
            moved[split] = replace(train, name=name, dropped={})
            moved[split].keep(rows, f"{split}_fraction", fraction)
            moved[split].dropped.clear()  # the remaining texts are used for training
            train.rows = np.setdiff1d(train.rows, rows, assume_unique=True)
        return moved

    def apply_subsets(self, splits: Mapping[str, SelectedRows], complete: bool = True) -> None:
        """Reduce splits to seeded subsets; that of a split which a `complete` corpus lacks is refused."""
        for split, amount in (self.subset or {}).items():
            selected = splits.get(split)
            if selected is None and complete:
                raise InputError(
                    f"subset names {split}, which this corpus does not have; it has "
                    f"{', '.join(splits)}"
                )
            if selected is None:
                continue
            count = round(amount * len(selected.rows)) if isinstance(amount, float) else amount
            if count > len(selected.rows):
                raise InputError(
                    f"subset of {split} is {amount}, but {selected.name} has only "
                    f"{len(selected.rows)} texts"
                )
            selected.keep(selected.choose(count, self.split_seed), "subset", amount)

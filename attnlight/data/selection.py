"""Which rows of a source make a split: length limits, seeded choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    start = _mix(np.array([seed], np.int64).view(np.uint64))
    return _mix(start + rows.astype(np.uint64))


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


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
        """Go on with fewer rows.

        Raises:
            InputError: None is left.
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


@dataclass(frozen=True)
class Selection:
    """Which texts are used.

    Args:
        min_tokens: Drop texts of fewer tokens; an empty text has none.
        max_tokens: Drop texts of more tokens.
        validation_fraction: Share of the training texts that become the validation split.
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

    def __post_init__(self) -> None:
        low, high, fraction = self.min_tokens, self.max_tokens, self.validation_fraction
        if low is not None and high is not None and low > high:
            raise InputError(f"min_tokens is {low} and max_tokens is {high}: no text fits")
        if fraction is not None and not 0 < fraction < 1:
            raise InputError(f"validation_fraction is {fraction}; it must lie between 0 and 1")
        for split, amount in self.subset.items():
            if amount <= 0 or (isinstance(amount, float) and amount > 1):
                raise InputError(
                    f"subset of {split} is {amount}; it must be a share up to 1.0 or a whole "
                    "number of texts"
                )

    @property
    def counts_tokens(self) -> bool:
        """Whether lengths decide."""
        return self.min_tokens is not None or self.max_tokens is not None

    def by_length(self, kept: Kept, tokens: NDArray[np.int32]) -> None:
        """Drop texts by their numbers of tokens, (rows,)."""
        if self.min_tokens is not None:
            fits = tokens >= self.min_tokens
            kept.keep(kept.rows[fits], "min_tokens", self.min_tokens)
            tokens = tokens[fits]
        if self.max_tokens is not None:
            kept.keep(kept.rows[tokens <= self.max_tokens], "max_tokens", self.max_tokens)

    def split_off(self, train: Kept) -> Kept:
        """Move the validation texts out of the training texts."""
        fraction = self.validation_fraction
        assert fraction is not None
        moved = choose(train.rows, round(fraction * len(train.rows)), self.seed)
        validation = Kept(f"the validation texts split off {train.name}", train.rows)
        validation.keep(moved, "validation_fraction", fraction)
        validation.dropped.clear()  # what stays in training is not dropped
        train.rows = np.setdiff1d(train.rows, moved, assume_unique=True)
        return validation

    def cut(self, split: str, kept: Kept) -> None:
        """Keep the seeded subset of a split, where one is asked for."""
        amount = self.subset.get(split)
        if amount is None:
            return
        count = round(amount * len(kept.rows)) if isinstance(amount, float) else amount
        if count > len(kept.rows):
            raise InputError(
                f"subset of {split} is {amount}, but {kept.name} has {len(kept.rows)} texts to "
                "choose from"
            )
        kept.keep(choose(kept.rows, count, self.seed), "subset", amount)

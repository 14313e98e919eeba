"""Cases of a parametrized test where a full product adds none."""

from collections.abc import Iterable, Sequence
from typing import Any


def by_turns(cases: Iterable[tuple[Any, ...]], values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each case with one of the values, which turn, and turn once more after each round."""
    size = len(values)
    return [(*case, values[(place + place // size) % size]) for place, case in enumerate(cases)]

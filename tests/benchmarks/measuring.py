"""Timing of several ways to do the same, in turn, and what a benchmark keeps of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Measurement:
    """What a benchmark holds against its bound: the median of its values.

    Args:
        values: The value of each repetition, in the bound's unit.
        details: What else was measured, as text by name.
    """

    values: Sequence[float]
    details: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_ratios(
        cls, ours: Sequence[float], theirs: Sequence[float], details: Mapping[str, str]
    ) -> Self:
        """Ours / theirs, each pair taken one directly after the other."""
        return cls([one / other for one, other in zip(ours, theirs, strict=True)], details)

    @property
    def median(self) -> float:
        """What the bound is held against."""
        return statistics.median(self.values)

    def text(self, unit: str) -> str:
        """The median with its unit, and the range where there are several repetitions."""
        digits = {"": 3, "times": 2}.get(unit, 1)
        text = f"{self.median:.{digits}f}" + (f" {unit}" if unit else "")
        if len(self.values) == 1:
            return text
        low, high = min(self.values), max(self.values)
        return f"{text} ({low:.{digits}f} to {high:.{digits}f} over {len(self.values)})"


def interleave(
    ways: Mapping[str, Callable[[], object]],
    repetitions: int,
    warm_ups: int = 1,
    calls: Mapping[str, int] | None = None,
    processor: dict[str, list[float]] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each way, timed once per round, so that what slows the machine down meets all.

    The order turns around from round to round: none always runs in another's wake.

    Args:
        ways: What to time, by name.
        repetitions: Rounds that count.
        warm_ups: Rounds before them that do not.
        calls: Calls in a row of a way that takes but milliseconds; its seconds are those of one.
        processor: Filled with the seconds of processor time in this process, all threads together,
            which other jobs on the machine hardly change.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm_ups + repetitions):
        for name in turned(list(ways), number):
            start, count = time.process_time(), (calls or {}).get(name, 1)
            taken = clock(lambda: [ways[name]() for _ in range(count)])  # noqa: B023
            if number >= warm_ups:
                seconds[name].append(taken / count)
                if processor is not None:
                    processor.setdefault(name, []).append(time.process_time() - start)
    return seconds


def turned(names: Sequence[str], number: int) -> list[str]:
    """The names, from last to first in every second round."""
    return list(reversed(names)) if number % 2 else list(names)


def clock(way: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def spread(seconds: Sequence[float]) -> str:
    """Median and range of times in words: "4.10 s (4.02 to 4.31)", or in milliseconds."""
    middle = statistics.median(seconds)
    scale, unit = (1, "s") if middle >= 0.1 else (1000, "ms")
    low, high = min(seconds), max(seconds)
    return f"{scale * middle:.2f} {unit} ({scale * low:.2f} to {scale * high:.2f})"

"""What a benchmark yields, and how two ways of doing the same are timed against each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Measurement:
    """What a benchmark holds against its bound.

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
        return cls([mine / other for mine, other in zip(ours, theirs, strict=True)], details)

    @classmethod
    def of_speedups(
        cls, ours: Sequence[float], theirs: Sequence[float], details: Mapping[str, str]
    ) -> Self:
        """How many times as fast ours is: theirs / ours, each pair taken one after the other."""
        return cls.of_ratios(theirs, ours, details)

    @property
    def median(self) -> float:
        """What the bound is held against."""
        return statistics.median(self.values)


def interleave(
    ways: Mapping[str, Callable[[], object]],
    repetitions: int,
    warm_ups: int = 1,
    processor: dict[str, list[float]] | None = None,
) -> dict[str, list[float]]:
    """Time each way once per round, so that what slows the machine down meets all of them.

    The order turns around from round to round: none always runs in another's wake.

    Args:
        ways: What to time, by name.
        repetitions: Rounds that count.
        warm_ups: Rounds before them that do not.
        processor: Filled with the seconds of processor time in this process, all threads together,
            which other jobs on the machine hardly change.

    Returns:
        Seconds of each way's repetitions.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm_ups + repetitions):
        for name in turned(list(ways), number):
            start = time.process_time()
            taken = clock(ways[name])
            if number >= warm_ups:
                seconds[name].append(taken)
                if processor is not None:
                    processor.setdefault(name, []).append(time.process_time() - start)
    return seconds


def against(
    theirs: Mapping[str, Callable[[], object]],
    ours: Callable[[], object],
    repetitions: int,
    warm_ups: int = 1,
    times: int = 1,
) -> dict[str, list[float]]:
    """Time ways of others, in turn with ours, as `interleave` does.

    Args:
        theirs: What to time, by name.
        ours: What they are compared with, by the name "ours".
        repetitions: Rounds that count.
        warm_ups: Rounds before them that do not.
        times: Calls of ours in a row, where one takes but milliseconds.

    Returns:
        Seconds of one call, for each repetition.
    """
    in_a_row = {"ours": lambda: [ours() for _ in range(times)]}
    seconds = interleave({**theirs, **in_a_row}, repetitions, warm_ups)
    return seconds | {"ours": [taken / times for taken in seconds["ours"]]}


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


def measured(measurement: Measurement, unit: str) -> str:
    """The median, and the range where there are several repetitions."""
    digits = {"": 3, "times": 2}.get(unit, 1)
    text = f"{measurement.median:.{digits}f}" + (f" {unit}" if unit else "")
    if len(measurement.values) == 1:
        return text
    low, high = min(measurement.values), max(measurement.values)
    return f"{text} ({low:.{digits}f} to {high:.{digits}f} over {len(measurement.values)})"

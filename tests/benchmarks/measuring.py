"""Timing of several ways to do the same, in turn, and what a group of benchmarks keeps of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch


@dataclass(frozen=True)
class Measured:
    """What a group measures: values of each repetition, in the bound's unit, and texts by name."""

    values: Mapping[str, Sequence[float]]
    details: Mapping[str, str]

    def __or__(self, other: Measured) -> Measured:
        return Measured({**self.values, **other.values}, {**self.details, **other.details})


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours / theirs, each pair taken one directly after the other."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def over(seconds: Mapping[str, Sequence[float]], **benchmarks: tuple[str, str]) -> Measured:
    """The ratio of the times of two ways by benchmark, and the time of each way in words."""
    values = {name: ratios(seconds[a], seconds[b]) for name, (a, b) in benchmarks.items()}
    return Measured(values, {name: spread(taken) for name, taken in seconds.items()})


def interleave(
    ways: Mapping[str, Callable[[], float]], repetitions: int, warm_ups: int = 1
) -> dict[str, list[float]]:
    """Seconds of each way, in turning order, so that what slows the machine down meets all."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm_ups + repetitions):
        for name in list(ways)[:: (-1) ** number]:
            seconds[name].append(ways[name]())
    return {name: taken[warm_ups:] for name, taken in seconds.items()}


def clock(
    way: Callable[[], object], calls: int = 1, timer: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds that one of some calls in a row takes, work that a GPU still has included."""
    _synchronize()
    start = timer()
    for _ in range(calls):
        way()
    _synchronize()
    return (timer() - start) / calls


def _synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


# Processor time: with one thread it does not depend on what else the machine does.
timed = partial(clock, timer=time.process_time)


def spread(seconds: Sequence[float]) -> str:
    """Median and range of times in words: "4.10 s (4.02 to 4.31)", or in milliseconds."""
    middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
    scale, unit = (1, "s") if middle >= 0.1 else (1000, "ms")
    return f"{scale * middle:.2f} {unit} ({scale * low:.2f} to {scale * high:.2f})"

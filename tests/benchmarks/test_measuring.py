import time
from collections.abc import Callable

import pytest

from tests.benchmarks.measuring import (
    Measurement,
    against,
    clock,
    interleave,
    measured,
    spread,
    turned,
)


def test_ratios_are_taken_pair_by_pair() -> None:
    found = Measurement.of_ratios([1.0, 6.0, 3.0], [2.0, 2.0, 4.0], {})
    assert found.values == [0.5, 3.0, 0.75]
    assert found.median == 0.75  # the ratio of the medians would be 1.5


def test_speedups_are_the_inverse() -> None:
    assert Measurement.of_speedups([2.0, 4.0], [6.0, 2.0], {}).values == [3.0, 0.5]


def test_series_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Measurement.of_ratios([1.0, 2.0], [1.0], {})


def test_ways_take_turns_in_turning_order() -> None:
    calls: list[str] = []

    def way(name: str) -> Callable[[], None]:
        return lambda: calls.append(name)

    seconds = interleave({"a": way("a"), "b": way("b")}, repetitions=3, warm_ups=1)
    assert calls == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


def test_times_come_to_the_way_that_took_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def way(takes: float) -> Callable[[], None]:
        def work() -> None:
            now[0] += takes

        return work

    assert clock(way(2.5)) == 2.5
    assert interleave({"slow": way(4.0), "quick": way(1.0)}, 2) == {
        "slow": [4.0, 4.0],
        "quick": [1.0, 1.0],
    }


def test_what_takes_milliseconds_is_called_several_times_in_a_row() -> None:
    calls: list[str] = []
    seconds = against(
        {"theirs": lambda: calls.append("theirs")},
        lambda: calls.append("ours"),
        repetitions=2,
        warm_ups=0,
        times=3,
    )
    assert calls == ["theirs", *3 * ["ours"], *3 * ["ours"], "theirs"]
    assert {name: len(values) for name, values in seconds.items()} == {"theirs": 2, "ours": 2}


def test_a_call_among_several_takes_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work() -> None:
        now[0] += 1.5

    assert against({}, work, repetitions=1, warm_ups=0, times=4) == {"ours": [1.5]}


def test_turned() -> None:
    assert turned(["a", "b", "c"], 0) == ["a", "b", "c"]
    assert turned(["a", "b", "c"], 1) == ["c", "b", "a"]


def test_spread_in_words() -> None:
    assert spread([4.0, 9.0, 5.0]) == "5.00 s (4.00 to 9.00)"
    assert spread([0.004, 0.125, 0.005]) == "5.00 ms (4.00 to 125.00)"


def test_a_number_of_times_in_words() -> None:
    assert measured(Measurement([15.0, 14.25, 17.5]), "times") == (
        "15.00 times (14.25 to 17.50 over 3)"
    )

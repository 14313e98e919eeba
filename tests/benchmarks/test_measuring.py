import time
from collections.abc import Callable

import pytest

from tests.benchmarks.measuring import Measurement, interleave, spread, turned


def test_ratios_are_taken_pair_by_pair() -> None:
    found = Measurement.of_ratios([1.0, 6.0, 3.0], [2.0, 2.0, 4.0], {})
    assert found.values == [0.5, 3.0, 0.75]
    assert found.median == 0.75  # the ratio of the medians would be 1.5
    with pytest.raises(ValueError, match="shorter"):
        Measurement.of_ratios([1.0, 2.0], [1.0], {})


def test_ways_take_turns_in_turning_order() -> None:
    calls: list[str] = []
    ways = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    seconds = interleave(ways, repetitions=3, warm_ups=1)
    assert "".join(calls) == "abbaabba"
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert turned(["a", "b", "c"], 1) == ["c", "b", "a"]


def test_a_way_s_seconds_are_those_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], dict.fromkeys(("slow", "quick"), 0)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def way(name: str, takes: float) -> Callable[[], None]:
        def work() -> None:
            now[0] += takes
            calls[name] += 1

        return work

    ways = {"slow": way("slow", 4.0), "quick": way("quick", 1.5)}
    seconds = interleave(ways, 2, warm_ups=0, calls={"quick": 3})
    assert seconds == {"slow": [4.0, 4.0], "quick": [1.5, 1.5]}
    assert calls == {"slow": 2, "quick": 6}


def test_numbers_in_words() -> None:
    assert spread([4.0, 9.0, 5.0]) == "5.00 s (4.00 to 9.00)"
    assert spread([0.004, 0.125, 0.005]) == "5.00 ms (4.00 to 125.00)"
    times = Measurement([15.0, 14.25, 17.5]).text("times")
    assert times == "15.00 times (14.25 to 17.50 over 3)"
    assert Measurement([61.26]).text("MiB") == "61.3 MiB"

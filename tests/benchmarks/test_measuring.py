from functools import partial

import pytest

from tests.benchmarks.measuring import clock, interleave, ratios, spread


def test_ratios_are_taken_pair_by_pair() -> None:
    assert ratios([1.0, 6.0, 3.0], [2.0, 2.0, 4.0]) == [0.5, 3.0, 0.75]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_ways_take_turns_in_turning_order() -> None:
    """A way's seconds are those of one of its calls in a row."""
    now, calls = [0.0], []

    def work(name: str, takes: float) -> None:
        now[0] += takes
        calls.append(name)

    timer = partial(now.__getitem__, 0)
    ways = {
        "a": partial(clock, partial(work, "a", 4.0), timer=timer),
        "b": partial(clock, partial(work, "b", 1.5), 2, timer),
    }
    assert interleave(ways, repetitions=3) == {"a": [4.0] * 3, "b": [1.5] * 3}
    assert "".join(calls) == "abb" + "bba" + "abb" + "bba"


def test_numbers_in_words() -> None:
    assert spread([4.0, 9.0, 5.0]) == "5.00 s (4.00 to 9.00)"
    assert spread([0.004, 0.125, 0.005]) == "5.00 ms (4.00 to 125.00)"

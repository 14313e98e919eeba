"""What the landed code gave is what the code gives; see the package's docstring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.guard import runs, values
from tests.guard.values import Values, differences

SHOWN = 40  # lines of a failure


@pytest.mark.slow
@pytest.mark.parametrize("part", runs.PARTS)
def test_nothing_changes(part: str, tmp_path: Path) -> None:
    expected = values.read(runs.EXPECTED / f"{part}.csv")
    said = differences(expected, runs.PARTS[part](tmp_path))
    more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    assert not said, "\n".join([f"{len(said)} of {len(expected)} keys:", *said[:SHOWN], *more])


class TestDifferences:
    OLD: Values = {  # noqa: RUF012
        "a/x": np.array([0.5, np.nan]),
        "a/n": np.arange(1000),
        "a/none": np.zeros((0, 3)),
        "t/row/F1": np.array(["0.81 ± 0.02 [0.7, 0.9]"]),
        "t/texts": np.array(["", "b, c", '"d"']),
    }

    @pytest.mark.parametrize(
        ("key", "value", "lines"),
        [
            ("a/x", [0.5 + 2e-4, np.nan], 0),
            ("a/n", [*range(998), 0, 0], 0),  # two of a thousand
            ("b/x", [1.0], 0),  # an addition
            ("a/x", [0.5 + 2e-3, np.nan], 1),
            ("a/x", [0.5, 0.0], 1),
            ("a/x", [0.5], 1),
            ("a/n", [*range(997), 0, 0, 0], 1),
            ("t/row/F1", ["0.82 ± 0.02 [0.7, 0.9]"], 1),
            ("t/row/F1", ["none"], 1),
        ],
    )
    def test_a_changed_value(self, key: str, value: object, lines: int) -> None:
        said = differences(self.OLD, self.OLD | {key: np.array(value)})
        assert [line.partition(": ")[0] for line in said] == [key] * lines

    def test_a_missing_key(self) -> None:
        found = {key: value for key, value in self.OLD.items() if key != "a/x"}
        assert differences(self.OLD, found) == ["missing: a/x"]

    def test_what_is_kept_is_read_again_and_in_order(self, tmp_path: Path) -> None:
        values.write(tmp_path / "x.csv", dict(reversed(self.OLD.items())))
        found = values.read(tmp_path / "x.csv")
        assert [*found] == sorted(self.OLD)
        for key, value in self.OLD.items():
            np.testing.assert_array_equal(found[key], value, strict=True)

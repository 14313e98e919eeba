"""What the landed code gave is what the code gives; see the package's docstring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.guard import running, runs, values
from tests.guard.values import Values, differences

RENAMED = yaml.safe_load((running.HERE / "renamed.yaml").read_text(encoding="utf-8"))
SHOWN = 40  # lines of a failure
QUICK = {"docs", "conditions", "wiegreffe_pinter_sst"}
SLOW = {part: pytest.mark.slow for part in running.PARTS if part not in QUICK}


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=SLOW.get(part, ())) for part in running.PARTS]
)
def test_nothing_changes(part: str, tmp_path: Path) -> None:
    running.prepare(tmp_path)
    expected = values.read(running.EXPECTED / f"{part}.parquet")
    trained = part.removesuffix("_kept") in runs.BASES
    tolerance = values.TRAINED if trained else values.TOLERANCE
    said = differences(expected, running.PARTS[part](tmp_path), RENAMED, tolerance)
    more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    assert not said, "\n".join([f"{len(said)} of {len(expected)} keys:", *said[:SHOWN], *more])


class TestDifferences:
    OLD: Values = {  # noqa: RUF012
        "a/x": np.array([0.5, np.nan]),
        "a/n": np.arange(1000),
        "t/row/F1": np.array(["0.81 ± 0.02 [0.7, 0.9]"]),
    }

    def changed(self, key: str, value: object, **renamed: str) -> list[str]:
        return differences(self.OLD, self.OLD | {key: np.array(value)}, renamed)

    def test_none_within_the_tolerance(self) -> None:
        assert self.changed("a/x", [0.5 + 2e-7, np.nan]) == []
        assert self.changed("a/n", [*range(998), 0, 0]) == []  # two of a thousand

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("a/x", [0.5 + 2e-5, np.nan]),
            ("a/x", [0.5, 0.0]),
            ("a/x", [0.5]),
            ("a/n", [*range(997), 0, 0, 0]),
            ("t/row/F1", ["0.82 ± 0.02 [0.7, 0.9]"]),
            ("t/row/F1", ["none"]),
        ],
    )
    def test_a_changed_value(self, key: str, value: object) -> None:
        (line,) = self.changed(key, value)
        assert line.startswith(f"{key}: ")

    def test_the_page_of_a_run_may_show_less_but_nothing_else(self) -> None:
        key = "report/text/kept/numbers"
        old = self.OLD | {key: np.array([0.1, 0.2, 0.3])}
        for new, lines in (([0.1, 0.3], 0), ([0.1, 0.25], 1), ([], 1)):
            assert len(differences(old, old | {key: np.array(new)}, {})) == lines
        assert len(differences(old, {k: v for k, v in old.items() if k != key}, {})) == 1

    def test_a_missing_and_an_additional_key(self) -> None:
        found = {"b/x" if key == "a/x" else key: value for key, value in self.OLD.items()}
        assert differences(self.OLD, found, {}) == ["missing: a/x", "additional: b/x"]
        assert differences(self.OLD, found, {"a/x": "b/x"}) == []

    def test_two_keys_under_one_new_name(self) -> None:
        said = differences(self.OLD, self.OLD, {"a/n": "a/x"})
        assert "two of one name: a/x" in said

    def test_what_is_kept_is_read_again(self, tmp_path: Path) -> None:
        values.write(tmp_path / "x.parquet", self.OLD)
        assert differences(self.OLD, values.read(tmp_path / "x.parquet"), {}) == []

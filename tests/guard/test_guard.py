"""What the landed code gave is what the code gives; see the package's docstring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.guard import running, runs, values
from tests.guard.values import Values, differences

RENAMED = yaml.safe_load((running.HERE / "renamed.yaml").read_text(encoding="utf-8"))
OF_TEST = ("/best/epoch", "/logged/test/", "/records/test/")
SHOWN = 40  # lines of a failure


def hold(part: str, found: Values, only: tuple[str, ...] = ("",)) -> None:
    """Compare values with those that are kept of a part, or with some of these."""
    expected = values.read(running.kept(part))
    expected = {key: value for key, value in expected.items() if any(o in key for o in only)}
    said = differences(expected, found, RENAMED)
    more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    assert not said, "\n".join([f"{len(said)} of {len(expected)} keys:", *said[:SHOWN], *more])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    running.prepare(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("corpus", runs.BASES)
def test_runs_and_their_pages(here: Path, corpus: str) -> None:
    hold(corpus, running.base(here, corpus) | running.variants(here, corpus))


@pytest.mark.parametrize("corpus", runs.BASES)
def test_a_checkpoint_of_the_first_format_is_tested(here: Path, corpus: str) -> None:
    folder = running.kept_base(here, corpus)
    running.call(here, runs.test(folder, runs.ALL))
    found = values.under(f"{corpus}/base", values.of_run(here / folder))
    hold(corpus, found, tuple(f"{corpus}/base{part}" for part in OF_TEST))


@pytest.mark.slow
@pytest.mark.parametrize("study", sorted(runs.STUDIES.iterdir()), ids=lambda path: path.name)
def test_pages_of_kept_studies(here: Path, study: Path) -> None:
    hold(study.name, running.report(here, study))


@pytest.mark.slow
def test_the_page_of_conditions(here: Path) -> None:
    hold("conditions", running.conditions(here))


def test_tables_of_the_docs() -> None:
    hold("docs", running.docs())


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

from dataclasses import asdict, replace
from pathlib import Path
from typing import get_type_hints

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.measuring import Measurement
from tests.benchmarks.suite import (
    GROUPS,
    PAGE,
    Benchmark,
    Result,
    circumstances,
    details,
    read_results,
    with_tables,
    write_results,
)

BENCHMARKS = [benchmark for group in GROUPS.values() for benchmark in group.benchmarks]
CIRCUMSTANCES = {
    "date": "2000-01-01",
    "machine": "abacus, 2 cores, Linux",
    "load": "0.1, 0.2, 0.3",
    "versions": "Python 3",
}
RESULT = Result([0.5, 0.25, 0.75], {"ours": "1.00 s"}, 2, **CIRCUMSTANCES)
EMPTY = "above\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nbelow\n"


class TestCommittedPage:
    page = PAGE.read_text(encoding="utf-8")

    def test_shows_the_stored_results(self) -> None:
        assert self.page == with_tables(self.page, read_results())

    def test_lists_every_benchmark_and_group(self) -> None:
        results = read_results()
        assert set(results) == {benchmark.name for benchmark in BENCHMARKS}
        assert len(results) == len(BENCHMARKS)
        assert all(benchmark.row(results[benchmark.name]) in self.page for benchmark in BENCHMARKS)
        assert all(f"* **{group}**: " in self.page for group in GROUPS)

    def test_names_no_place_of_the_machine_that_measured(self) -> None:
        stored = "".join(str(asdict(result)) for result in read_results().values())
        assert "/work" not in stored + self.page


@pytest.mark.parametrize(
    ("bounds", "end"),
    [
        ({"at_most": 0.75}, "at most 0.75 | 0.500 (0.250 to 0.750 over 3) | met |"),
        ({"at_most": 0.24}, "| **missed** |"),
        ({"at_most": 0.5}, "| met by the median; the repetitions disagree |"),
        ({"at_most": 0.49}, "| **missed** by the median; the repetitions disagree |"),
        ({"at_least": 0.25, "unit": "times"}, "0.50 times (0.25 to 0.75 over 3) | met |"),
        ({"at_least": 0.76}, "at least 0.76 | 0.500 (0.250 to 0.750 over 3) | **missed** |"),
    ],
)
def test_a_row_says_whether_the_bound_is_met(bounds: dict[str, float], end: str) -> None:
    assert Benchmark("b", "Ours", **bounds).row(RESULT).endswith(end)  # type: ignore[arg-type]


def test_a_page_has_a_section_for_what_was_measured() -> None:
    made = with_tables(EMPTY, {"help_cost": RESULT})
    for text in ("### startup", "* ours: 1.00 s", "abacus, 2 cores, Linux, 2 threads", "0.2"):
        assert text in made
    assert "### memory" not in made
    assert "| at most 100 MiB | not measured | |" in made
    assert made.startswith("above\n<!-- benchmarks: begin -->\n")
    assert made.endswith("\n<!-- benchmarks: end -->\nbelow\n")
    assert with_tables(made, {"help_cost": RESULT}) == made


def test_a_detail_of_several_results_is_said_once() -> None:
    other = replace(RESULT, details={"theirs": "2.00 s", "ours": "9.00 s"})
    assert list(details([RESULT, other]).items()) == [("ours", "1.00 s"), ("theirs", "2.00 s")]


def test_results_come_back_as_they_were_stored(tmp_path: Path) -> None:
    path, now = tmp_path / "results.json", Result([1.0], {}, 1, **circumstances())
    assert read_results(path) == {}
    write_results({"b": RESULT, "a": now}, path)
    assert read_results(path) == {"a": now, "b": RESULT}
    assert "torch" in now.versions
    assert "cores" in now.machine


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "there is no group 'speed'" in capsys.readouterr().err


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_names_what_measures_it(group: str) -> None:
    assert get_type_hints(GROUPS[group].function)["return"] == dict[str, Measurement]


def test_a_group_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    monkeypatch.setattr(write_results, "__defaults__", (path,))
    monkeypatch.setattr("tests.benchmarks.startup.help_cost.__defaults__", (1,))
    main(["--here", "startup"])
    assert read_results(path)["help_cost"].threads == 1

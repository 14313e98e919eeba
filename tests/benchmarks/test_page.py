from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.measuring import Measurement, measured
from tests.benchmarks.page import (
    PAGE,
    Result,
    circumstances,
    details,
    read_results,
    row,
    tables,
    with_tables,
    write_results,
)
from tests.benchmarks.suite import GROUPS, Benchmark

BENCHMARKS = [benchmark for group in GROUPS.values() for benchmark in group.benchmarks]
RESULT = Result(
    values=[0.5, 0.25, 0.75],
    details={"ours": "1.00 s"},
    threads=2,
    date="2000-01-01",
    machine="abacus, 2 cores, Linux",
    load="0.1, 0.2, 0.3",
    versions="Python 3",
)


class TestCommittedPage:
    def test_shows_the_stored_results(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        assert page == with_tables(page, read_results())

    def test_lists_every_benchmark_with_its_bound_and_a_number(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        results = read_results()
        assert set(results) == {benchmark.name for benchmark in BENCHMARKS}
        assert all(row(benchmark, results[benchmark.name]) in page for benchmark in BENCHMARKS)
        assert "not measured" not in page

    def test_describes_every_group(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        assert all(f"* **{group}**: " in page for group in GROUPS)

    def test_names_no_place_of_the_machine_that_measured(self) -> None:
        stored = "".join(str(asdict(result)) for result in read_results().values())
        assert "/work" not in stored + PAGE.read_text(encoding="utf-8")


class TestRow:
    def test_within_the_bound(self) -> None:
        text = row(Benchmark("b", "Ours over theirs", 0.75), RESULT)
        assert text == "| Ours over theirs | at most 0.75 | 0.500 (0.250 to 0.750 over 3) | met |"

    def test_beyond_the_bound(self) -> None:
        assert row(Benchmark("b", "Ours", 0.24), RESULT).endswith("| **missed** |")

    @pytest.mark.parametrize(("bound", "verdict"), [(0.5, "met"), (0.49, "**missed**")])
    def test_a_range_that_spans_the_bound_is_said(self, bound: float, verdict: str) -> None:
        text = row(Benchmark("b", "Ours", bound), RESULT)
        assert text.endswith(f"| {verdict} by the median; the repetitions disagree |")

    def test_a_least_value(self) -> None:
        speed = Benchmark("b", "Theirs", 0.5, "times", at_least=True)
        assert row(speed, RESULT) == (
            "| Theirs | at least 0.5 times | 0.50 times (0.25 to 0.75 over 3) | met by the median; "
            "the repetitions disagree |"
        )
        assert row(replace(speed, bound=0.25), RESULT).endswith("| met |")
        assert row(replace(speed, bound=0.76), RESULT).endswith("| **missed** |")

    def test_not_measured(self) -> None:
        text = row(Benchmark("b", "Growth", 100, "MiB"), None)
        assert text == "| Growth | at most 100 MiB | not measured | |"

    def test_a_single_value_has_no_range(self) -> None:
        assert measured(Measurement([61.26]), "MiB") == "61.3 MiB"


class TestPage:
    def test_only_what_is_between_the_markers_changes(self) -> None:
        page = "above\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nbelow\n"
        made = with_tables(page, {"help_cost": RESULT})
        assert made.startswith("above\n<!-- benchmarks: begin -->\n")
        assert made.endswith("\n<!-- benchmarks: end -->\nbelow\n")
        assert "old" not in made
        assert with_tables(made, {"help_cost": RESULT}) == made

    def test_a_section_says_what_was_measured_where(self) -> None:
        made = tables({"help_cost": RESULT})
        for text in ("### startup", "* ours: 1.00 s", "abacus, 2 cores, Linux, 2 threads", "0.2"):
            assert text in made
        assert "### memory" not in made

    def test_a_detail_of_several_results_is_said_once(self) -> None:
        other = replace(RESULT, details={"theirs": "2.00 s", "ours": "9.00 s"})
        assert list(details([RESULT, other]).items()) == [("ours", "1.00 s"), ("theirs", "2.00 s")]

    def test_results_come_back_as_they_were_stored(self, tmp_path: Path) -> None:
        path = tmp_path / "results.json"
        assert read_results(path) == {}
        write_results({"b": RESULT, "a": RESULT}, path)
        assert read_results(path) == {"a": RESULT, "b": RESULT}

    def test_circumstances_complete_a_result(self) -> None:
        result = Result([1.0], {}, 1, **circumstances())
        assert "torch" in result.versions
        assert "cores" in result.machine


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "there is no group 'speed'" in capsys.readouterr().err


def test_names_are_unique() -> None:
    names = [benchmark.name for benchmark in BENCHMARKS]
    assert len(set(names)) == len(names)

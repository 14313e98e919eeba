"""The headline of each test, on the terminal."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnlight.report.headlines import headline_table
from tests.report.fake import rows_of, write_record, write_run


def printed(folder: Path, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(headline_table(folder))
    return console.export_text()


def test_one_headline_with_its_interval_for_each_record_of_the_test_split(tmp_path: Path) -> None:
    folder = write_run(tmp_path, stages=("test", "val"), partial=True) / "records"
    tests = sorted(path.stem for path in (folder / "test").glob("*.parquet"))
    lines = printed(folder, 300).splitlines()
    assert sorted(line.split()[0] for line in lines) == tests
    assert all(line.split()[1] == "(partial)" for line in lines)
    (shown,) = (line for line in lines if line.startswith("attention_permutation"))
    values = rows_of("attention_permutation")["median_tvd"]
    assert f"moves the prediction by {np.mean(values):.2f} (total" in shown
    low, high = map(float, shown.strip()[:-1].rpartition("[")[2].split(", "))
    assert low < np.mean(values) < high


@pytest.mark.parametrize("width", [80, 44])
def test_nothing_is_cut_and_markup_is_text(tmp_path: Path, width: int) -> None:
    rows = rows_of("attention_permutation")
    rows["[bold]x[/bold]"] = rows["median_tvd"]
    write_record(tmp_path / "test" / "of_mine.parquet", rows, measures=["[bold]x[/bold]"])
    shown = printed(tmp_path, width)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split()[:2] == ["of_mine", "[bold]x[/bold]"]

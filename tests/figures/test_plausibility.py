"""The figure and the table of plausibility."""

from pathlib import Path

import numpy as np
import pytest

from attnlight.figures import describe, figure_rows, tables
from attnlight.report import draw
from tests.report.fake import rows_of, write_record

MEASURES = ("auprc", "token_f1", "iou_f1")


def test_a_point_for_each_method_and_a_line_for_chance() -> None:
    rows = rows_of("plausibility", n=80)
    rows["auprc_attention"][:20] = np.nan
    figure = draw("plausibility", rows)
    assert figure is not None
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        "gradient × input",  # noqa: RUF001
        "attention",
    ]
    for axes, measure in zip(figure.axes, MEASURES, strict=True):
        *points, chance = axes.lines
        pooled = [line for line in points if line.get_marker() == "|"]
        assert len(points) == 3 * len(pooled)  # two predicted classes
        drawn = [float(np.ravel(point.get_xdata())[0]) for point in pooled]
        columns = [f"{measure}_{name}" for name in ("input_gradient", "attention")]
        assert drawn == pytest.approx([float(np.nanmean(rows[name])) for name in columns])
        assert np.ravel(chance.get_xdata())[0] == pytest.approx(rows[f"chance_{measure}"].mean())


def test_people_stand_between_methods_and_chance() -> None:
    rows = rows_of("plausibility", n=50)
    for measure in MEASURES:
        rows[f"human_{measure}"] = np.where(np.arange(50) < 30, 0.5, np.nan)
    (table,) = tables("plausibility", rows)
    assert [row[0] for row in table.rows] == [
        "attention",
        "gradient × input",  # noqa: RUF001
        "people",
        "chance",
    ]
    assert table.rows[2] == ["people", *["0.500 [0.500, 0.500]"] * 3, "30"]
    assert table.rows[0][1].startswith(f"{rows['auprc_attention'].mean():.3f} [")


def test_nothing_is_drawn_where_nothing_is_marked() -> None:
    rows = rows_of("plausibility", n=3)
    rows["chance_auprc"][:] = np.nan
    assert draw("plausibility", rows) is None


def test_columns_of_any_method_are_read_and_described(tmp_path: Path) -> None:
    rows = rows_of("plausibility") | {"iou_f1_my_own": np.ones(60), "other": np.ones(60)}
    path = write_record(tmp_path / "plausibility.parquet", rows)
    description = describe("plausibility")
    read, _ = figure_rows(path, description.columns)
    assert "iou_f1_my_own" in read
    assert "other" not in read
    assert description.words("iou_f1_my_own").startswith("F1 of the spans")
    assert description.words("chance_iou_f1").startswith("IoU F1 of as many random items")
    assert description.words("other") == ""

"""The figure and the tables of faithfulness."""

import numpy as np
import pytest

from attnlight.figures import describe, tables
from attnlight.figures.methods import recorded_methods
from attnlight.report import draw
from tests.report.fake import rows_of


def test_random_is_drawn_across_all_methods() -> None:
    rows = rows_of("faithfulness", n=200)
    figure = draw("faithfulness", rows)
    assert figure is not None
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == list(recorded_methods(rows, "comprehensiveness").values())
    assert names[-1] == "random"
    for axes, measure in zip(figure.axes, ("comprehensiveness", "sufficiency"), strict=True):
        (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert dashed.get_xdata()[0] == pytest.approx(rows[f"{measure}_random"].mean(), rel=1e-6)
        assert "is better" in axes.get_xlabel()


def test_tables_have_means_and_excess_over_random() -> None:
    rows = rows_of("faithfulness", n=300)
    rows["comprehensiveness_attention"][:40] = np.nan
    first, second = tables("faithfulness", rows)
    assert first.head[1:4] == ["comprehensiveness ↑", "excess", "sufficiency ↓"]
    assert second.head[3] == "sufficiency ↑"
    for table, prefix in ((first, ""), (second, "normalized_")):
        assert [row[0] for row in table.rows][-1] == "random"
        cells = table.rows[0]
        for cell, name in zip(
            cells[1:5],
            (
                f"{prefix}comprehensiveness",
                f"excess_{prefix}comprehensiveness",
                f"{prefix}sufficiency",
                f"excess_{prefix}sufficiency",
            ),
            strict=True,
        ):
            assert cell.startswith(f"{np.nanmean(rows[f'{name}_attention']):.3f} [")
        assert "higher is better" in table.note
    assert first.rows[0][-1] == "260"
    assert first.rows[-1][2] == first.rows[-1][4] == ""


def test_measures_say_direction_and_range() -> None:
    words = describe("faithfulness").words
    assert "-1 to 1, lower is better" in words("sufficiency_occlusion").replace("\n", " ")
    assert "0 to 1, higher is better" in words("normalized_sufficiency_random")


def test_labels_of_the_user_are_shown() -> None:
    rows = rows_of("faithfulness")
    for measure in ("comprehensiveness", "sufficiency"):
        for name in (f"{measure}_attention", f"excess_{measure}_attention"):
            rows[name.replace("attention", "my_shap")] = rows.pop(name)
        rows[f"{measure}_my_shap_at"] = np.zeros((60, 5))
    del rows["normalized_sufficiency_random"]
    (table,) = tables("faithfulness", rows)
    assert "my shap" in [row[0] for row in table.rows]
    assert "my shap at" not in [row[0] for row in table.rows]

"""The figure and the table of attention on evidence."""

import numpy as np
import pytest

from attnlight.figures import tables
from attnlight.report import draw
from tests.report.fake import rows_of


def test_chance_is_drawn_for_all_proven_and_not_proven() -> None:
    rows = rows_of("evidence_mass", n=200)
    figure = draw("evidence_mass", rows)
    assert figure is not None
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["not proven", "proven", "all"]
    subsets = [rows["proven"] == 0, rows["proven"] == 1, np.ones(200, dtype=bool)]
    for axes, chance in zip(figure.axes, ("chance", "chance_auprc"), strict=True):
        drawn = [
            segment[0][0]
            for collection in axes.collections
            for segment in getattr(collection, "get_segments", list)()
        ]
        assert drawn == pytest.approx([rows[chance][members].mean() for members in subsets])


def test_without_swaps_there_is_one_row() -> None:
    rows = rows_of("evidence_mass")
    del rows["proven"]
    figure = draw("evidence_mass", rows)
    assert figure is not None
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["all"]
    (table,) = tables("evidence_mass", rows)
    assert [row[0] for row in table.rows] == ["all"]
    assert "Proven" not in table.note


def test_nothing_is_drawn_where_no_text_has_evidence() -> None:
    rows = rows_of("evidence_mass", n=3)
    rows["mass"][:] = np.nan
    assert draw("evidence_mass", rows) is None


def test_table_has_means_of_each_subset_and_counts_what_is_left_out() -> None:
    rows = rows_of("evidence_mass", n=300)
    rows["mass"][:40] = np.nan
    (table,) = tables("evidence_mass", rows)
    proven = rows["proven"] == 1
    for row, members in zip(
        table.rows, (np.ones(300, dtype=bool), proven, rows["proven"] == 0), strict=True
    ):
        mass = rows["mass"][members]
        assert row[1].startswith(f"{np.nanmean(mass):.3f} [")
        assert row[3].startswith(f"{100 * rows['top_in_evidence'][members].mean():.1f} [")
        assert row[-1] == f"{(~np.isnan(mass)).sum():,}"
    assert "left out: 40 of 300 instances." in table.note
    assert f"undefined for {np.isnan(rows['proven']).sum():,} instances" in table.note

"""The figure and the table of states and tokens."""

import numpy as np
import pytest

from attnlight.figures import tables
from attnlight.report import draw
from tests.report.fake import rows_of


def test_lines_are_means_of_texts_of_similar_length() -> None:
    rows = rows_of("state_token_agreement", n=300)
    rows["items"] = np.repeat([3, 10, 20], 100)
    rows["hidden_token_attribution"][:7] = np.nan
    figure = draw("state_token_agreement", rows)
    assert figure is not None
    share, chance = figure.axes[1].get_lines()
    assert share.get_xdata() == pytest.approx([3, 10, 20])
    for line, name in ((share, "hidden_token_attribution"), (chance, "chance")):
        values = np.where(np.isnan(rows["hidden_token_attribution"]), np.nan, rows[name])
        assert line.get_ydata() == pytest.approx(np.nanmean(values.reshape(3, 100), axis=1))


def test_nothing_defined_is_drawn_empty() -> None:
    rows = rows_of("state_token_agreement", n=4)
    for name in ("hidden_token_attribution", "tau_erasure_deletion"):
        rows[name][:] = np.nan
    figure = draw("state_token_agreement", rows)
    assert figure is not None
    assert not figure.axes[1].get_lines()


def test_table_has_means_by_predicted_class() -> None:
    rows = rows_of("state_token_agreement", n=100)
    (table,) = tables("state_token_agreement", rows, ["no", "yes"])
    assert [row[0] for row in table.rows] == ["all", "no", "yes"]
    for row, members in zip(
        table.rows,
        (np.full(100, True), rows["prediction"] == 0, rows["prediction"] == 1),
        strict=True,
    ):
        assert row[1].startswith(f"{rows['tau_erasure_deletion'][members].mean():.3f} [")
        assert row[3].startswith(f"{100 * rows['own_token_largest'][members].mean():.1f} [")
        assert row[-1] == str(members.sum())

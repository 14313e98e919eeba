"""The figure of the distance from a base."""

import numpy as np
import pytest

from attnlight.report import draw
from tests.report.fake import rows_of


def test_every_text_is_a_point_and_the_mean_is_marked() -> None:
    rows = rows_of("base_divergence", n=200)
    rows["attention_js"][::50] = np.nan
    figure = draw("base_divergence", rows)
    assert figure is not None
    _, scatter = figure.axes
    points = np.concatenate([np.asarray(c.get_offsets()) for c in scatter.collections])
    kept = ~np.isnan(rows["attention_js"])
    drawn = np.stack([rows["prediction_tvd"][kept], rows["attention_js"][kept]], axis=1)
    assert sorted(map(tuple, points)) == sorted(map(tuple, drawn))
    (cross,) = (line for line in scatter.lines if line.get_marker() == "P")
    assert cross.get_xydata()[0] == pytest.approx(drawn.mean(axis=0))


def test_bins_are_those_of_the_base() -> None:
    rows = rows_of("base_divergence", n=40)
    rows["base_max_attention"] = np.full(40, 0.9)
    figure = draw("base_divergence", rows)
    assert figure is not None
    counts = [text.get_text() for text in figure.axes[0].texts]
    assert sum(int(text.removeprefix("n = ")) for text in counts[-2:]) == 40
    assert figure.axes[0].get_ylabel() == "Maximum attention weight of the base"


def test_nothing_is_drawn_where_nothing_is_defined() -> None:
    rows = rows_of("base_divergence", n=3)
    rows["attention_js"][:] = np.nan
    assert draw("base_divergence", rows) is None

"""The picture of Jain & Wallace: bins, classes, counts and densities."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from attnlight.figures.style import PALETTE
from attnlight.figures.violins import density, violins_by_max_attention
from tests.report.fake import Rows, rows_of

LIMITS = (-0.05, 1.05)


def drawn(rows: Rows, classes: list[str] | None = None) -> tuple[Figure, Axes]:
    figure = violins_by_max_attention(rows, "median_tvd", "change", LIMITS, classes)
    (axes,) = figure.axes
    return figure, axes


def counts(axes: Axes) -> list[str]:
    """The numbers at the right, from top to bottom."""
    found = [(float(text.get_position()[1]), text.get_text()) for text in axes.texts]
    return [text for _, text in sorted(found, reverse=True)]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def points(axes: Axes) -> list[NDArray[np.float64]]:
    found = [np.asarray(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    return [values for values in found if len(values)]


def some(attention: list[float], value: list[float], predicted: list[int]) -> Rows:
    return {
        "max_attention": np.array(attention, dtype=np.float32),
        "median_tvd": np.array(value, dtype=np.float32),
        "prediction": np.array(predicted),
    }


@pytest.mark.parametrize("n", [5, 40, 3_000])
def test_density_equals_scipy(n: int) -> None:
    values = np.random.default_rng(n).beta(2, 8, n)
    grid, height = density(values, floor=1e-6)
    assert (grid[0], grid[-1]) == (values.min(), values.max())
    expected = stats.gaussian_kde(values, bw_method="scott")(grid)
    np.testing.assert_allclose(height, expected, atol=0.01 * expected.max())


def test_density_of_equal_values_is_a_narrow_peak() -> None:
    grid, height = density(np.full(9, 0.25), floor=0.002)
    assert grid[height.argmax()] == pytest.approx(0.25)
    assert grid[-1] - grid[0] < 0.01
    assert np.isfinite(height).all()


class TestViolins:
    def test_counts_rows_by_bin_and_class(self) -> None:
        rows = rows_of("attention_permutation", n=200)
        rows["median_tvd"][::9] = np.nan
        _, axes = drawn(rows)
        expected: Counter[tuple[int, int]] = Counter()
        columns = (rows[name] for name in ("median_tvd", "max_attention", "prediction"))
        for value, attention, predicted in zip(*columns, strict=True):
            if not np.isnan(value):
                expected[int(attention * 4), int(predicted)] += 1
        from_top = [expected[b, c] for b in (3, 2, 1, 0) for c in (0, 1)]
        assert counts(axes) == [f"n = {n}" for n in from_top]
        assert len(axes.collections) == 8

    def test_bins_are_closed_on_the_left_and_the_last_on_both_sides(self) -> None:
        attention = [0.0, 0.25, 0.5, 0.7499, 0.75, 1.0, 1.0000001]
        rows = some(attention, [0.1] * 7, [0] * 7)
        _, axes = drawn(rows)
        assert counts(axes) == ["n = 3", "n = 2", "n = 1", "n = 1"]
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == ["[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]"]

    def test_few_values_are_points_and_none_are_nothing(self) -> None:
        rows = some([0.1] * 9, np.linspace(0.1, 0.9, 9).tolist(), [0] * 4 + [1] * 5)
        _, axes = drawn(rows)
        (few,) = points(axes)
        np.testing.assert_allclose(few, [0.1, 0.2, 0.3, 0.4])
        assert len(axes.collections) == 1
        texts = counts(axes)
        assert texts == ["n = 0"] * 6 + ["n = 4", "n = 5"]

    def test_quartiles(self) -> None:
        values = np.random.default_rng(0).random(50).tolist()
        _, axes = drawn(some([0.9] * 50, values, [0] * 50))
        vertical = [np.asarray(line.get_xdata()) for line in axes.lines]
        at = sorted(float(x[0]) for x in vertical if len(x) == 2 and x[0] == x[1])
        oracle = stats.scoreatpercentile(np.array(values, dtype=np.float32), [25, 50, 75])
        np.testing.assert_allclose(at, oracle, rtol=1e-6)

    def test_two_classes_share_a_base_line(self) -> None:
        rows = some([0.1] * 40, np.random.default_rng(0).random(40).tolist(), [0, 1] * 20)
        figure, axes = drawn(rows, ["negative", "positive"])
        upper, lower = (part.get_paths()[0].get_extents() for part in axes.collections)
        assert upper.y0 == pytest.approx(0) == lower.y1
        assert legend(figure) == ["predicted negative", "predicted positive"]

    def test_up_to_six_classes_stand_side_by_side_and_more_are_pooled(self) -> None:
        figure, axes = drawn(rows_of("attention_permutation", n=900, classes=6))
        boxes = [part.get_paths()[0].get_extents() for part in axes.collections]
        spans = sorted((box.y0, box.y1) for box in boxes)
        assert len(spans) == 24
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        assert legend(figure) == [f"predicted class {c}" for c in range(6)]
        figure, axes = drawn(rows_of("attention_permutation", n=200, classes=7))
        assert legend(figure) == ["all 7 predicted classes"]
        assert sum(int(text.removeprefix("n = ")) for text in counts(axes)) == 200

    def test_a_class_keeps_its_colour_when_others_are_missing(self) -> None:
        _, axes = drawn(some([0.1] * 9, np.linspace(0, 1, 9).tolist(), [1] * 9))
        color = np.asarray(axes.collections[0].get_facecolor())[0]
        assert to_hex(tuple(color)) == PALETTE[1]
        assert (axes.get_xlim(), axes.get_xlabel()) == (LIMITS, "change")
        _, axes = drawn(some([0.1], [np.nan], [0]))
        assert counts(axes) == ["n = 0"] * 4

"""The scatter plot's sample, and tables against plain counts."""

import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from attnlight.figures import tables
from attnlight.figures.single_erasure import sample
from attnlight.report import draw
from tests.figures.erased import SCORES
from tests.report.fake import rows_of


class TestSample:
    def test_takes_ten_of_each_bin_without_replacement(self) -> None:
        x = np.random.default_rng(0).beta(1, 6, 30_000)
        found = sample(x)
        assert len(set(found.tolist())) == len(found)
        edges = np.linspace(x.min(), x.max(), 101)
        held, drawn = (np.histogram(values, edges)[0] for values in (x, x[found]))
        np.testing.assert_array_equal(drawn, np.minimum(held, 10))
        np.testing.assert_array_equal(found, sample(x))

    def test_takes_all_of_few_and_none_of_none(self) -> None:
        assert sample(np.array([0.3, 0.3, 0.9])).tolist() == [0, 1, 2]
        assert len(sample(np.full(50, 0.25))) == 10
        assert len(sample(np.empty(0))) == 0

    def test_is_not_the_first_ones(self) -> None:
        chosen = sample(np.full(10_000, 0.5))
        assert chosen.min() > 10
        assert chosen.max() > 5_000


def test_a_figure_of_many_rows_stays_small() -> None:
    figure = draw("single_erasure", rows_of("single_erasure", n=60_000))
    assert figure is not None
    scatter = figure.axes[0]
    points = sum(len(np.asarray(line.get_xdata())) for line in scatter.lines[:2])
    assert 900 < points <= 1_000
    rows = rows_of("single_erasure", n=60_000)
    delta = rows["delta_js_drawn_attention"]
    below = 100 * np.mean(delta[~np.isnan(delta)] < 0)
    (text,) = (t.get_text() for t in scatter.texts)
    assert text == f"{below:.1f} % below 0\nn = {(~np.isnan(delta)).sum():,}"
    bars = sum(patch.get_height() for patch in figure.axes[1].patches)
    tops = max(patch.get_y() + patch.get_height() for patch in figure.axes[1].patches)
    assert bars == (delta < 0).sum() > tops


def test_counts_start_at_zero_also_where_no_text_is_below() -> None:
    rows = rows_of("single_erasure", n=40)
    for score in SCORES:
        rows[f"delta_js_drawn_{score}"] = np.abs(rows[f"delta_js_drawn_{score}"])
    figure = draw("single_erasure", rows)
    assert figure is not None
    for scatter, bars in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert bars.get_ylim()[0] == 0
        highest = max(np.nanmax(np.asarray(line.get_ydata())) for line in scatter.lines[:2])
        assert scatter.get_ylim()[1] > 1.4 * highest


@pytest.mark.parametrize("n", [8, 9])
def test_rows_of_one_item_are_not_drawn(n: int) -> None:
    rows = {name: values[n - 1 : n] for name, values in rows_of("single_erasure", n=20).items()}
    figure = draw("single_erasure", rows)
    assert figure is not None
    assert figure.axes[0].texts[0].get_text().endswith(f"n = {9 - n}")


def numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d+", cell)]


def test_contingency_equals_plain_counts() -> None:
    rows = rows_of("single_erasure", n=700)
    grid = tables("single_erasure", rows)[0]
    lines = {line[0]: line for line in grid.rows}
    assert len(lines) == 9
    top = rows["flip_top_gradient"]
    for words, kind in (("one drawn", "drawn"), ("released draw", "released")):
        other = rows[f"flip_other_{kind}_gradient"]
        pairs = zip(top[~np.isnan(top)], other[~np.isnan(other)], strict=True)
        found = Counter((float(a), float(b)) for a, b in pairs)
        total = sum(found.values())
        line = lines[f"gradient, {words}"]
        for cell, key in zip(line[1:5], ((1, 1), (1, 0), (0, 1), (0, 0)), strict=True):
            mean, low, high = numbers(cell)
            assert mean == pytest.approx(100 * found[key] / total, abs=0.051)
            assert low <= mean <= high
        assert line[5] == f"{total:,}"
    expected = rows["flip_other_expected_gradient"]
    both = 100 * np.nanmean(top * expected)
    assert numbers(lines["gradient, mean over others"][1])[0] == pytest.approx(both, abs=0.051)


def test_p_values_are_mcnemars_after_holm() -> None:
    random = np.random.default_rng(5)
    rows = rows_of("single_erasure", n=90)
    for score, share in zip(SCORES, (0.06, 0.08, 0.12), strict=True):
        rows[f"flip_top_{score}"] = (random.random(90) < share).astype(np.float32)
    grid = tables("single_erasure", rows)[0]
    raw = {}
    for score in SCORES:
        top, other = rows[f"flip_top_{score}"] == 1, rows[f"flip_other_drawn_{score}"]
        one, two = int((top & (other == 0)).sum()), int((~top & (other == 1)).sum())
        raw[score] = stats.binomtest(one, one + two).pvalue
    ordered = sorted(raw, key=raw.__getitem__)
    adjusted, before = {}, 0.0
    for place, score in enumerate(ordered):
        before = max(before, min(1.0, (3 - place) * raw[score]))
        adjusted[score] = before
    shown = [line[-1] for line in grid.rows if line[0].endswith("one drawn")]
    assert shown == [f"{adjusted[score]:.3f}" for score in SCORES]


def test_movement_and_first_items() -> None:
    rows = rows_of("single_erasure", n=400)
    _, movement, first = tables("single_erasure", rows)
    delta = rows["delta_js_drawn_attention"]
    line = movement.rows[0]
    assert numbers(line[2])[0] == pytest.approx(
        np.nanmean(rows["delta_js_expected_attention"]), abs=6e-4
    )
    below = 100 * np.mean(delta[~np.isnan(delta)] < 0)
    assert numbers(line[4])[0] == pytest.approx(below, abs=0.051)
    gradient, attention = (rows[f"flip_top_{s}"] for s in ("gradient", "attention"))
    line = first.rows[0]
    assert line[0] == "gradient : attention"
    assert numbers(line[3])[0] == pytest.approx(100 * np.nanmean(gradient - attention), abs=0.051)


def test_without_the_released_draw() -> None:
    rows = {n: v for n, v in rows_of("single_erasure").items() if "released" not in n}
    assert draw("single_erasure", rows) is not None
    grid = tables("single_erasure", rows)[0]
    assert len(grid.rows) == 6
    assert "released" not in grid.to_markdown()

"""Figures, tables and columns of the tests that erase items, against plain loops."""

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attnlight.figures import draw, tables
from attnlight.figures.erasure import (
    ALL,
    ORDERS,
    WORDS,
    NeverFlipPolicy,
    flipped_by_all,
    recorded_rankings,
    removed,
    sooner,
    steps,
)
from attnlight.figures.single_erasure import sample
from attnlight.figures.tables import number
from attnlight.statistics import holm
from tests.figures.erased import SCORES, decision_flip
from tests.report.fake import Rows, drawn, rows_of


def numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d+", cell)]


def test_a_sample_has_ten_of_each_bin_without_replacement() -> None:
    x = np.random.default_rng(0).beta(1, 6, 30_000)
    found = sample(x)
    assert len(set(found.tolist())) == len(found)
    edges = np.linspace(x.min(), x.max(), 101)
    held, taken = (np.histogram(values, edges)[0] for values in (x, x[found]))
    np.testing.assert_array_equal(taken, np.minimum(held, 10))
    np.testing.assert_array_equal(found, sample(x))


def test_a_sample_has_all_of_few_and_of_equal_values_not_the_first_ones() -> None:
    assert sample(np.array([0.3, 0.3, 0.9])).tolist() == [0, 1, 2]
    assert len(sample(np.empty(0))) == 0
    chosen = sample(np.full(10_000, 0.5))
    assert (len(chosen), chosen.min() > 10, chosen.max() > 5_000) == (10, True, True)


class TestSingleErasure:
    def test_a_figure_of_many_rows_stays_small(self) -> None:
        rows = rows_of("single_erasure", n=60_000)
        scatter, histogram, *_ = drawn("single_erasure", rows).axes
        points = sum(len(np.asarray(line.get_xdata())) for line in scatter.lines[:2])
        assert 900 < points <= 1_000
        delta = rows["delta_js_drawn_attention"]
        below = 100 * np.mean(delta[~np.isnan(delta)] < 0)
        (text,) = (t.get_text() for t in scatter.texts)
        assert text == f"{below:.1f} % below 0\nn = {(~np.isnan(delta)).sum():,}"
        bars = sum(patch.get_height() for patch in histogram.patches)
        tops = max(patch.get_y() + patch.get_height() for patch in histogram.patches)
        assert bars == (delta < 0).sum() > tops

    def test_rows_of_one_item_are_not_drawn(self) -> None:
        rows = {name: values[7:8] for name, values in rows_of("single_erasure", 20).items()}
        (text, *_) = drawn("single_erasure", rows).axes[0].texts
        assert text.get_text().endswith("n = 1")
        rows = {name: values[8:9] for name, values in rows_of("single_erasure", 20).items()}
        assert draw("single_erasure", rows) is None

    def test_p_values_are_mcnemars_after_holm(self) -> None:
        random = np.random.default_rng(5)
        rows, raw = rows_of("single_erasure", n=90), []
        for score, share in zip(SCORES, (0.06, 0.08, 0.12), strict=True):
            rows[f"flip_top_{score}"] = (random.random(90) < share).astype(np.float32)
            top, other = rows[f"flip_top_{score}"] == 1, rows[f"flip_other_drawn_{score}"]
            one, two = int((top & (other == 0)).sum()), int((~top & (other == 1)).sum())
            raw.append(stats.binomtest(one, one + two).pvalue)
        (grid, *_) = tables("single_erasure", rows)
        shown = [line[-1] for line in grid.rows if line[0].endswith("one drawn")]
        assert shown == [f"{p:.3f}" for p in holm(raw)]

    def test_without_the_released_draw(self) -> None:
        rows = {n: v for n, v in rows_of("single_erasure").items() if "released" not in n}
        assert drawn("single_erasure", rows)
        (grid, *_) = tables("single_erasure", rows)
        assert len(grid.rows) == 6
        assert "released" not in grid.to_markdown()


def listwise(rows: Rows, row: int) -> bool:
    return rows["length"][row] > 1 and all(rows[f"never_flips_{n}"][row] == 0 for n in ALL)


class TestDecisionFlip:
    def test_the_figure_says_how_many_texts_it_shows(self) -> None:
        rows = rows_of("decision_flip", n=500)
        axes = drawn("decision_flip", rows).axes[0]
        kept, several = flipped_by_all(rows), int((rows["length"] > 1).sum())
        share = f"{100 * kept.sum() / several:.1f} %"
        title = f"flipped by all: {kept.sum()} of {several} texts ({share})"
        assert axes.get_title(loc="left") == title
        labels = [text.get_text() for text in axes.get_yticklabels()]
        assert labels == [WORDS[name] for name in reversed(ALL)]
        firsts = [np.quantile(rows[f"removed_fraction_{n}"][kept], 0.25) for n in ALL]
        assert sorted(bar.get_x() for bar in axes.patches) == pytest.approx(sorted(firsts))

    def test_an_unknown_minimum_is_left_out(self) -> None:
        rows = rows_of("decision_flip", n=200)
        rows |= decision_flip(np.random.default_rng(0), 200, affine=False)
        assert recorded_rankings(rows) == list(ORDERS)
        assert flipped_by_all(rows).sum() > 50
        complete = rows_of("decision_flip", n=200)
        assert (
            len(drawn("decision_flip", rows).axes) == len(drawn("decision_flip", complete).axes) - 1
        )
        grids = tables("decision_flip", rows)
        assert len(grids) == 3
        assert not any("minimum" in line[0] for grid in grids for line in grid.rows)
        rows["never_flips_gradient"][:] = 1  # no text is one that all flip
        rows["removed_count_gradient"][:] = rows["removed_fraction_gradient"][:] = np.nan
        assert drawn("decision_flip", rows)
        assert tables("decision_flip", rows)[0].rows[0][1] == number(np.nan)

    def test_which_ranking_flips_sooner(self) -> None:
        """Never is later, and texts that neither flips are left out."""
        rows, found = rows_of("decision_flip", n=400), [0, 0, 0]
        for row in range(400):
            a, b = (rows[f"removed_count_{name}"][row] for name in ("gradient", "attention"))
            a, b = (np.inf if np.isnan(x) else x for x in (a, b))
            if rows["length"][row] > 1 and not (a == b == np.inf):
                found[[a < b, a == b, a > b].index(True)] += 1
        grid = tables("decision_flip", rows)[1]
        assert len(grid.rows) == 6
        line = next(line for line in grid.rows if line[0] == "gradient : attention")
        for cell, count in zip(line[1:4], found, strict=True):
            assert numbers(cell)[0] == pytest.approx(100 * count / sum(found), abs=0.051)
        ratio, low, high = numbers(line[5])
        assert ratio == pytest.approx(found[0] / found[2], abs=5e-4)
        assert low < ratio < high
        assert line[4] == f"{sum(found):,}"

    def test_wilcoxon_is_over_texts_that_all_flip(self) -> None:
        rows = rows_of("decision_flip", n=120)
        kept, raw = flipped_by_all(rows), []
        names = {WORDS[name]: name for name in ORDERS}
        grid = tables("decision_flip", rows)[1]
        for line in grid.rows:
            pair = (names[word] for word in line[0].split(" : "))
            a, b = (rows[f"removed_count_{name}"][kept] for name in pair)
            raw.append(stats.wilcoxon((a - b)[a != b]).pvalue)
        smallest = int(np.argmin(raw))
        assert grid.rows[smallest][6] == f"{holm(raw)[smallest]:.3f}"

    def test_excess_has_quantiles_and_classes_their_rows(self) -> None:
        rows = rows_of("decision_flip", n=400)
        _, _, never, excess = tables("decision_flip", rows, ["no", "yes"])
        assert [line[0] for line in never.rows] == ["all", "no", "yes"]
        kept = flipped_by_all(rows)
        beyond = (rows["removed_count_gradient"] - rows["minimal_count"])[kept]
        assert numbers(excess.rows[1][2]) == pytest.approx([np.median(beyond)])


@pytest.mark.parametrize("never", ["listwise", "column", "one"])
def test_what_becomes_of_texts_that_never_flip(never: NeverFlipPolicy) -> None:
    rows = rows_of("decision_flip", n=300)
    whole = [listwise(rows, row) for row in range(300)]
    assert flipped_by_all(rows).tolist() == whole
    assert 100 < sum(whole) < 250
    for name in ALL:
        found = removed(rows, "removed_mass", name, never)
        for row in range(300):
            own = float(rows[f"removed_mass_{name}"][row])
            if rows["length"][row] == 1 or (never == "listwise" and not whole[row]):
                own = math.nan
            elif never == "one" and rows[f"never_flips_{name}"][row] == 1:
                own = 1.0
            np.testing.assert_equal(found[row], own)


def counts(a: list[float], b: list[float], length: int = 9) -> Rows:
    """Counts of two rankings, -1 where they never flip and -2 where they are undefined."""

    def column(values: NDArray[np.float64]) -> Rows:
        return {
            "removed_count": np.where(values < 0, np.nan, values),
            "never_flips": np.where(values == -2, np.nan, values == -1),
        }

    pair = {"gradient": column(np.array(a)), "attention": column(np.array(b))}
    rows = {f"{m}_{name}": v for name, columns in pair.items() for m, v in columns.items()}
    return rows | {"length": np.full(len(a), length)}


def test_who_is_sooner_counts_never_as_later() -> None:
    rows = counts([1, 2, 3, -1, 4, -1, -2, 2], [2, 2, 1, 5, -1, -1, 3, -2])
    found = sooner(rows, "gradient", "attention")
    nothing = [math.nan] * 3
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], nothing, nothing, nothing]
    np.testing.assert_equal(found, np.array(expected, dtype=float))
    np.testing.assert_equal(steps(rows, "gradient")[[3, 6]], [math.inf, math.nan])
    never = removed(rows, "never_flips", "attention", "column")
    np.testing.assert_equal(never[[4, 7]], [1.0, math.nan])
    of_one_item = counts([1.0, -1.0], [1.0, -1.0], length=1)
    assert np.isnan(sooner(of_one_item, "gradient", "attention")).all()
    assert np.isnan(removed(of_one_item, "never_flips", "gradient", "column")).all()

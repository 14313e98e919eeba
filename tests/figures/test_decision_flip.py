"""Boxes and tables against plain counts."""

import re

import numpy as np
import pytest
from scipy import stats

from attnlight.figures import tables
from attnlight.figures.erasure import ALL, WORDS, flipped_by_all
from attnlight.figures.tables import number
from attnlight.report import draw
from tests.figures import erased
from tests.report.fake import Rows, rows_of


def numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d+", cell)]


def test_the_figure_says_how_many_texts_it_shows() -> None:
    rows = rows_of("decision_flip", n=500)
    figure = draw("decision_flip", rows)
    assert figure is not None
    several = int((rows["length"] > 1).sum())
    kept = int(flipped_by_all(rows).sum())
    title = figure.axes[0].get_title(loc="left")
    assert title == f"flipped by all: {kept} of {several} texts ({100 * kept / several:.1f} %)"
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == [WORDS[name] for name in reversed(ALL)]
    medians = sorted(float(bar.get_x()) for bar in figure.axes[0].patches)
    firsts = [np.quantile(rows[f"removed_fraction_{n}"][flipped_by_all(rows)], 0.25) for n in ALL]
    assert medians == pytest.approx(sorted(firsts))


def test_an_unknown_minimum_is_left_out() -> None:
    rows = rows_of("decision_flip", n=80)
    rows |= erased.decision_flip(np.random.default_rng(0), 80, affine=False)
    figure = draw("decision_flip", rows)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[2].texts] == ["minimum unknown"]
    grids = tables("decision_flip", rows)
    assert len(grids) == 3
    assert not any("minimum" in line[0] for grid in grids for line in grid.rows)


def test_no_text_that_all_flip() -> None:
    rows = rows_of("decision_flip", n=30)
    rows["never_flips_gradient"][:] = 1
    rows["removed_count_gradient"][:] = rows["removed_fraction_gradient"][:] = np.nan
    assert draw("decision_flip", rows) is not None
    assert tables("decision_flip", rows)[0].rows[0][1] == number(np.nan)


def test_what_is_removed() -> None:
    rows = rows_of("decision_flip", n=400)
    grid = tables("decision_flip", rows)[0]
    several = rows["length"] > 1
    line = grid.rows[0]
    assert line[0] == "attention"
    stuck = rows["never_flips_attention"] == 1
    kept = flipped_by_all(rows)
    values = rows["removed_fraction_attention"][kept]
    assert numbers(line[1])[0] == pytest.approx(100 * values.mean(), abs=0.051)
    assert line[5] == f"{kept.sum():,}"
    last = 100 * rows["needs_all_attention"][kept].mean()
    assert numbers(line[3])[0] == pytest.approx(last, abs=0.051)
    assert numbers(line[4])[0] == pytest.approx(100 * stuck[several].mean(), abs=0.051)


def counted(rows: Rows, first: str, second: str) -> tuple[int, int, int]:
    """Texts that the first flips sooner, as soon, later; never is later, neither left out."""
    sooner = equal = later = 0
    for row in range(len(rows["length"])):
        a, b = (rows[f"removed_count_{name}"][row] for name in (first, second))
        a, b = (np.inf if np.isnan(x) else x for x in (a, b))
        if rows["length"][row] > 1 and not (a == b == np.inf):
            sooner, equal, later = sooner + (a < b), equal + (a == b), later + (a > b)
    return sooner, equal, later


def test_which_ranking_flips_sooner() -> None:
    rows = rows_of("decision_flip", n=400)
    grid = tables("decision_flip", rows)[1]
    assert len(grid.rows) == 6
    line = next(line for line in grid.rows if line[0] == "gradient : attention")
    found = counted(rows, "gradient", "attention")
    for cell, count in zip(line[1:4], found, strict=True):
        assert numbers(cell)[0] == pytest.approx(100 * count / sum(found), abs=0.051)
    ratio, low, high = numbers(line[5])
    assert ratio == pytest.approx(found[0] / found[2], abs=5e-4)
    assert low < ratio < high
    assert line[4] == f"{sum(found):,}"


def test_wilcoxon_is_over_texts_that_all_flip() -> None:
    rows = rows_of("decision_flip", n=120)
    kept = flipped_by_all(rows)
    raw = []
    for first, second in (
        ("gradient", "attention"),
        ("gradient_x_attention", "attention"),
        ("gradient_x_attention", "gradient"),
        ("attention", "random_first"),
        ("gradient", "random_first"),
        ("gradient_x_attention", "random_first"),
    ):
        a, b = (rows[f"removed_count_{name}"][kept] for name in (first, second))
        raw.append(stats.wilcoxon((a - b)[a != b]).pvalue)
    shown = [line[6] for line in tables("decision_flip", rows)[1].rows]
    smallest = int(np.argmin(raw))
    assert shown[smallest] == f"{min(1.0, 6 * raw[smallest]):.3f}"


def test_never_by_class_and_excess() -> None:
    rows = rows_of("decision_flip", n=400)
    _, _, never, excess = tables("decision_flip", rows, ["no", "yes"])
    assert [line[0] for line in never.rows] == ["all", "no", "yes"]
    own = (rows["prediction"] == 1) & (rows["length"] > 1)
    share = 100 * rows["never_flips_gradient"][own].mean()
    assert numbers(never.rows[2][2])[0] == pytest.approx(share, abs=0.051)
    assert never.rows[2][-1] == f"{own.sum():,}"
    kept = flipped_by_all(rows)
    beyond = (rows["removed_count_gradient"] - rows["minimal_count"])[kept]
    line = excess.rows[1]
    assert numbers(line[1])[0] == pytest.approx(beyond.mean(), abs=6e-4)
    assert numbers(line[2]) == pytest.approx([np.median(beyond)])
    assert numbers(line[4])[0] == pytest.approx(100 * (beyond == 0).mean(), abs=0.051)

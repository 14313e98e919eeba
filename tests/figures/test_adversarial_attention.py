"""Histogram, violins, frontier and tables of adversarial attention."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from attnlight.figures import draw, tables
from attnlight.statistics.frontier import EPSILONS
from tests.report.fake import Rows, rows_of

CLASSES = ["negative", "positive"]


def some(n: int = 80, search: bool = True, frontier: bool = True) -> Rows:
    """Simulated rows, a third of them searched."""
    random = np.random.default_rng(0)
    rows = rows_of("adversarial_attention", n)
    rows["worst_js"] = 0.69 * rows["worst_js"]
    rows["upper_js"] = rows["worst_js"]
    if search:
        found = np.where(np.arange(n) % 3 == 0, 0.8 * rows["worst_js"], np.nan)
        rows |= {"search_js": found, "search_gap": rows["worst_js"] - found}
        rows["search_tvd"] = np.where(np.isnan(found), np.nan, 0.005)
    if frontier:
        rows["frontier_js"] = np.sort(0.69 * random.random((n, len(EPSILONS))), axis=1)
    return rows


def panels(figure: Figure | None) -> int:
    assert figure is not None
    return len(figure.axes)


def test_draws_what_the_record_has() -> None:
    assert panels(draw("adversarial_attention", some(), CLASSES)) == 3
    assert panels(draw("adversarial_attention", some(frontier=False), CLASSES)) == 2
    unknown = some()
    unknown["frontier_js"][:] = np.nan
    unknown["search_js"][:] = np.nan
    figure = draw("adversarial_attention", unknown, CLASSES)
    assert panels(figure) == 2
    assert figure is not None
    assert figure.axes[0].get_legend() is None
    undefined = some()
    undefined["worst_js"][:] = np.nan
    assert draw("adversarial_attention", undefined, CLASSES) is None


def test_share_stands_beside_the_divergence() -> None:
    rows = some()
    rows["worst_share"][3] = np.nan
    figure = draw("adversarial_attention", rows, CLASSES)
    assert figure is not None
    assert f"{np.nanmean(rows['worst_share']):.3f}" in figure.axes[0].get_title()
    rows["worst_share"][:] = np.nan
    figure = draw("adversarial_attention", rows, CLASSES)
    assert figure is not None
    assert figure.axes[0].get_title().endswith("possible: –")  # noqa: RUF001


def test_each_class_adds_up_to_one() -> None:
    rows = some(5)
    rows["worst_js"] = np.array([0.0, 0.01, 0.35, 0.69, np.nan])
    rows["prediction"][:] = 1
    figure = draw("adversarial_attention", rows, CLASSES)
    assert figure is not None
    bars, edges, _ = figure.axes[0].patches[0].get_data()  # type: ignore[attr-defined]
    assert len(bars) == 40
    assert (edges[0], edges[-1]) == (0.0, 0.7)
    assert bars.sum() == pytest.approx(1)
    assert bars[[0, 20, 39]].tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_tables_say_means_shares_and_gaps() -> None:
    rows = some()
    worst, searched = tables("adversarial_attention", rows, CLASSES)
    assert [row[0] for row in worst.rows] == ["all", "predicted negative", "predicted positive"]
    for line, chosen in zip(
        worst.rows,
        [np.ones(80, bool), rows["prediction"] == 0, rows["prediction"] == 1],
        strict=True,
    ):
        js, share = (rows[name][chosen].mean() for name in ("worst_js", "worst_share"))
        assert line[1].startswith(f"{js:.3f} [")
        assert line[2].startswith(f"{share:.3f} [")
        assert line[3].startswith(f"{100 * (rows['worst_js'][chosen] > 0.6).mean():.1f} [")
        assert line[4] == line[1]
        assert line[5] == str(chosen.sum())
    kept = ~np.isnan(rows["search_js"])
    everything = searched.rows[0]
    for cell, name in zip(
        everything[1:5], ["worst_js", "search_js", "search_gap", "search_tvd"], strict=True
    ):
        assert cell.startswith(f"{rows[name][kept].mean():.3f} [")
    assert everything[5] == str(kept.sum())
    assert "Do not interpret it alone" in worst.note


def test_tables_without_a_search() -> None:
    assert len(tables("adversarial_attention", some(search=False), CLASSES)) == 1
    one_class = some(search=False)
    one_class["prediction"][:] = 1
    (worst,) = tables("adversarial_attention", one_class, CLASSES)
    assert [row[0] for row in worst.rows] == ["all"]

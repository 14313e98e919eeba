"""Tau and its significance, against naive loops."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from attnlight.figures import describe, tables
from attnlight.figures.importance_correlation import PAIRS
from attnlight.report import draw
from tests.report.fake import Rows, rows_of

TEST = "importance_correlation"


def rows(n: int = 200) -> Rows:
    """Rows of which some are undefined, with p-values from tiny to 1."""
    random = np.random.default_rng(5)
    found = rows_of(TEST, n=n, classes=3)
    for pair in ("attention_input_gradient", "attention_loo", "input_gradient_loo"):
        tau = random.uniform(-1, 1, n)
        tau[random.random(n) < 0.1] = np.nan
        found[f"tau_{pair}"] = tau
        found[f"p_{pair}"] = np.where(np.isnan(tau), np.nan, 10 ** random.uniform(-6, 0, n))
    return found


def expected_row(columns: Rows, chosen: NDArray[np.bool_]) -> list[str]:
    """Cells of attention and leave-one-out over the chosen rows, but for their name."""
    tau, p = (columns[f"{measure}_attention_loo"][chosen] for measure in ("tau", "p"))
    kept = [float(t) for t in tau if not np.isnan(t)]
    tested = sorted(float(x) for x in p if not np.isnan(x))
    mean = sum(kept) / len(kept)
    std = (sum((t - mean) ** 2 for t in kept) / len(kept)) ** 0.5
    rejected = 0
    while tested[rejected] * (len(tested) - rejected) <= 0.05:
        rejected += 1
    adjusted = false_discovery_control(tested)
    shares = [
        1 - len(kept) / len(tau),
        sum(x <= 0.05 for x in tested) / len(tested),
        rejected / len(tested),
        (adjusted <= 0.05).mean(),
    ]
    assert 0 < shares[0] < 0.3
    assert shares[2] <= shares[3] <= shares[1]
    return [f"{mean:.3f}", f"{std:.3f}", *(f"{100 * s:.1f} %" for s in shares), str(len(kept))]


def test_tables_equal_naive_loops_over_all_and_by_predicted_class() -> None:
    columns = rows()
    grids = tables(TEST, columns, ["bad", "so-so", "good"])
    assert [grid.title for grid in grids] == [
        "Kendall's tau-b of attention and gradient",
        "Kendall's tau-b of attention and leave-one-out",
        "Kendall's tau-b of gradient and leave-one-out",
    ]
    members = {"all": np.ones(200, dtype=bool)}
    members |= {name: columns["prediction"] == c for c, name in enumerate(("bad", "so-so", "good"))}
    # Corrected for the tests of the line's rows alone.
    expected = [[name, *expected_row(columns, chosen)] for name, chosen in members.items()]
    assert grids[1].rows == expected
    alone, holm, benjamini_hochberg = (float(c.removesuffix(" %")) for c in expected[0][4:7])
    assert holm < benjamini_hochberg < alone


def test_a_class_without_a_tau_has_dashes() -> None:
    columns = rows()
    columns["tau_attention_loo"][columns["prediction"] == 1] = np.nan
    row = tables(TEST, columns)[1].rows[2]
    assert row == ["class 1", "–", "–", "100.0 %", "–", "–", "–", "0"]  # noqa: RUF001


def test_histograms_of_each_class_add_up_to_one() -> None:
    columns = rows()
    figure = draw(TEST, columns)
    assert isinstance(figure, Figure)
    assert [axes.get_title("left") for axes in figure.axes] == [
        "attention and gradient",
        "attention and leave-one-out",
        "gradient and leave-one-out",
    ]
    filled = [patch.get_data() for patch in figure.axes[1].patches if patch.get_fill()]
    assert len(filled) == 3
    for c, data in enumerate(filled):
        tau = columns["tau_attention_loo"][columns["prediction"] == c]
        tau = tau[~np.isnan(tau)]
        assert len(data.values) == 30
        assert data.values.sum() == pytest.approx(1)
        share = np.mean((tau >= data.edges[20]) & (tau < data.edges[21]))
        assert data.values[20] == pytest.approx(share)


def test_a_pair_that_the_record_lacks_is_left_out() -> None:
    columns = {name: v for name, v in rows().items() if "loo" not in name}
    figure = draw(TEST, columns)
    assert figure is not None
    assert len(figure.axes) == len(tables(TEST, columns)) == 1


def test_the_attached_gradient_is_drawn_where_it_is_the_only_one() -> None:
    columns = rows()
    for measure in ("tau", "p"):
        columns[f"{measure}_attention_input_gradient_attached"] = columns[
            f"{measure}_attention_input_gradient"
        ]
    both = draw(TEST, columns)
    assert both is not None
    assert len(both.axes) == 3
    assert len(tables(TEST, columns)) == 4
    alone = {n: v for n, v in columns.items() if "_loo" not in n and not n.endswith("_gradient")}
    figure = draw(TEST, alone)
    assert figure is not None
    assert [axes.get_title("left") for axes in figure.axes] == [
        "attention and gradient through attention"
    ]


def test_every_column_is_in_words() -> None:
    expected = {f"{measure}_{one}_{other}" for one, other in PAIRS for measure in ("tau", "p")}
    assert set(describe(TEST).measures) == expected

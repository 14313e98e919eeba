"""Tau and its significance, against naive loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from attnlight.figures import describe, tables
from attnlight.figures.importance_correlation import PAIRS
from tests.report.fake import Rows, drawn, rows_of

TEST = "importance_correlation"
NAMES = ["attention and gradient", "attention and leave-one-out", "gradient and leave-one-out"]


@pytest.fixture
def rows() -> Rows:
    """Rows of which some are undefined, with p-values from tiny to 1."""
    random = np.random.default_rng(5)
    found = rows_of(TEST, n=200, classes=3)
    for pair in ("attention_input_gradient", "attention_loo", "input_gradient_loo"):
        tau = random.uniform(-1, 1, 200)
        tau[random.random(200) < 0.1] = np.nan
        found[f"tau_{pair}"] = tau
        found[f"p_{pair}"] = np.where(np.isnan(tau), np.nan, 10 ** random.uniform(-6, 0, 200))
    return found


def titles(rows: Rows) -> list[str]:
    return [axes.get_title("left") for axes in drawn(TEST, rows).axes]


def test_tables_equal_naive_loops_over_all_and_by_predicted_class(rows: Rows) -> None:
    grids = tables(TEST, rows, ["bad", "so-so", "good"])
    assert [grid.title for grid in grids] == [f"Kendall's tau-b of {name}" for name in NAMES]
    members = {"all": np.ones(200, dtype=bool)}
    members |= {name: rows["prediction"] == c for c, name in enumerate(("bad", "so-so", "good"))}
    # Corrected for the tests of the line's rows alone.
    for line, (name, chosen) in zip(grids[1].rows, members.items(), strict=True):
        tau, p = (rows[f"{measure}_attention_loo"][chosen] for measure in ("tau", "p"))
        kept = [float(t) for t in tau if not np.isnan(t)]
        tested = sorted(float(x) for x in p if not np.isnan(x))
        mean = sum(kept) / len(kept)
        std = (sum((t - mean) ** 2 for t in kept) / len(kept)) ** 0.5
        rejected = 0
        while tested[rejected] * (len(tested) - rejected) <= 0.05:
            rejected += 1
        missing, alone = 1 - len(kept) / len(tau), sum(x <= 0.05 for x in tested) / len(tested)
        holm, hochberg = rejected / len(tested), (false_discovery_control(tested) <= 0.05).mean()
        assert 0 < missing < 0.3
        assert holm <= hochberg <= alone
        assert holm < alone
        shares = [f"{100 * share:.1f} %" for share in (missing, alone, holm, hochberg)]
        assert line == [name, f"{mean:.3f}", f"{std:.3f}", *shares, str(len(kept))]


def test_a_class_without_a_tau_has_dashes(rows: Rows) -> None:
    rows["tau_attention_loo"][rows["prediction"] == 1] = np.nan
    row = tables(TEST, rows)[1].rows[2]
    assert row == ["class 1", "–", "–", "100.0 %", "–", "–", "–", "0"]  # noqa: RUF001


def test_histograms_of_each_class_add_up_to_one(rows: Rows) -> None:
    assert titles(rows) == NAMES
    patches = drawn(TEST, rows).axes[1].patches
    filled = [patch.get_data() for patch in patches if patch.get_fill()]  # type: ignore[attr-defined]
    assert len(filled) == 3
    for c, data in enumerate(filled):
        tau = rows["tau_attention_loo"][rows["prediction"] == c]
        tau = tau[~np.isnan(tau)]
        assert len(data.values) == 30
        assert data.values.sum() == pytest.approx(1)
        share = np.mean((tau >= data.edges[20]) & (tau < data.edges[21]))
        assert data.values[20] == pytest.approx(share)


def test_a_pair_that_the_record_lacks_is_left_out(rows: Rows) -> None:
    found = {name: v for name, v in rows.items() if "loo" not in name}
    assert len(titles(found)) == len(tables(TEST, found)) == 1


def test_the_attached_gradient_is_drawn_where_it_is_the_only_one(rows: Rows) -> None:
    for measure in ("tau", "p"):
        own = rows[f"{measure}_attention_input_gradient"]
        rows[f"{measure}_attention_input_gradient_attached"] = own
    assert (len(titles(rows)), len(tables(TEST, rows))) == (3, 4)
    alone = {n: v for n, v in rows.items() if "_loo" not in n and not n.endswith("_gradient")}
    assert titles(alone) == ["attention and gradient through attention"]


def test_every_column_is_in_words() -> None:
    expected = {f"{measure}_{one}_{other}" for one, other in PAIRS for measure in ("tau", "p")}
    assert set(describe(TEST).measures) == expected

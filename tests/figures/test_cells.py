"""Cells of each test's tables against means by pandas, and of tau and its significance by loops."""

import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control

from attnlight.figures import describe, tables
from attnlight.figures.erasure import flipped_by_all
from attnlight.figures.importance_correlation import PAIRS
from attnlight.figures.tables import Table
from tests.report.fake import METHODS, Rows, drawn, rows_of

STEPS = enumerate(("1", "2", "3", "random", "seeds"), start=1)
# Test, number of the table, row, rows that it is of, and the place and values of some cells; % is a
# percentage. The last number of a row without a p-value is how many values of its first mean count.
CELLS = """
state_token_agreement|0|all||1 tau_erasure_deletion|3% own_token_largest
state_token_agreement|0|no|prediction == 0|1 tau_erasure_deletion|3% own_token_largest
state_token_agreement|0|yes|prediction == 1|1 tau_erasure_deletion|3% own_token_largest
evidence_mass|0|all||1 mass|3% top_in_evidence
evidence_mass|0|proven|proven == 1|1 mass|3% top_in_evidence
evidence_mass|0|not proven|proven == 0|1 mass|3% top_in_evidence
faithfulness|0|attention||1 comprehensiveness_attention|2 excess_comprehensiveness_attention
faithfulness|0|attention||3 sufficiency_attention|4 excess_sufficiency_attention
faithfulness|1|attention||1 normalized_comprehensiveness_attention
faithfulness|1|attention||4 excess_normalized_sufficiency_attention
plausibility|0|attention||1 auprc_attention
saliency_agreement|0|attention and random||1 tau_attention_random|2 spearman_attention_random
saliency_agreement|0|attention and random||3 pearson_attention_random|4 js_attention_random
saliency_agreement|0|attention and random||5% overlap_attention_random
single_erasure|0|gradient, one drawn||1% flip_top_gradient * flip_other_drawn_gradient
single_erasure|0|gradient, one drawn||2% flip_top_gradient * (1 - flip_other_drawn_gradient)
single_erasure|0|gradient, one drawn||3% (1 - flip_top_gradient) * flip_other_drawn_gradient
single_erasure|0|gradient, released draw||1% flip_top_gradient * flip_other_released_gradient
single_erasure|0|gradient, mean over others||1% flip_top_gradient * flip_other_expected_gradient
single_erasure|1|attention||2 delta_js_expected_attention
single_erasure|1|attention|delta_js_drawn_attention > -9|4% delta_js_drawn_attention < 0
single_erasure|2|gradient : attention||3% flip_top_gradient - flip_top_attention
decision_flip|0|attention|kept|1% removed_fraction_attention|3% needs_all_attention
decision_flip|0|attention|length > 1|4% never_flips_attention
decision_flip|2|yes|prediction == 1 and length > 1|2% never_flips_gradient
decision_flip|3|gradient|kept|1 removed_count_gradient - minimal_count
decision_flip|3|gradient|kept|4% removed_count_gradient == minimal_count
adversarial_attention|0|all||1 worst_js|2 worst_share|3% worst_js > 0.6|4 upper_js
adversarial_attention|0|predicted no|prediction == 0|1 worst_js|2 worst_share|3% worst_js > 0.6
adversarial_attention|0|predicted yes|prediction == 1|1 worst_js|2 worst_share|3% worst_js > 0.6
adversarial_attention|1|all|search_js >= 0|1 worst_js|2 search_js|3 search_gap|4 search_tvd
""" + "".join(
    f"sanity|{table}|{row}||{place} {kind}_{step}_{method}\n"
    for place, step in STEPS
    for table, kind in ((1, "signed"), (2, "sizes"))
    for row, method in zip(("attention", "gradient × attention", "random"), METHODS, strict=True)  # noqa: RUF001
)
SPOILED = {
    "evidence_mass": "mass",
    "faithfulness": "comprehensiveness_attention",
    "plausibility": "auprc_attention",
    "saliency_agreement": "tau_attention_random",
}


@cache
def simulated(test: str) -> tuple[Rows, list[Table]]:
    """Rows of a test, of which some are undefined and some were searched, and its tables."""
    rows = rows_of(test, n=300)
    if test in SPOILED:
        rows[SPOILED[test]][:40] = np.nan
    if test == "adversarial_attention":
        rows["search_js"] = np.where(np.arange(300) % 3 == 0, 0.8 * rows["worst_js"], np.nan)
        rows |= {"search_gap": rows["worst_js"] - rows["search_js"]}
        rows["search_tvd"] = rows["search_js"] / 90
    if test == "decision_flip":
        rows["kept"] = flipped_by_all(rows)
    return rows, tables(test, rows, ["no", "yes"])


@pytest.mark.parametrize("line", CELLS.split("\n")[1:-1])
def test_cells_are_means(line: str) -> None:
    test, number, row, members, *cells = line.split("|")
    rows, found_tables = simulated(test)
    frame = pd.DataFrame({name: x.astype(float) for name, x in rows.items() if x.ndim == 1})
    frame = frame.query(members if members != "kept" else "kept == 1") if members else frame
    (found,) = (line for line in found_tables[int(number)].rows if line[0] == row)
    for cell in cells:
        head, _, values = cell.partition(" ")
        place, percent = int(head[0]), head.endswith("%")
        column = frame.eval(values).astype(float)
        mean, low, high = map(float, re.findall(r"-?\d+\.\d+(?:e-\d+)?", found[place]))
        expected = (100 if percent else 1) * column.mean()
        assert mean == pytest.approx(expected, abs=0.0501 if percent else 5.01e-4)
        assert low <= mean <= high
        if place == 1 and re.fullmatch(r"[\d,]+", found[-1]):
            assert found[-1] == f"{column.count():,}"


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
    assert set(describe(TEST).measures) == expected | {"low_*", "high_*"}

"""Cells of each test's tables against means that pandas has of the rows that they are of."""

import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

from attnlight.figures import tables
from attnlight.figures.erasure import flipped_by_all
from attnlight.figures.tables import Table
from tests.report.fake import METHODS, Rows, rows_of

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
saliency_agreement|0|attention and random||3% overlap_attention_random
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

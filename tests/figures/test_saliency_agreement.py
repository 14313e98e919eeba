"""The heat map and the table of agreement."""

from itertools import combinations

import numpy as np
import pytest

from attnlight.figures import tables
from attnlight.report import draw
from tests.report.fake import METHODS, rows_of


def test_cells_are_mean_taus_and_undefined_pairs_are_blank() -> None:
    rows = rows_of("saliency_agreement", n=50)
    rows["tau_attention_random"][:] = np.nan
    rows["tau_attention_gradient_x_attention"][3:9] = np.nan
    figure = draw("saliency_agreement", rows)
    assert figure is not None
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["attention", "gradient × attention", "random"]  # noqa: RUF001
    cells = {text.get_position(): float(text.get_text()) for text in axes.texts}
    for (a, one), (b, other) in combinations(enumerate(METHODS), 2):
        tau = rows[f"tau_{one}_{other}"]
        for place in ((a + 0.5, b + 0.5), (b + 0.5, a + 0.5)):
            if np.isnan(tau).all():
                assert place not in cells
            else:
                assert cells[place] == pytest.approx(np.nanmean(tau), abs=0.0051)
    assert len(cells) == 4


def test_table_has_a_line_for_each_pair() -> None:
    rows = rows_of("saliency_agreement", n=40)
    rows["tau_attention_random"][:10] = np.nan
    (table,) = tables("saliency_agreement", rows)
    assert [row[0] for row in table.rows] == [
        "attention and gradient × attention",  # noqa: RUF001
        "attention and random",
        "gradient × attention and random",  # noqa: RUF001
    ]
    line = table.rows[1]
    assert line[1].startswith(f"{np.nanmean(rows['tau_attention_random']):.3f} [")
    assert line[2].startswith(f"{rows['spearman_attention_random'].mean():.3f} [")
    assert line[3].startswith(f"{100 * rows['overlap_attention_random'].mean():.1f} [")
    assert line[4:] == ["25.0", "30"]
    assert f"{100 * rows['chance_overlap'].mean():.1f} % of random orders" in table.note
    assert f"random {100 * rows['tied_random'].mean():.1f} %" in table.note

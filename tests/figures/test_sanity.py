"""The figure and the tables of the cascade, from simulated records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlight.figures import draw, tables
from attnlight.figures.tables import number
from tests.report.fake import METHODS, rows_of

PARTS = ["decoder", "word_attention", "embedding"]
KNOWN = {"decoder": 1, "word attention": 2, "embedding": 3}
METADATA: dict[str, Any] = {
    "parts": PARTS,
    "against": "e/seed1",
    "methods": {method: {"name": method} for method in METHODS},
}


def test_a_panel_of_each_method_has_both_curves_and_the_level_of_two_seeds() -> None:
    rows = rows_of("sanity", n=50)
    rows["signed_seeds_random"][:] = np.nan
    figure = draw("sanity", rows, metadata=METADATA)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.axison]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["attention", "gradient × attention", "random"]  # noqa: RUF001
    for method, axes in zip(METHODS, panels, strict=True):
        lines = {tuple(np.round(np.array(line.get_ydata(), float), 9)) for line in axes.lines}
        for kind in ("signed", "sizes"):
            means = [rows[f"{kind}_{step}_{method}"].mean() for step in (1, 2, 3)]
            assert tuple(np.round(means, 9)) in lines
        seeds = round(float(rows[f"signed_seeds_{method}"].mean()), 9)
        levels = {line for line in lines if len(line) == 2}
        expected = set() if np.isnan(seeds) else {(seeds, seeds), (seeds / 2, seeds / 2)}
        assert {tuple(np.round(x, 6)) for x in levels} == {tuple(np.round(x, 6)) for x in expected}
        assert [label.get_text() for label in axes.get_xticklabels()] == list(KNOWN)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["with signs", "of sizes"]


@pytest.mark.parametrize("methods", [1, 4, 7])
def test_parts_are_named_below_the_last_panel_of_each_column(methods: int) -> None:
    rows, many = rows_of("sanity"), {}
    for name, values in rows.items():
        kind, _, rest = name.partition("_")
        if kind not in ("signed", "sizes"):
            many[name] = values
        elif rest.endswith("_attention") and "gradient" not in rest:
            step = rest.removesuffix("_attention")
            many |= {f"{kind}_{step}_m{number}": values for number in range(methods)}
    figure = draw("sanity", many, metadata={"parts": PARTS})
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.axison]
    named = [bool(axes.get_xticklabels()[0].get_text()) for axes in panels]
    assert named == [number >= methods - 3 for number in range(methods)]


def test_verdicts_and_steps() -> None:
    rows = rows_of("sanity", n=60)
    rows["signed_3_attention"] = np.full(60, 0.1)
    rows["signed_seeds_attention"] = np.full(60, 0.6)
    rows["signed_3_random"], rows["signed_seeds_random"] = np.ones((2, 60))
    rows["signed_seeds_gradient_x_attention"] = np.full(60, 0.1)
    verdicts, signed, sizes = tables("sanity", rows, metadata=METADATA)
    assert verdicts.rows[0] == [
        "attention",
        "0.100 [0.100, 0.100]",
        "0.600 [0.600, 0.600]",
        "passes",
    ]
    assert [row[-1] for row in verdicts.rows] == ["passes", "undecidable", "fails"]
    assert "those of e/seed1" in verdicts.note
    assert "fail by construction: random." in verdicts.note
    assert "attnlight sanity" not in verdicts.note
    for table, kind in ((signed, "signed"), (sizes, "sizes")):
        assert list(table.head) == ["method", *KNOWN, "two random", "two seeds", "n"]
        for method, row in zip(METHODS, table.rows, strict=True):
            for step, cell in zip((1, 2, 3, "random", "seeds"), row[1:], strict=False):
                assert cell.startswith(f"{number(rows[f'{kind}_{step}_{method}'].mean())} ")
            assert row[-1] == "60"
    assert signed.title.endswith("with signs")
    assert sizes.title.endswith("of sizes")


@pytest.mark.parametrize("weights", [None, "0123abcd"])
def test_without_a_second_seed_the_note_names_what_decides(weights: str | None) -> None:
    """A command, unless the model was trained elsewhere."""
    rows = {
        n: v for n, v in rows_of("sanity").items() if "seeds" not in n and "random" not in n[-6:]
    }
    verdicts, signed, _ = tables(
        "sanity", rows, metadata=METADATA | {"against": None, "weights": weights}
    )
    assert [row[2:] for row in verdicts.rows] == [["–", "undecidable"]] * 2  # noqa: RUF001
    assert "Without a second seed nothing is decided" in verdicts.note
    assert ("`attnlight sanity RUN RUN2 --overwrite` decides" in verdicts.note) == (not weights)
    assert ("trained elsewhere" in verdicts.note) == bool(weights)
    assert "by construction" not in verdicts.note
    assert "two seeds" not in signed.head


def test_steps_without_names_are_numbered() -> None:
    _, signed, _ = tables("sanity", rows_of("sanity"))
    assert list(signed.head)[1:4] == ["1", "2", "3"]

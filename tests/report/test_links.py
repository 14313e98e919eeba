"""Points of figures that lead to the texts of their instances."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from attnlight.figures.style import figure_bytes, inline_svg
from attnlight.figures.violins import _lanes
from attnlight.report.texts import choose_texts, link_column
from tests.cli.test_report import page_of
from tests.report.fake import drawn, rows_of, write_run
from tests.report.test_texts import row, write

# Columns on the axes of the points of each test; None: a violin, whose height has no meaning.
SCORES = ("attention", "gradient", "gradient_x_attention")
DRAWN: dict[str, list[tuple[str, str | None]]] = {
    "predictions": [("max_attention", None), ("attention_entropy", None)],
    "attention_permutation": [("median_tvd", None)],
    "adversarial_attention": [("worst_js", None)],
    "base_divergence": [("attention_js", None), ("prediction_tvd", "attention_js")],
    "impermissible_mass": [("max_mass", None), ("mass", None)],
    "evidence_mass": [("mass", None), ("auprc", None)],
    "single_erasure": [(f"delta_weight_drawn_{s}", f"delta_js_drawn_{s}") for s in SCORES],
}
CHOSEN = list(range(2, 40, 2))


@pytest.mark.parametrize("test", list(DRAWN))
def test_points_are_at_the_values_of_their_instances(test: str) -> None:
    rows = rows_of(test)
    rows["index"] = rows["index"] + 100
    if "mass" in rows:
        rows["mass"][4] = np.nan
    links = link_column(rows, [(100 + n, 0) for n in CHOSEN])
    figure = drawn(test, rows | {"link": links}, ["negative", "positive"])
    found: Counter[tuple[int, str]] = Counter()
    rings = [ring for ring in figure.findobj(PathCollection) if any(ring.get_urls())]  # type: ignore[misc]
    for ring in rings:
        assert not ring.get_visible()
        for url, (x, y) in zip(ring.get_urls(), ring.get_offsets().tolist(), strict=True):
            number = CHOSEN[int(url.removeprefix("text:"))]
            columns = [(a, u) for a, u in DRAWN[test] if rows[a][number] == x]
            (axes,) = [a for a, upward in columns if upward is None or rows[upward][number] == y]
            found[number, axes] += 1
    for column, upward in DRAWN[test]:
        shown = ~np.isnan(rows["mass" if test == "impermissible_mass" else column])
        often = [1 + ("proven" in rows and not np.isnan(rows["proven"][n])) for n in CHOSEN]
        expected = {(n, column): k for n, k in zip(CHOSEN, often, strict=True) if shown[n]}
        assert {key: k for key, k in found.items() if key[1] == column} == expected, upward


def test_points_of_equal_values_stay_within_the_violin() -> None:
    rows = rows_of("predictions")
    rows |= {name: np.full_like(rows[name], 0.3) for name in ("max_attention", "attention_entropy")}
    rows["prediction"] = np.zeros_like(rows["prediction"])
    links = link_column(rows, [(n, 0) for n in range(40)])
    figure = drawn("predictions", rows | {"link": links}, ["negative", "positive"])
    rings = [
        r for axes in figure.axes[:2] for r in axes.findobj(PathCollection) if any(r.get_urls())
    ]
    assert len(rings) == 2
    for ring in rings:
        heights = np.asarray(ring.get_offsets())[:, 1]
        assert len(heights) > 20
        assert -0.5 < heights.min() < heights.max() < 0.5


@pytest.mark.parametrize("test", ["predictions", "base_divergence"])
def test_files_are_without_them_and_the_page_has_them(test: str) -> None:
    rows = rows_of(test)
    plain = drawn(test, rows)
    linked = drawn(test, rows | {"link": link_column(rows, [(n, 0) for n in CHOSEN])})
    addresses = [(f"#to-{n}", f"text <{n}>") for n in CHOSEN]
    for kind in ("svg", "png"):
        assert figure_bytes(plain, kind, dpi=50) == figure_bytes(linked, kind, dpi=50)
    first, second = inline_svg(plain, "p", "of"), inline_svg(linked, "p", "of", addresses)
    assert first.startswith('<svg role="img"')
    assert second.startswith('<svg role="group"')
    assert "<a " not in first
    assert "text:" not in second
    named = re.findall(r'<a href="#to-(\d+)"><title>text &lt;(\d+)&gt;</title>', second)
    assert {int(n) for n, _ in named} <= set(CHOSEN)
    assert len({n for n, _ in named}) > 12  # the others are undefined
    assert all(n == name for n, name in named)
    ids = re.findall(r'\bid="([^"]+)"', second)
    assert len(set(ids)) == len(ids)
    assert figure_bytes(plain, "svg") == figure_bytes(linked, "svg"), "also after it was on a page"


def test_rows_of_tokens_are_told_apart() -> None:
    rows = {"index": np.array([5, 5, 7, 9]), "position": np.array([0, 3, 3, 0])}
    found = link_column(rows, [(9, 0), (5, 3), (7, 0)])
    np.testing.assert_array_equal(found, [np.nan, 1, np.nan, 0])
    assert np.isnan(link_column(rows, [])).all()


def test_points_of_equal_values_do_not_hide_each_other() -> None:
    values = np.array([0.5] * 4 + [0.51, 0.2, 0.52, 0.9, 0.5])
    shown = np.array([True] * 8 + [False])
    lanes = _lanes(values, shown, 0.02)
    for a, b in combinations(np.flatnonzero(shown), 2):
        assert lanes[a] != lanes[b] or abs(values[a] - values[b]) >= 0.02 - 1e-12
    assert sorted(np.abs(lanes)) == [0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert lanes[[5, 7, 8]].tolist() == [0, 0, 0]


def test_the_page_links_the_chosen_texts_of_each_test(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "sst" / "seed7", epochs=())
    rows = [row(n, probabilities=[0.25, 0.75]) for n in range(50)]
    texts = write(folder / "records/test/texts.parquet", rows)
    page_of(folder)
    html = (folder / "report/index.html").read_text(encoding="utf-8")
    figures = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    by_test = {"predictions": "attention_entropy", "attention_permutation": "median_tvd"}
    for test, column in by_test.items():
        (figure,) = [figure for figure in figures if f'id="test-{test}-' in figure]
        chosen = choose_texts(folder / f"records/test/{test}.parquet", column, texts)
        assert chosen is not None
        found = re.findall(r'<a href="#text=(\d+)"><title>text (\d+)</title>', figure)
        assert {int(n) for n, _ in found} == {index for index, _ in chosen.rows}
        assert all(f"[{n},0]" in html for n, _ in found)  # the keys of the page's texts
        assert "Hollow points lead to the texts" in figure
    assert len({*re.findall(r'\bid="([^"]+)"', html)}) == len(re.findall(r'\bid="([^"]+)"', html))

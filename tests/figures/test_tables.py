"""Tables of text in four formats, numbers in them, and where a test's own tables go."""

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest

from attnlight.cli.report import main
from attnlight.figures import describe, descriptions, predictions, tables
from attnlight.figures.tables import RecordTable, Table, balanced, class_name, estimate, number
from attnlight.report.markup import render, table_html
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.seed_bootstrap import SeedInterval
from tests.report.fake import rows_of, write_run

NASTY = ["a|b", "50 % & more", "<b>{x}_$1</b>", 'say "no",\nthen ~^\\', "[0.1, 0.2]"]
TABLE = Table(
    "Flips & <marks>_1",
    ["ranking", "share % | all", "n"],
    [["attention", "0.25 [0.2, 0.3]", "1,000"], ["<i>τ</i>", "−0.5", "∞"]],  # noqa: RUF001
    "Over R rows & 2^10 texts.",
)
FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3x", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "＝1+1"]  # noqa: RUF001
PLAIN = ["-0.012 [-0.020, 1.0e-05]", "–", "a=b", "+1.5", "-3", "[0.1, ∞]", " =1", "", "[0.1, 9]"]  # noqa: RUF001
NAN = float("nan")


class Cells(HTMLParser):
    """Text of each cell and heading, and every tag that was opened."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.labels: list[str | None] = []
        self.feed(table_html(table))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.labels.append(dict(attrs)["data-label"])
        if tag in ("td", "th"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("td", "th", "small") and data.strip():
            self.texts[-1] += data


def test_html_holds_the_cells_and_nothing_of_theirs_is_markup() -> None:
    html, found = table_html(TABLE), Cells(TABLE)
    assert found.texts == [*TABLE.head, *TABLE.rows[0], *TABLE.rows[1]]
    assert not set(found.tags) & {"marks", "i", "b"}
    assert found.tags.count("small") == 1, "the interval's own line"
    assert found.labels == [*TABLE.head[1:], *TABLE.head[1:]]
    assert "Flips &amp; &lt;marks&gt;_1" in html
    assert "Over R rows &amp; 2^10 texts." in html
    assert 'class="note"' not in table_html(Table("x", ["a"], []))


@pytest.mark.parametrize("cells", [NASTY, FORMULAS])
def test_text_in_csv_is_no_formula_and_comes_back(cells: list[str]) -> None:
    plain = PLAIN[: len(cells)]
    written = Table("x", cells, [cells, plain]).to_texts()["csv"]
    head, first, second = csv.reader(io.StringIO(written, newline=""))
    mark = "'" if cells is FORMULAS else ""
    assert head == first == [f"{mark}{cell}" for cell in cells]
    assert second == plain


def test_every_csv_is_written_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "e" / "r", classes=["=1+1", "@x"], epochs=())
    assert main([str(folder)]) == 0
    files = [path.open(encoding="utf-8", newline="") for path in folder.rglob("report/**/*.csv")]
    cells = [cell for file in files for row in csv.reader(file) for cell in row]
    assert {"'=1+1", "'@x"} <= set(cells)
    assert not [cell for cell in cells if cell[:1] in "=@\t\r" and cell]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("\u202eevil", "\u202eevil\u202c"),
        ("evil\u2069\u202c", "evil"),
        # The end of an isolate ends what is in it.
        ("\u2067a\u202eb\u2069c", "\u2067a\u202eb\u2069c"),
        ("\u202a\u2068x", "\u202a\u2068x\u2069\u202c"),
        ("\u202ax\u2069y", "\u202axy\u202c"),
        ("\u2068a\u202cb", "\u2068ab\u2069"),
        ("\u200fש plain", "\u200fש plain"),
    ],
)
def test_direction_ends_with_a_name(name: str, expected: str) -> None:
    assert balanced(name) == expected == balanced(expected)
    assert class_name(1, ["a", name]) == expected


def test_markdown_has_a_cell_for_each() -> None:
    title, _, *lines = Table("x", NASTY, [NASTY]).to_markdown().splitlines()
    assert (title, len(lines)) == ("**x**", 3)
    rows = [re.split(r"(?<!\\)\|", line) for line in lines]
    assert {len(row) for row in rows} == {2 + len(NASTY)}
    assert re.fullmatch(r"\|:-+(\|-+:){4}\|", lines[1]), "the first column on the left"
    assert [cell.strip() for cell in rows[2][1:3]] == [r"a\|b", "50 % & more"]
    assert TABLE.to_markdown().endswith("\n\nOver R rows & 2^10 texts.\n")


def test_two_columns_of_one_name() -> None:
    table = Table("x", ["a", "b", "b"], [["1", "2", "3"]])
    assert table.to_texts()["csv"] == "a,b,b\n1,2,3\n"
    assert "1 & 2 & 3" in table.to_texts()["tex"]
    assert Cells(table).texts == ["a", "b", "b", "1", "2", "3"]
    assert re.search(r"\| 1 *\| +2 \| +3 \|", table.to_markdown())


def test_latex_is_escaped() -> None:
    assert TABLE.to_texts()["tex"] == (
        "\\begin{table}\n\\centering\n"
        "\\caption{Flips \\& \\textless{}marks\\textgreater{}\\_1}\n"
        "\\begin{tabular}{lrr}\n\\toprule\n"
        "ranking & share \\% \\textbar{} all & n \\\\\n\\midrule\n"
        "attention & 0.25 {[}0.2, 0.3{]} & 1,000 \\\\\n"
        "\\textless{}i\\textgreater{}$\\tau$\\textless{}/i\\textgreater{} & $-$0.5 & $\\infty$ \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
        "\\par\\smallskip\\footnotesize Over R rows \\& 2\\textasciicircum{}10 texts.\n"
        "\\end{table}\n"
    )
    latex = Table("x", NASTY, [NASTY]).to_texts()["tex"]
    assert "\\textbackslash{}" in latex
    assert "\\textasciitilde{}" in latex
    assert len(re.findall(r"(?<!\\)&", latex)) == 2 * (len(NASTY) - 1)
    assert "note" not in latex


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_is_set_by_latex(tmp_path: Path) -> None:
    body = TABLE.to_texts()["tex"] + Table("x", NASTY, [NASTY]).to_texts()["tex"]
    text = "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs}"
    (tmp_path / "x.tex").write_text(f"{text}\\begin{{document}}{body}\\end{{document}}")
    program = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "x.tex"]
    subprocess.run(program, cwd=tmp_path, check=True, capture_output=True)


def test_a_row_has_a_cell_for_each_heading() -> None:
    for row in (["a"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match=f"has {len(row)} cells under 2 headings"):
            Table("x", ["a", "b"], [["1", "2"], row]).to_texts()


def test_numbers_and_estimates() -> None:
    values = (0.12345, 12.0, 0.0, -0.0, -0.5, 0.00012345, NAN, float("inf"), float("-inf"))
    expected = "0.123 12.000 0.000 0.000 -0.500 1.23e-04 \u2013 \u221e -\u221e"
    assert " ".join(map(number, values)) == expected
    assert estimate(MeanInterval(0.25, 0.2, float("inf"), 9)) == "0.250 [0.200, \u221e]"
    assert estimate(MeanInterval(NAN, NAN, NAN, 0)) == "\u2013"
    two = SeedInterval(0.5, NAN, NAN, (0.25, 0.75))
    assert estimate(two, spread=0.1) == "0.500 ± 0.100 (0.250, 0.750 by seed)"
    assert estimate(SeedInterval(0.5, NAN, NAN, ())) == "0.500 (no interval)"


def make(rows: dict[str, Any], classes: list[str] | None) -> list[RecordTable]:
    """Two tables of a record of predictions."""
    counts = np.bincount(rows["prediction"], minlength=2)
    named = [[name, str(count)] for name, count in zip(classes or "ab", counts, strict=True)]
    return [("classes", named, {"of": "<classes>"}), ("empty", [], {"head": ["class"]})]


@pytest.fixture
def with_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`predictions` is a test with tables of its own."""
    texts = {
        "classes": {"title": "Predicted {of}", "head": ["class", "n"], "note": ""},
        "empty": {"title": "Empty", "note": ""},
    }
    known = replace(describe("predictions"), tables=texts)
    monkeypatch.setitem(descriptions(), "predictions", known)
    monkeypatch.setattr(predictions, "tables", make, raising=False)


TURNED = "\u202e<b>\u2069"


def test_a_template_that_lacks_a_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("study.html.jinja")


def test_names_turn_only_themselves_around() -> None:
    html = table_html(Table(TURNED, ["a", TURNED], [["1", TURNED]]))
    assert html.count("<bdi>\u202e&lt;b&gt;\u202c</bdi>") == 3, "title, heading and cell"
    assert 'data-label="&lt;b&gt;"' in html, "there is no isolate within an attribute"
    assert "\u2069" not in html
    assert "<b>" not in html


@pytest.mark.usefixtures("with_tables")
def test_the_report_shows_and_writes_a_tests_own_tables(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a" / "b", epochs=())
    main([str(folder)])
    page = (folder / "report/index.html").read_text()
    counts = np.bincount(rows_of("predictions")["prediction"])
    assert page.count("<h4>Predicted &lt;classes&gt;</h4>") == 1
    assert f'<th scope="row">negative</th><td data-label="n">{counts[0]}</td>' in page
    assert "tables/test-predictions-*.{md,csv,tex}" in page
    written = {path.name for path in (folder / "report/tables").iterdir()}
    kinds = ("csv", "md", "tex")
    assert written == {f"test-predictions-{k}.{kind}" for k in (1, 2) for kind in kinds}
    text = (folder / "report/tables/test-predictions-1.csv").read_text()
    assert text == f"class,n\nnegative,{counts[0]}\npositive,{counts[1]}\n"


@pytest.mark.usefixtures("with_tables")
def test_no_table_without_rows_or_of_a_test_without_tables() -> None:
    assert tables("attention_permutation", rows_of("attention_permutation")) == []
    assert tables("unheard_of", rows_of("predictions")) == []
    rows = rows_of("predictions")
    assert len(tables("predictions", rows)) == 2
    assert tables("predictions", {name: values[:0] for name, values in rows.items()}) == []

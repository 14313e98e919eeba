"""Sentences of the pages of results stand only as long as the tables that they rest on bear them out."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from attnlight.errors import InputError
from tests.kept import BLOCKS, PAGE, PAGES, PLACE, page

build_results = importlib.import_module("build_results")
findings = page("findings")
# Figures in the page's own prose: settings, published figures, and the one run that is not kept.
SETTINGS = {
    *("0.834", "0.850", "0.870", "0.884", "0.885", "0.887", "0.888", "0.961"),  # IMDb, seed 0
    *("0.882", "0.891", "0.899"),  # the taggers' earlier settings
    *(
        "0.00001",
        "0.1",
        "0.0005",
        "0.001",
        "0.002",
        "0.005",
        "0.01",
        "0.02",
        "0.05",
        "0.2",
        "0.5",
        "0.693",
    ),
}


def changed(name: str, old: str, new: str) -> dict[str, str]:
    """The pages' blocks with one cell of a table changed."""
    assert BLOCKS[name].count(old) >= 1, old
    return BLOCKS | {name: BLOCKS[name].replace(old, new, 1)}


def sentences(blocks: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = findings.findings(blocks)
    return found


class TestCells:
    def test_a_figure_with_its_interval(self) -> None:
        cell = findings.Cell("-0.018 ± 0.01 [-0.034, -8.43e-04]")
        assert (cell.value, cell.number) == (-0.018, "-0.018")
        assert (cell.above, cell.below, cell.open) == (False, True, False)
        assert cell.size == "0.018 [8.43e-04, 0.034]"
        assert str(cell) == "-0.018 [-0.034, -8.43e-04]"

    def test_an_interval_that_holds_0_is_open(self) -> None:
        for text in ("0.1 [-0.1, 0.2]", "0.1 [0.000, 0.2]"):
            assert findings.Cell(text).open
        assert not findings.Cell("0.1").open
        assert findings.Cell("1,821 [1,700, 1,900]").value == 1821

    def test_two_seeds_stand_in_place_of_an_interval(self) -> None:
        cell = findings.Cell("-0.30 (-0.40, -0.20 by seed)")
        assert (cell.value, cell.range) == (-0.3, (-0.4, -0.2))
        assert not cell.below, "two seeds support no sentence that needs an interval"
        assert str(cell) == "-0.30 (-0.40, -0.20 by seed)"
        assert cell.size == "0.30 (0.40, 0.20 by seed)"
        less = findings.Cell("-0.30 ± 0.1 (no interval)")
        assert str(less) == "-0.30 (no interval)"
        assert less.size == "0.30 (no interval)"
        assert less.range == (-np.inf, np.inf)
        assert findings.Cell("0.3").range == (0.3, 0.3)
        assert findings.Cell("0.3 [0.1, 0.4]").range == (0.1, 0.4)

    def test_rows_by_column(self) -> None:
        tables = findings.Tables(
            {"t": "| a | b | b |\n| --- | --- | --- |\n| x | 1 | 2 |\n|  | 3 | 4 |\n"}
        )
        assert tables.rows("t") == [
            {"a": "x", "b": "1", "b 2": "2"},
            {"a": "x", "b": "3", "b 2": "4"},
        ]
        assert tables.cell("t", "b 2", "x", "3").value == 4
        with pytest.raises(InputError, match="no row of y"):
            tables.rows("t", "y")


class TestPage:
    def test_sentences_are_those_of_the_tables(self) -> None:
        for name, text in sentences(BLOCKS).items():
            assert BLOCKS[name] == text.strip("\n") + "\n"

    def test_no_sentence_is_refused(self) -> None:
        assert findings.refused(PAGE) == []

    def test_own_prose_states_no_figure_of_a_record(self) -> None:
        """A figure with three decimals is a measured one; those come from tables alone."""
        own = "".join(path.read_text("utf-8") for path in PAGES if path.stem != "commands")
        own = PLACE.sub("", own)
        assert set(re.findall(r"(?<![\d.])[01]\.\d+", own)) <= SETTINGS
        assert not re.search(r"\d \[-?\d", own), "an interval"

    def test_attention_is_needed_where_its_verdict_says_so(self) -> None:
        said = BLOCKS["chunking_conll2000_findings"].replace("\n  ", " ")
        assert "which in no corpus" not in PAGE
        assert "shown to be needed on IMDb" in said
        assert "without enough seeds to say on SST with phrases" in said


@pytest.mark.parametrize(
    ("place", "table", "column", "words", "other", "lost"),
    [
        (
            "wiegreffe_pinter_sst_findings",
            "wiegreffe_pinter_sst_table2",
            "F1 of positive",
            ("uniform less trained",),
            "-0.020 [-0.030, -0.010]",
            "Uniform attention is not shown to cost F1",
        ),
        (
            "wiegreffe_pinter_sst_findings",
            "wiegreffe_pinter_sst_table3",
            "less shuffled",
            ("the adversary's",),
            "-0.010 [-0.030, 0.010]",
            "The perceptron performs worse",
        ),
        (
            "wiegreffe_pinter_imdb_findings",
            "wiegreffe_pinter_imdb_table3",
            "less uniform",
            ("the base's",),
            "0.005 [-0.006, 0.013]",
            "The weights of this base guide the perceptron better",
        ),
        (
            "chunking_conll2000_findings",
            "chunking_conll2000_models",
            "chunk F1, less trained",
            ("uniform attention",),
            "-0.001 [-0.006, 0.004]",
            "Attention is needed here",
        ),
        (
            "serrano_finding",
            "serrano_claims",
            "holds",
            ("with an encoder the gradient finds a smaller set for over half of the texts",),
            "9",
            "It needs fewer removals for over half",
        ),
        (
            "scaled_dot_finding",
            "tau",
            "tau with gradient",
            ("SST", "average", "scaled dot"),
            "0.34 [0.30, 0.38]",
            "has the opposite sign",
        ),
        (
            "answers",
            "wiegreffe_pinter_imdb_table2",
            "F1 of positive",
            ("uniform less trained",),
            "-0.001 [-0.006, 0.004]",
            "In the tagger clearly, on IMDb a little",
        ),
        (
            "answers",
            "permutation",
            "median TVD, median over texts",
            ("SST, sentences",),
            "0.400 [0.390, 0.410]",
            "In sentiment it mostly can",
        ),
        (
            "cards_finding",
            "cards",
            "does it rank by importance?",
            ("IMDb, BiLSTM",),
            "in part: 0.70 [0.65, 0.75]",
            "Not reconciled is IMDb",
        ),
        (
            "pairs_findings",
            "pairs_shuffled",
            "here, all texts",
            ("SNLI", "class 0"),
            "0.200 [0.180, 0.220]",
            "Shuffling contradicts the published figures on SNLI",
        ),
        (
            "planted_finding",
            "evidence",
            "AUPRC of the model's attention",
            ("planted, no encoder", "for or against the label"),
            "0.300 [0.250, 0.350]",
            "attention ranks the keywords first",
        ),
    ],
)
def test_a_changed_row_refuses_its_sentence(
    place: str, table: str, column: str, words: tuple[str, ...], other: str, lost: str
) -> None:
    row = findings.Tables(BLOCKS).rows(table, *words)[0]
    line = next(
        text
        for text in BLOCKS[table].splitlines()
        if all(f"| {cell} |" in text for cell in list(row.values())[1:])
    )
    assert line.count(f"| {row[column]} |") == 1
    blocks = changed(table, line, line.replace(f"| {row[column]} |", f"| {other} |"))
    assert not findings.refused(sentences(BLOCKS)[place])
    assert any(lost in sentence for sentence in findings.refused(sentences(blocks)[place]))


def test_a_changed_verdict_changes_the_list(tmp_path: Path) -> None:
    name = "wiegreffe_pinter_imdb_verdict"
    blocks = changed(name, "Attention is needed here", "Inconclusive")
    said = sentences(blocks)["chunking_conll2000_findings"].replace("\n  ", " ")
    assert "seeds to say on SST with phrases and IMDb" in said
    assert "; shown to be needed on" not in said
    assert any(
        "As in the paper, attention is needed" in sentence
        for sentence in findings.refused(sentences(blocks)["wiegreffe_pinter_imdb_findings"])
    )


@pytest.mark.parametrize("check", [True, False])
def test_a_refused_sentence_fails_the_command(
    check: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = "serrano_claims"
    first = "first items of gradient flip fewer decisions than attention's"
    line = next(text for text in BLOCKS[table].splitlines() if first in text)
    row = [cell.strip() for cell in line.strip("|").split("|")]
    row[4] = row[3]  # holds in all cases
    blocks = changed(table, line, f"| {' | '.join(row)} |")
    blocks |= sentences(blocks)
    pages = [path.read_text("utf-8") for path in build_results.PAGES]
    copies = [tmp_path / path.name for path in build_results.PAGES]
    for copy, text in zip(copies, build_results.fill(pages, blocks), strict=True):
        copy.write_text(text, encoding="utf-8")
    monkeypatch.setattr(build_results, "blocks", lambda records: blocks)
    monkeypatch.setattr(build_results, "draw_tables", lambda tables, folder: None)
    monkeypatch.setattr(build_results, "PAGES", copies)
    assert build_results.main(["--check"] if check else []) == 1
    assert "The gradient's first item flips fewer decisions" in capsys.readouterr().err


def test_refused_sentences_are_marked_and_lists_are_wrapped_behind_their_marks() -> None:
    name = "wiegreffe_pinter_imdb_verdict"
    blocks = changed(name, "Attention is needed here", "Inconclusive")
    text = sentences(blocks)["wiegreffe_pinter_imdb_findings"]
    assert text.startswith("* <!-- refused: As in the paper")
    assert {line[:2] for line in text.splitlines()} == {"* ", "  "}
    assert max(map(len, text.splitlines())) <= 105

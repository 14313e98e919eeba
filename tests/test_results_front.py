"""The front page of results: its answers, the claims of each paper, and the verdict cards."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from attnlight.errors import InputError
from tests.kept import BLOCKS, DOCS, FRONT, PAGES, page

ROOT = DOCS.parent
LINES = FRONT.read_text(encoding="utf-8").splitlines()
papers, cards, figures, findings = map(page, ("papers", "cards", "figures", "findings"))
DASH = page("tables").DASH
TABLES = findings.Tables(BLOCKS)
CARD = ROOT / "attnlight/trained/sst/report/verdict.json"

# What a reader asks, words of the line that answers it, and the cell whose figure it states.
QUESTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Does attention rank words as the gradient does?": (
        "a Kendall's tau of",
        ("tau", "tau with gradient", "SST", "BiLSTM", "additive"),
    ),
    "Does another seed attend to the same words?": (
        "is not shown to agree",
        ("reliability", "attention with itself", "SST", "BiLSTM", "additive"),
    ),
    "What happens if attention is shuffled?": (
        "moves the probability by a median of",
        ("permutation", "median TVD, median", "SST, sentences"),
    ),
    "How different may attention be at the same prediction?": (
        "of the largest JS",
        ("adversary", "share of ceiling", "SST", "CNN", "additive"),
    ),
    "Does the model need its attention at all?": (
        "of chunk F1 on CoNLL-2000",
        ("chunking_conll2000_models", "chunk F1, less trained", "uniform attention"),
    ),
    "Can a model be trained to predict alike and attend elsewhere?": (
        "imitates a base ends at",
        ("wiegreffe_pinter_sst_table4", "JS", "best less other seeds"),
    ),
    "Can a model hide the words that it uses?": (
        "at an accuracy of",
        ("pruthi", "accuracy", "pronoun", "BiLSTM", "1"),
    ),
    "Is a tagger's attention more stable than a classifier's?": (
        "tau between seeds is",
        ("chunking_conll2000_distances", "tau", "other seeds of base-s0"),
    ),
    "Is attention on the words that decide?": (
        "ranks planted keywords first",
        ("evidence", "AUPRC of the model's attention", "planted, no encoder", "all"),
    ),
    "What should I show instead of attention?": (
        "Integrated gradients are more faithful than attention in",
        ("saliency_right", "Kendall's tau", "comprehensiveness", "all"),
    ),
}


def answer(words: str) -> str:
    """The item of a list, or the row of a table, that has some words."""
    text = re.sub(r"\n  (?! )", " ", "\n".join(LINES))
    (line,) = (line for line in text.splitlines() if words in line)
    return line


class TestPage:
    def test_has_at_most_250_lines(self) -> None:
        assert len(LINES) <= 250

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_answers_what_a_reader_asks(self, question: str) -> None:
        words, cell = QUESTIONS[question]
        number = TABLES.cell(*cell).number.removeprefix("-")
        said = answer(words)
        assert number in said or f" {100 * float(number):.0f} to " in said

    def test_six_answers_of_at_most_four_sentences(self) -> None:
        answers = BLOCKS["answers"].replace("\n  ", " ").splitlines()
        assert len(answers) == 6
        for line in answers:
            assert re.match(r"\* \*\*[A-Z][^*]+\?\*\* [A-Z]", line)
            assert 2 <= len(re.findall(r"\.(?= [A-Z`]|$)", line)) <= 4, line

    def test_every_paper_has_a_table_a_figure_and_a_page(self) -> None:
        sections = "\n".join(LINES).partition("## The papers' claims")[2].split("\n### ")[1:]
        assert len(sections) == len(papers.claim_tables(TABLES)) == 6
        for section in sections:
            assert len(re.findall(r"<!-- claims_\w+: begin -->", section)) == 1
            assert len(re.findall(r"^!\[.+\]\(figures/\w+\.png\)$", section, re.MULTILINE)) == 1
            assert re.search(r"\]\(results/\w+\.md\)", section)

    @pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
    def test_tells_no_history_of_the_project(self, path: Path) -> None:
        assert not re.search(
            r"\b(landed|issue \d+)\b|\(target|its target", path.read_text(encoding="utf-8")
        )


def test_figures_have_the_cells_of_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "figure_bytes", lambda figure, _: drawn.append(figure) or b"png")
    figures.draw_tables(TABLES, tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == [
        *("jain_wallace", "saliency", "serrano_smith")
    ]
    for figure, table, column, words in zip(
        drawn,
        ("tau", "serrano_fraction", "saliency_faithfulness"),
        ("tau with leave-one-out", "gradient", "comprehensiveness"),
        ((), ("left out",), ("gradient",)),
        strict=True,
    ):
        (axes,) = figure.axes
        line = axes.containers[1].lines[0]  # the second series
        cells = [findings.Cell(row[column]) for row in TABLES.rows(table, *words)]
        np.testing.assert_allclose(line.get_xdata(), [cell.value for cell in cells])
        labels = [text.get_text() for text in axes.get_yticklabels()]
        places = [labels[round(-place)] for place in line.get_ydata()]
        names = [tuple(row.values())[:2] for row in TABLES.rows(table, *words)]
        for label, (corpus, model) in zip(places, names, strict=True):
            assert label.startswith(f"{corpus}, {model}")


def table_of(*rows: str) -> Any:
    """A table of models with a tau each, and their seeds."""
    return findings.Tables(
        {"t": "\n".join(["| model | seeds | tau |", "| --- | --- | --- |", *rows]) + "\n"}
    )


class TestClaims:
    CLAIM: dict[str, Any] = {  # noqa: RUF012
        "claim": "tau is low",
        "published": "0.3",
        "below": 0.5,
        "cases": [{"table": "t", "column": "tau", "label": "model"}],
    }

    def row(self, tmp_path: Path, tables: Any, **changed: Any) -> list[str]:
        path = tmp_path / "papers.yaml"
        path.write_text(yaml.safe_dump({"claims_x": [self.CLAIM | changed]}, allow_unicode=True))
        line = papers.claim_tables(tables, path)["claims_x"].splitlines()[2]
        return [cell.strip() for cell in line.strip("|").split(" | ")]

    @pytest.mark.parametrize(
        ("cell", "seeds", "said"),
        [
            ("0.30 [0.20, 0.40]", "5", "agrees"),
            ("0.30 ± 0.10 [0.20, 0.40]", "8 (guided by 4)", "not shown"),
            ("0.30 [0.20, 0.40]", "4 of 5", "not shown"),
            ("0.30 [0.20, 0.60]", "5", "not shown"),
            ("0.60 [0.50, 0.70]", "5", "**does not**"),  # below 0.5: 0.5 is outside
            ("0.4", "5 of 5", "agrees"),  # a figure without an interval
            ("0.30 (0.20, 0.40 by seed)", "5", "agrees"),
            ("0.30 (0.20, 0.40 by seed)", "2", "not shown"),
            ("0.45 (0.55, 0.35 by seed)", "5", "not shown"),
            ("0.60 (0.55, 0.65 by seed)", "5", "**does not**"),
            ("0.30 (no interval)", "5", "not shown"),
            ("0.30 [0.20, 0.40]", "8 (guided by 1)", "not shown"),
        ],
    )
    def test_one_model(self, tmp_path: Path, cell: str, seeds: str, said: str) -> None:
        found = self.row(tmp_path, table_of(f"| A | {seeds} | {cell} |"))
        assert found[:2] == ["tau is low", "0.3"]
        assert found[2] == "A " + re.sub(r" ± [\d.]+", "", cell)
        assert found[4] == said

    @pytest.mark.parametrize(
        ("holds", "still_open", "fails", "published", "said"),
        [
            (3, 0, 1, "all", "agrees"),
            (5, 0, 2, "all", "**does not**"),
            (5, 1, 2, "all", "not shown"),
            (5, 0, 3, "10 of 16", "agrees"),
            (5, 0, 4, "10 of 16", "**does not**"),
            (11, 0, 1, "16 of 16", "agrees"),
        ],
    )
    def test_several_models(
        self, tmp_path: Path, holds: int, still_open: int, fails: int, published: str, said: str
    ) -> None:
        kinds = {
            "0.10 [0.00, 0.20]": holds,
            "0.50 [0.40, 0.60]": still_open,
            "0.70 [0.60, 0.80]": fails,
        }
        cells = [cell for cell, count in kinds.items() for _ in range(count)]
        rows = [f"| {number} | 2 | {cell} |" for number, cell in enumerate(cells)]
        found = self.row(tmp_path, table_of(*rows), published=published)
        assert found[2].startswith(f"{holds} of {len(cells)}")
        assert (", 1 open" in found[2]) == (still_open == 1)
        assert found[2].endswith("(0.10 to 0.70)")
        assert found[3:5] == [str(2 * len(cells)), said]

    def test_verdicts_sides_and_another_column(self, tmp_path: Path) -> None:
        tables = table_of(
            "| A | 9 | holds |",
            "| B | 8 (guided by 3) | does not (open) |",
            f"| C | {DASH} | {DASH} |",
        )
        assert self.row(tmp_path, tables)[2:4] == ["A holds, B does not (open)", "9 + 3"]
        wide = "| model | seeds | tau | other |\n| --- | --- | --- | --- |\n"
        wide += f"| A less B | {DASH} | 0.30 [0.25, 0.40] | 0.10 [0.00, 0.20] |\n"
        wide += f"| A | 9 | 0.30 | {DASH} |\n| B | 6 | 0.30 | {DASH} |\n"
        case = self.CLAIM["cases"][0] | {"rows": ["A less B"], "sides": ["A", "B"]}
        tables = findings.Tables({"t": wide})
        assert self.row(tmp_path, tables, cases=[case])[3:5] == ["6", "agrees"]
        apart = self.row(tmp_path, tables, cases=[case | {"than": "other"}])
        assert apart[4] == "agrees"
        tables["t"] = wide.replace("[0.00, 0.20]", "[0.00, 0.25]")
        touching = self.row(tmp_path, tables, cases=[case | {"than": "other"}])
        assert touching[4] == "not shown"

    def test_every_reason_and_every_table_of_the_page_is_rendered(self) -> None:
        for place, table in papers.claim_tables(TABLES).items():
            assert BLOCKS[place] == table
            rows = findings.Tables({place: table}).rows(place)
            assert all(row["here"] != DASH and row["models"] for row in rows)
            assert "nan" not in table
            assert "{" not in table

    def test_without_runs_nothing_is_shown(self, tmp_path: Path) -> None:
        tables = findings.Tables({"t": "| corpus |\n| --- |\n| not shown: no run yet |\n"})
        assert self.row(tmp_path, tables)[2:5] == [DASH, "", "not shown"]

    def test_perceptrons_of_one_base_are_one_model(self) -> None:
        """Eight and five perceptrons are guided by the attention of a single base."""
        for corpus, seeds in (("sst", 8), ("imdb", 5)):
            name = f"wiegreffe_pinter_{corpus}_table3"
            assert TABLES.rows(name, "the base's")[0]["seeds"] == f"{seeds} (guided by 1)"
        rows = TABLES.rows("claims_wiegreffe_pinter")
        guided = [row for row in rows if "a base's attention guides" in row["claim"]]
        assert [(row["models"], row["outcome"]) for row in guided] == [("1", "not shown")] * 2

    def test_an_outcome_follows_its_table(self) -> None:
        name = "wiegreffe_pinter_imdb_table2"
        changed = findings.Tables(BLOCKS | {name: BLOCKS[name].replace("-0.003]", "0.003]")})
        rows = {
            table: findings.Tables(papers.claim_tables(of)).rows("claims_wiegreffe_pinter")[0]
            for table, of in (("before", TABLES), ("after", changed))
        }
        assert [row["outcome"] for row in rows.values()] == ["agrees", "not shown"]


class TestCards:
    def test_models_stand_in_their_order(self, tmp_path: Path) -> None:
        for name in ("another_model", "planted_none", "sst_cnn"):
            shutil.copyfile(CARD, tmp_path / f"{name}.json")
        rows = findings.Tables({"cards": cards.card_table(tmp_path)}).rows("cards")
        assert [row["model"] for row in rows] == [
            "SST, CNN",
            "planted, no encoder",
            "another model",
        ]
        lines = json.loads(CARD.read_text(encoding="utf-8"))["lines"]
        for row in rows:
            for line, cell in zip(lines, list(row.values())[1:], strict=True):
                assert cell.startswith(line["answer"])
                assert ("[" in cell) == (line["value"] is not None)
                if line["value"] is not None:
                    assert f"{line['value']:.2f} [{line['low']:.2f}, {line['high']:.2f}]" in cell

    def test_without_cards_there_is_a_sentence(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            assert cards.card_table(folder) == "No card is archived.\n"

    @pytest.mark.parametrize("text", ["{}", "[1]", '{"lines": [{"name": "ranks"}]}', "not JSON"])
    def test_a_file_that_is_no_card_is_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "sst_cnn.json").write_text(text)
        with pytest.raises(InputError, match=r"sst_cnn\.json"):
            cards.card_table(tmp_path)

"""The pages of results say what their records say, and their sentences stand only with their tables."""

import importlib
import re
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from attnlight.errors import InputError
from attnlight.report.study import read_study
from attnlight.report.verdict.estimate import rules
from attnlight.storage.files import read_yaml
from tests.kept import BLOCKS, DOCS, FRONT, PAGE, PAGES, PLACE, archived, page
from tests.report.fake import write_record

build_results = importlib.import_module("build_results")
findings, papers, cards, figures, studies, distributions = map(
    page, ("findings", "papers", "cards", "figures", "studies", "distributions")
)
DASH, table = page("tables").DASH, page("tables").table
TABLES = findings.Tables(BLOCKS)
# Figures in the page's own prose: settings, published figures, and the one run that is not kept.
SETTINGS = {
    *("0.834", "0.850", "0.870", "0.884", "0.885", "0.887", "0.888", "0.961"),  # IMDb, seed 0
    *("0.882", "0.891", "0.899"),  # the taggers' earlier settings
    *("0.00001", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05"),
    *("0.1", "0.2", "0.5", "0.693"),
}


@pytest.fixture(scope="module")
def archive() -> Any:
    """The archived runs."""
    return page("archive").Archive(archived(), read_yaml(DOCS / "results/published.yaml"))


def of_tables(archive: Any, names: Iterable[str]) -> dict[str, str]:
    return {name: build_results.build_table(archive, name) for name in names}


def of_studies(archive: Any, names: str) -> dict[str, str]:
    """The blocks of some of the studies, by a pattern of their names."""
    with TemporaryDirectory() as folder:
        for path in (archived() / "studies").glob(names):
            Path(folder, path.name).symlink_to(path)
        return studies.study_blocks(Path(folder), archive.published)


READINGS = sorted(build_results.TABLES.keys() - {"pairs_reasons"})
SLOW = {"readings 0", "readings 3", "readings 5", "reasons", "erasures"}
PARTS: dict[str, Callable[[Any], dict[str, str]]] = {  # each takes seconds
    **{f"readings {k}": partial(of_tables, names=READINGS[k::6]) for k in range(6)},
    "reasons": lambda archive: of_tables(archive, ["pairs_reasons"]),
    "erasures": lambda archive: page("claims").serrano_tables(
        page("serrano").read_models(archive), archive.published
    ),
    **{f"studies {names}": partial(of_studies, names=names) for names in ("w*", "[!w]*")},
    "claims": lambda archive: papers.claim_tables(TABLES),
    "cards": lambda archive: {"cards": cards.card_table(DOCS / "results/cards.parquet")},
    "sentences": lambda archive: findings.findings(BLOCKS, build_results.PLACES),
}


class TestPages:
    @pytest.mark.parametrize(
        "part", [pytest.param(x, marks=[pytest.mark.slow] * (x in SLOW)) for x in PARTS]
    )
    def test_agree_with_their_records(self, part: str, archive: Any) -> None:
        found = PARTS[part](archive)
        for name in found.keys() - build_results.LEFT_OUT:
            assert found[name].strip() == BLOCKS[name].strip(), name

    def test_a_changed_figure_or_a_refused_sentence_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copies = [shutil.copy(path, tmp_path) for path in build_results.PAGES]
        blocks = {name: text.rstrip("\n") + "\n" for name, text in BLOCKS.items()}
        for name, given in {
            "unpack": lambda records, root: None,
            "blocks": lambda records, runs: blocks,
            "draw_tables": lambda tables, folder: None,
            "draw_distributions": lambda archive, folder: None,
            "PAGES": [Path(copy) for copy in copies],
        }.items():
            monkeypatch.setattr(build_results, name, given)
        assert build_results.main(["--check"]) == 0, capsys.readouterr().out
        right = (path := tmp_path / "jain_wallace.md").read_text()
        line = blocks["accuracy"].splitlines()[2]
        path.write_text(right.replace(line, line.replace("0.", "0.9", 1)))
        assert build_results.main(["--check"]) == 1
        assert f"+{line}" in capsys.readouterr().out
        assert build_results.main([]) == 0
        assert path.read_text() == right
        blocks["serrano_finding"] = "<!-- refused: The gradient\nwins. -->\n"
        for options in (["--check"], []):
            assert build_results.main(options) == 1
            assert "The gradient wins." in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["more", "accuracy"])  # without a table, and of two pages
    def test_a_place_that_is_not_one_table_s_is_refused(self, name: str) -> None:
        pages = [path.read_text("utf-8") for path in build_results.PAGES]
        with pytest.raises(InputError, match=f"places for .*'{name}'"):
            build_results.fill([*pages, f"<!-- {name}: begin -->\n<!-- {name}: end -->\n"], BLOCKS)

    def test_are_linked_from_the_front_page_which_is_short(self) -> None:
        assert sorted(build_results.PAGES) == sorted(PAGES)
        links = re.findall(r"\(results/(\w+)\.md\)", FRONT.read_text("utf-8"))
        assert sorted(set(links)) == sorted(build_results.NAMES)
        assert len(FRONT.read_text("utf-8").splitlines()) <= 250

    def test_their_prose_states_no_figure_of_a_record_and_no_history(self) -> None:
        """A figure with three decimals is a measured one; those come from tables alone."""
        own = "".join(path.read_text("utf-8") for path in PAGES if path.stem != "commands")
        own = PLACE.sub("", own)
        assert set(re.findall(r"(?<![\d.])[01]\.\d+", own)) <= SETTINGS
        assert not re.search(r"\d \[-?\d", own), "an interval"
        assert not re.search(r"\b(landed|issue \d+)\b|\(target|its target", PAGE)

    def test_six_answers_of_at_most_four_sentences(self) -> None:
        answers = BLOCKS["answers"].replace("\n  ", " ").splitlines()
        assert len(answers) == 6
        for line in answers:
            assert re.match(r"\* \*\*[A-Z][^*]+\?\*\* [A-Z]", line)
            assert 2 <= len(re.findall(r"\.(?= [A-Z`]|$)", line)) <= 4, line

    def test_every_paper_has_a_table_a_figure_and_a_page(self) -> None:
        text = FRONT.read_text("utf-8").partition("## The papers' claims")[2]
        sections = text.split("\n### ")[1:]
        assert len(sections) == len(papers.claim_tables(TABLES)) == 7
        for section in sections:
            assert len(re.findall(r"<!-- claims_\w+: begin -->", section)) == 1
            assert len(re.findall(r"^!\[.+\]\(figures/\w+\.png\)$", section, re.MULTILINE)) == 1
            assert re.search(r"\]\(results/\w+\.md\)", section)

    def test_name_the_commands_of_their_runs(self) -> None:
        commands = (DOCS / "results/commands.md").read_text()
        for run in archived().glob("*/seed*"):
            study, dash, _ = run.parent.name.partition("-")
            assert (study if dash else f"`{study}`") in commands or "minilm" in study, run


def test_figures_have_the_cells_of_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "figure_bytes", lambda figure, _: drawn.append(figure) or b"png")
    figures.draw_tables(TABLES, tmp_path)
    second = (  # series of each figure
        ("tau", "tau with leave-one-out"),
        ("serrano_fraction", "gradient", "left out"),
        ("saliency_faithfulness", "comprehensiveness", "gradient"),
    )
    line = drawn.pop().axes[0].containers[1].lines[0]
    shares = [f"{share} %" for share in (10, 30, 50, 70, 90)]
    cells = [findings.Cell(row[x]) for row in TABLES.rows("roar", "gradient") for x in shares]
    np.testing.assert_allclose(line.get_xdata(), [cell.value for cell in cells])
    line = drawn.pop().axes[0].containers[1].lines[0]
    second_condition = figures.NAMES["figures"]["honest"][1]
    cells = TABLES.figures("honest_differences", "difference", second_condition)
    np.testing.assert_allclose(line.get_xdata(), [cell.value for cell in cells])
    for figure, series in zip(drawn, second, strict=True):
        line = figure.axes[0].containers[1].lines[0]
        cells, labels = TABLES.figures(*series), figure.axes[0].get_yticklabels()
        np.testing.assert_allclose(line.get_xdata(), [cell.value for cell in cells])
        words = [*TABLES.rows(series[0], *series[2:])[0].values()]
        assert labels[round(-line.get_ydata()[0])].get_text().startswith(", ".join(words[:2]))


def test_every_figure_of_texts_is_on_its_page_and_as_its_words_say(archive: Any) -> None:
    kinds, of_bilstms, shorter = set(), 0, 0
    for name, kind, title, rows in distributions.panels_of_runs(archive):
        kinds.add((name, kind))
        if kind == "differences" and "BiLSTM" in title:  # its medians are right of 0
            pooled = rows["prediction"].max() > 2
            classes = np.zeros(len(rows["prediction"])) if pooled else rows["prediction"]
            for other, label in product(("loo", "input_gradient"), np.unique(classes)):
                less = rows["tau_input_gradient_loo"] - rows[f"tau_attention_{other}"]
                assert np.nanmedian(less[classes == label]) > 0, title
            of_bilstms += 1
        if kind == "divergences":  # the search is further left
            assert np.nanmedian(rows["search_js"]) < np.nanmedian(rows["worst_js"]), title
            shorter += 1
    assert (of_bilstms, shorter) == (9, 37)
    kinds |= {("wiegreffe_pinter", kind) for kind in ("seeds", "adversaries")}
    for name, kind in kinds:
        path = DOCS / f"figures/{name}_{kind}.png"
        assert path.stat().st_size < 150_000
        text = (DOCS / f"results/{name}.md").read_text("utf-8")
        assert len(re.findall(rf"^!\[.+\]\(\.\./figures/{path.name}\)$", text, re.MULTILINE)) == 1


class TestSentences:
    def test_a_cell_has_a_figure_and_an_interval(self) -> None:
        cell = findings.Cell("-0.018 ± 0.01 [-0.034, -8.43e-04]")
        assert (cell.value, cell.number) == (-0.018, "-0.018")
        assert (cell.above, cell.below, cell.open) == (False, True, False)
        assert (cell.size, str(cell)) == ("0.018 [8.43e-04, 0.034]", "-0.018 [-0.034, -8.43e-04]")
        two = findings.Cell("-0.30 (-0.40, -0.20 by seed)")
        assert (two.value, two.range, two.below) == (-0.3, (-0.4, -0.2), False)
        assert all(findings.Cell(x).open for x in ("0.1 [-0.1, 0.2]", "0.1 [0.000, 0.2]"))
        assert findings.Cell("-0.30 ± 0.1 (no interval)").range == (-np.inf, np.inf)
        with pytest.raises(InputError, match="no row of y"):
            findings.Tables({"t": "| a |\n| --- |\n| x |\n"}).rows("t", "y")

    @pytest.mark.parametrize(
        "case",
        [
            """wiegreffe_pinter_sst_findings; wiegreffe_pinter_sst_table3; less shuffled; the adversary's;
            -0.010 [-0.030, 0.010]; The perceptron performs worse""",
            """chunking_conll2000_findings; chunking_conll2000_models; chunk F1, less trained;
            uniform attention; -0.001 [-0.006, 0.004]; Attention is needed here""",
            """scaled_dot_finding; tau; tau with gradient; SST/average/scaled dot; 0.34 [0.30, 0.38];
            is below the published value""",
            """answers; permutation; median TVD, median over texts; SST, sentences; 0.400 [0.390, 0.410];
            In sentiment it mostly can""",
            """cards_finding; cards; finds, signed; SST, no encoder; 1.10 [1.05, 1.15];
            On SST attention orders words""",
            """pairs_findings; pairs; accuracy; bAbI 1/BiLSTM/additive; 0.900 ± 0.001 [0.899, 0.901];
            On bAbI 1 the BiLSTM answers""",
            """planted_finding; evidence; AUPRC of the model's attention; planted, no encoder;
            0.300 [0.250, 0.350]; attention ranks the keywords first""",
        ],
    )
    def test_a_changed_row_refuses_its_sentence(self, case: str) -> None:
        """Place, table, column, words of the row, another cell, and words of the sentence lost."""
        place, name, column, words, other, lost = (
            " ".join(x.split()) for x in re.split(r";\s", case)
        )
        row = TABLES.rows(name, *words.split("/"))[0]
        line = BLOCKS[name].splitlines()[2 + TABLES.rows(name).index(row)]
        new = line.replace(f"| {row[column]} |", f"| {other} |", 1)
        blocks = BLOCKS | {name: BLOCKS[name].replace(line, new)}
        assert not findings.refused(BLOCKS[place])
        refused = findings.refused(text := findings.findings(blocks, build_results.PLACES)[place])
        assert any(lost in sentence for sentence in refused)
        if place.endswith("s"):  # a wrapped list
            assert {line[:2] for line in text.splitlines()} == {"* ", "  "}
        assert max(map(len, text.splitlines())) <= 120


class TestClaims:
    def row(self, tmp_path: Path, cells: list[tuple[str, str]], published: str) -> list[str]:
        """The row of the claim that tau is below 0.5, of models with some seeds and a tau each."""
        rows = [{"model": x, "seeds": seeds, "tau": tau} for x, (seeds, tau) in enumerate(cells)]
        claim = {"claim": "tau is low", "published": published, "below": 0.5}
        claim["cases"] = [{"table": "t", "column": "tau", "label": "model"}]  # type: ignore[assignment]
        path = tmp_path / "papers.yaml"
        path.write_text(yaml.safe_dump({"claims_x": [claim]}, allow_unicode=True))
        shown = papers.claim_tables(findings.Tables({"t": table(rows)}), path)["claims_x"]
        return [cell.strip() for cell in shown.splitlines()[2].strip("|").split(" | ")]

    @pytest.mark.parametrize(
        ("cell", "seeds", "said"),
        [
            ("0.30 [0.20, 0.40]", "5", "agrees"),
            ("0.30 ± 0.10 [0.20, 0.40]", "8 (guided by 4)", "not shown"),
            ("0.30 [0.20, 0.40]", "4 of 5", "not shown"),
            ("0.30 [0.20, 0.60]", "5", "not shown"),
            ("0.60 [0.50, 0.70]", "5", "**does not**"),  # below 0.5: 0.5 is outside
            ("0.4", "5 of 5", "agrees"),  # a figure without an interval
            ("0.30 (0.20, 0.40 by seed)", "2", "not shown"),
            ("0.60 (0.55, 0.65 by seed)", "5", "**does not**"),
            ("0.30 (no interval)", "5", "not shown"),
            ("open: not run", "0", "not shown"),
        ],
    )
    def test_of_one_model(self, tmp_path: Path, cell: str, seeds: str, said: str) -> None:
        assert self.row(tmp_path, [(seeds, cell)], "0.3")[4] == said

    @pytest.mark.parametrize(
        ("counts", "published", "said"),  # cases that hold, are open, and fail
        [
            ((3, 0, 1), "all", "agrees"),
            ((5, 0, 2), "all", "**does not**"),
            ((5, 1, 2), "all", "not shown"),
            ((5, 0, 3), "10 of 16", "agrees"),
            ((5, 0, 4), "10 of 16", "**does not**"),
        ],
    )
    def test_of_several_models(
        self, tmp_path: Path, counts: tuple[int, ...], published: str, said: str
    ) -> None:
        kinds = ("0.10 [0.00, 0.20]", "0.50 [0.40, 0.60]", "0.70 [0.60, 0.80]")
        cells = [("2", x) for x, count in zip(kinds, counts, strict=True) for _ in range(count)]
        found = self.row(tmp_path, cells, published)
        assert found[2].startswith(f"{counts[0]} of {len(cells)}")
        assert found[3:5] == [str(2 * len(cells)), said]


class TestCards:
    def test_numbers_of_all_seeds_by_a_loop(self) -> None:
        found = pd.read_parquet(DOCS / "results/cards.parquet")
        assert len(TABLES.rows("cards")) == found["model"].nunique()
        rows = [row for row in found.to_dict("records") if row["model"] == "sst_bilstm"]
        (shown,) = TABLES.rows("cards", "SST, BiLSTM")
        for heading, line in {"D in the worst class": "ranks", "finds, signed": "finds"}.items():
            values = [row[f"{line}_value"] for row in rows]
            ends = f"{sum(values) / len(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
            assert shown[heading] == ends
        assert shown["sentence, first seed"] == rows[0]["sentence"]
        assert sum(int(x) for x in re.findall(r"\((\d+)\)", shown["answer by seed"])) == len(rows)

    def test_a_run_is_a_row(self, tmp_path: Path) -> None:
        target = tmp_path / "cards.parquet"
        rows = {"somers_d_attention": np.full(40, 0.9), "largest_effect": np.full(40, 2.0)}
        rows |= {"log_odds": np.full(40, 4.0)}
        rows |= {"opposing_mass": np.zeros(40), "prediction": np.zeros(40, np.int64)}
        keys = {"index": np.arange(40), "position": np.zeros(40, np.int64)}
        path = tmp_path / "cards-mine/base-s3/records/test/leave_one_out_agreement.parquet"
        write_record(path, keys | rows, test=path.stem, stage="test", measures=[])
        signed = {x: (x, True) for x in ("attention", *rules()["finds"]["methods"])}
        methods = signed | {f"{x}_by_size": (x, False) for x in signed if x != "attention"}
        found = {f"excess_comprehensiveness_{x}": np.full(40, 0.3) for x in methods}
        about = {x: dict(zip(("name", "signed"), y, strict=True)) for x, y in methods.items()}
        more = {"methods": about, "replacement": "delete"}
        other, told = path.with_stem("faithfulness"), {"stage": "test", "measures": []}
        write_record(other, keys | found, test=other.stem, **told, **more)
        untested = path.parents[3] / "base-s4"
        for run in (path.parents[2], untested):
            run.mkdir(exist_ok=True)
            (run / "status.json").write_text('{"state": "finished"}')
        given = (tmp_path, target, "cards", cards.KEYS, cards.card_of)
        (left_out,) = page("known_answers").archive(*given)
        assert str(untested) in left_out
        (row,) = pd.read_parquet(target).to_dict("records")
        assert (row["model"], row["seed"], row["kind"]) == ("mine", 3, "other")
        assert (row["case"], row["case_if_licensed"]) == ("not_established", "mixing")
        assert row["version"] == rules()["version"]
        assert "| 0.90 [0.90, 0.90] |" in cards.card_table(target)


class TestStudies:
    def test_theirs_stands_beside_ours(self) -> None:
        words = "trained attention (Wiegreffe & Pinter, as recalled, not verified)"
        (row,) = TABLES.rows("wiegreffe_pinter_sst_table2", words)
        assert row["F1 of positive"] == "0.831"

    def test_adversaries_have_the_means_of_their_runs(self) -> None:
        study = read_study(archived() / "studies/wiegreffe_pinter_imdb")
        every = study.measures.join(study.runs[["role", "term", "lam"]], on="run")
        every = every[every["role"] == "adversary"]
        for (term, lam), runs in every.groupby(["term", "lam"]):
            found = TABLES.cell(
                "wiegreffe_pinter_imdb_lambdas", "JS", f"{term.upper()}, λ = {lam:g}"
            )
            assert found.value == pytest.approx(runs["attention_js"].mean(), abs=6e-4)

    def test_nothing_archived_is_nothing_shown(self, tmp_path: Path) -> None:
        assert studies.study_blocks(tmp_path, {}) == {}
        (tmp_path / "x").mkdir()
        (tmp_path / "x/study.json").write_text("{}")
        with pytest.raises(InputError, match="schema"):
            studies.study_blocks(tmp_path, {})

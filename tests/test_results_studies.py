"""The blocks of docs/results.md that come from kept studies."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from torchmetrics.functional.classification import binary_f1_score

from attnlight.errors import InputError
from attnlight.report.study import read_study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.verdict import verdicts
from tests.kept import DOCS, page
from tests.report.study.fake import conditions, whole, whole_tagger

findings, archive_runs = map(page, ("findings", "archive_runs"))
studies = page("studies")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Few resamples: nothing here is held against an interval that they decide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.report.study.estimates.RESAMPLES", 20)
        yield


@pytest.fixture(scope="module")
def published() -> Any:
    return yaml.safe_load((DOCS / "results/published.yaml").read_text())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("studies")
    whole(seeds=2, bases=1, texts=40).write(root / "wiegreffe-pinter")
    other = whole(seeds=1, bases=1, texts=8)
    other.head["experiment"] = "planted_bilstm"
    other.write(root / "planted")
    return root


@pytest.fixture(scope="module")
def blocks(kept: Path, published: Any) -> dict[str, str]:
    found: dict[str, str] = studies.study_blocks(kept, published)
    return found


def assert_alike(again: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Words and counts to the letter, means to a step of the last digit shown."""
    assert again.keys() == found.keys()
    number = re.compile(r"-?\d+\.\d+(?:e-\d+)?")
    for name, text in found.items():
        assert number.sub("#", again[name]) == number.sub("#", text)
        for old, new in zip(*map(number.findall, (text, again[name])), strict=True):
            decimals = 0 if "e" in old else len(old.partition(".")[2])
            step = 1.1 * 10.0**-decimals if decimals else 1e-4
            assert float(new) == pytest.approx(float(old), rel=2e-3, abs=step)


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_a_block_for_each_table_and_study(blocks: dict[str, str]) -> None:
    names = ("table2", "table3", "table4", "seeds", "lambdas", "verdict")
    assert sorted(blocks) == sorted(
        f"{study}_{name}" for study in ("wiegreffe_pinter", "planted") for name in names
    )
    assert all(re.fullmatch(r"\w+", name) for name in blocks)  # as the page's places are named


def test_ours_stands_beside_theirs(blocks: dict[str, str], kept: Path) -> None:
    rows = {row[0]: row for row in cells(blocks["wiegreffe_pinter_table2"])}
    recalled = "(Wiegreffe & Pinter, as recalled, not verified)"
    assert rows[f"trained attention {recalled}"][2] == "0.831"
    assert rows[f"uniform attention {recalled}"][2] == "0.822"
    study = read_study(kept / "wiegreffe-pinter")
    ours = Estimates(study).estimate(study.finished("uniform"), "f1")
    assert rows["uniform attention"][2] == str(ours)
    head, _, *rows3 = cells(blocks["wiegreffe_pinter_table3"])
    assert head[-1] == "Wiegreffe & Pinter, as recalled, not verified"
    assert [row[-1] for row in rows3] == ["0.812", "0.817", "0.824", "–", "0.592", "–"]  # noqa: RUF001
    last = cells(blocks["wiegreffe_pinter_table4"])[-1]
    assert "λ = 0.00105, the published λ = 5.25e-4 converted" in last[0]
    assert last[2:] == ["0.823", "0.036", "0.514"]


def test_every_row_is_as_long_as_its_head(blocks: dict[str, str]) -> None:
    for name, text in blocks.items():
        assert len({len(row) for row in cells(text)}) == (0 if name.endswith("verdict") else 1)


def test_a_corpus_that_they_did_not_use_stands_alone(blocks: dict[str, str]) -> None:
    for name in ("table2", "table3", "table4"):
        assert "recalled" not in blocks[f"planted_{name}"]


def test_sentences_are_those_of_the_report(blocks: dict[str, str], kept: Path) -> None:
    study = read_study(kept / "wiegreffe-pinter")
    for question, sentences in verdicts(Estimates(study)).items():
        assert f"**{question}**" in blocks["wiegreffe_pinter_verdict"]
        for sentence in sentences:
            assert sentence in blocks["wiegreffe_pinter_verdict"]


def test_published_figures_have_a_guide_and_corpus_that_we_know(published: Any) -> None:
    theirs = published["wiegreffe_pinter"]
    for table in ("base_uniform", "guides", "adversary"):
        assert {"sst", "imdb"} <= theirs[table].keys()
    assert set(studies.CORPORA.values()) <= theirs["base_uniform"].keys()
    for guides in theirs["guides"].values():
        assert guides.keys() == {"uniform", "learned", "base", "adversary"}


def test_what_is_kept_of_a_study_gives_the_same_blocks(
    kept: Path, blocks: dict[str, str], published: Any, tmp_path: Path
) -> None:
    assert archive_runs.archive_runs(kept, tmp_path) == []
    folder = tmp_path / studies.FOLDER
    assert_alike(studies.study_blocks(folder, published), blocks)
    for name in ("wiegreffe-pinter", "planted"):
        files = sorted(path.name for path in (folder / name).iterdir())
        assert files == ["study.json", "study.parquet"]


def test_cells_of_adversaries_are_those_of_their_runs(blocks: dict[str, str], kept: Path) -> None:
    tables = findings.Tables(blocks)
    study = read_study(kept / "wiegreffe-pinter")
    every = study.measures.join(study.runs[["role", "term", "lam"]], on="run")
    every = every[every["role"] == "adversary"]
    js = tables.cells("wiegreffe_pinter_lambdas", "JS")
    for (term, lam), runs in every.groupby(["term", "lam"]):
        name = f"{term.upper()}, λ = {lam:g}"
        assert js[name].value == pytest.approx(runs["attention_js"].mean(), abs=6e-4)
    term, lam = study.selected
    chosen = every[(every["term"] == term) & (every["lam"] == lam)]
    twins = every[every["lam"] == 0]
    best, lost, moved = (
        tables.cell("wiegreffe_pinter_table4", column, name).value
        for column, name in (
            ("JS", f"best adversary ({term.upper()}, λ = {lam:g})"),
            ("TVD", "best less λ = 0"),
            ("F1", "best less λ = 0"),
        )
    )
    assert best == pytest.approx(chosen["attention_js"].mean(), abs=6e-4)
    tvd = chosen["prediction_tvd"].mean() - twins["prediction_tvd"].mean()
    assert lost == pytest.approx(tvd, abs=6e-4)
    judged = ("prediction", "label")
    scores = [
        np.mean(
            [
                float(binary_f1_score(*(torch.tensor(run[x].to_numpy()) for x in judged)))
                for _, run in group.groupby("run")
            ]
        )
        for group in (chosen, twins)
    ]
    assert moved == pytest.approx(scores[0] - scores[1], abs=6e-4)


def test_nothing_kept_is_nothing_shown(tmp_path: Path, published: Any) -> None:
    assert studies.study_blocks(tmp_path, published) == {}
    (tmp_path / "x").mkdir()
    (tmp_path / "x/study.json").write_text("{}")
    with pytest.raises(InputError, match="schema"):
        studies.study_blocks(tmp_path, published)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of taggers and one that has conditions."""
    root = tmp_path_factory.mktemp("taggers")
    whole_tagger(sentences=40).write(root / "chunking-small")
    conditions(root, sentences=20)
    return root


@pytest.fixture(scope="module")
def found(collected: Path, published: Any) -> dict[str, str]:
    blocks: dict[str, str] = studies.study_blocks(collected, published)
    return blocks


class TestTaggers:
    def test_a_block_for_each_table_and_one_set_for_all_conditions(
        self, found: dict[str, str]
    ) -> None:
        tables = ("models", "distances", "adversaries", "adversary_distances", "heads", "segments")
        expected = {f"chunking_small_{name}" for name in (*tables, "verdict")}
        expected |= {f"study_{name}" for name in ("exclusivity", "tokens_less_marked", "verdict")}
        assert found.keys() == expected
        assert len(cells(found["study_exclusivity"])) == 2 + 12

    def test_published_f1_stands_below_ours(self, found: dict[str, str], published: Any) -> None:
        for name, theirs in published["chunk_f1"].items():
            figures = [f1 for column in theirs.values() for f1 in column]
            head, _, *rows = cells(found[f"chunking_small_{name}"])
            place = head.index("chunk F1")
            assert [row[place] for row in rows if "(Yang 2020)" in row[0]] == figures
            assert sum(row[place][0].isdigit() for row in rows) > len(figures) + 5

    def test_what_is_kept_says_the_same(
        self, collected: Path, found: dict[str, str], published: Any, tmp_path: Path
    ) -> None:
        assert archive_runs.archive_runs(collected, tmp_path) == []
        again = studies.study_blocks(tmp_path / studies.FOLDER, published)
        assert_alike(again, found)

    def test_kept_sums_are_rounded_and_those_of_conditions_fewer(
        self, collected: Path, tmp_path: Path
    ) -> None:
        archive_runs.archive_runs(collected, tmp_path)
        for place in collected.glob("*/study.parquet"):
            whole_table, table = (
                pq.read_table(place),
                pq.read_table(tmp_path / studies.FOLDER / place.parent.name / place.name),
            )
            fewer = place.parent.name != "chunking-small"
            assert (len(table.column_names) < len(whole_table.column_names)) == fewer
            for name in table.column_names:
                old, new = (values.combine_chunks() for values in (whole_table[name], table[name]))
                assert new.is_null().equals(old.is_null())
                if pa.types.is_list(old.type):
                    assert new.offsets.equals(old.offsets)
                    old, new = old.values, new.values
                if not pa.types.is_floating(old.type):
                    assert new.equals(old)
                    continue
                before, after = (np.array(x, np.float64) for x in (old, new))
                mantissa, _ = np.frexp(after)
                np.testing.assert_array_equal(mantissa * 2**12 % 1, 0 * after)
                np.testing.assert_allclose(after, before, rtol=2.0**-12, atol=0)

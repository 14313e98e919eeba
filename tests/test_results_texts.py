"""The tables of 20 Newsgroups and AG News: what is kept of their runs, beside the published cells."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.studies.spec import read_studies
from tests.kept import BLOCKS, page
from tests.report.fake import Rows
from tests.test_results_pairs import CONFIGS, PUBLISHED, cell, records, write_base

texts, archive, archive_runs = map(page, ("texts", "archive", "archive_runs"))
findings, tables = map(page, ("findings", "tables"))
NAMES = [*texts.MODELS]


def of_two_classes(seed: int) -> dict[str, Rows]:
    """Records of every test that the page needs of a condition."""
    found = {
        x: dict(rows) for x, rows in records(seed).items() if x in archive_runs.NEEDED[NAMES[0]]
    }
    label = np.arange(40) % 2
    wrong = np.random.default_rng(seed).random(40) < 0.2
    for rows in found.values():
        rows["prediction"] = np.where(wrong, 1 - label, label)
    found["predictions"]["label"] = label
    found["attention_permutation"]["max_attention"] = np.linspace(0.1, 0.9, 40)
    return found


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    """Two seeds of the first condition, of 20 Newsgroups, and one of the fourth."""
    for name, seed in ((NAMES[0], 0), (NAMES[0], 1), (NAMES[3], 0)):
        write_base(tmp_path / "runs", name, seed, of_two_classes(seed))
    assert archive_runs.archive_runs(tmp_path / "runs", tmp_path / "results") == []
    return archive.Archive(tmp_path / "results", PUBLISHED)


def test_plan_is_that_of_the_study_and_of_the_published_cells() -> None:
    path = CONFIGS / f"studies/{texts.STUDY}.yaml"
    studies = {f"{texts.STUDY}-{study.condition}": study for study in read_studies(path)}
    assert studies.keys() == texts.MODELS.keys()
    assert {name.partition("-")[2] for name in studies} == PUBLISHED["texts"].keys()
    for name, study in studies.items():
        model = texts.MODELS[name]
        assert model.seeds == len(study.base.seeds) == 3
        assert model.words["decoder"] == "affine"
        assert model.words["corpus"] == ("20 Newsgroups" if "20_news" in name else "AG News")


def test_readings_beside_the_published_cells(kept: Any) -> None:
    first, fourth = texts.readings(kept)
    published = PUBLISHED["texts"]["20_newsgroups_sports_bilstm_additive"]
    assert (first["encoder"], first["attention"], first["seeds"]) == (
        "BiLSTM",
        "additive",
        "2 of 3",
    )
    both = [of_two_classes(seed) for seed in range(2)]
    f1, search = [], []
    for run in both:
        label, guess = (run["predictions"][x] == 1 for x in ("label", "prediction"))
        f1.append(2 * (label & guess).sum() / (label.sum() + guess.sum()))
        js = run["adversarial_attention"]
        search.append([np.nanmean(js["search_js"][js["prediction"] == x]) for x in (0, 1)])
    assert cell(first["F1 of the second class"]).value == pytest.approx(np.mean(f1), abs=6e-4)
    by_class = str(first["search by predicted class"]).split(" / ")
    for shown, wanted in zip(by_class, np.mean(search, axis=0), strict=True):
        assert cell(shown).value == pytest.approx(wanted, abs=0.0051)
    assert first["search, published"] == "0.612 / 0.378"
    assert (first["published#f1"], first["published#loo"]) == ("0.917", published["loo"])
    assert "upper bound" not in first
    assert fourth["published#gradient"] is None


def test_kept_columns_and_sentences(kept: Any) -> None:
    assert {"median_tvd", "max_attention"} <= kept[NAMES[0]].test("attention_permutation").keys()
    shown = tables.table(texts.readings(kept), 3)
    said = re.sub(r"\s+", " ", findings.findings(BLOCKS | {"texts": shown})["texts_findings"])
    rows = [*texts.readings(kept)]
    near = sum(
        abs(cell(row["accuracy"]).value - float(row["published#accuracy"])) <= 0.02 for row in rows
    )
    assert f"accuracy is within 0.02 of the published one in {near} of 2 models" in said
    assert "gradient is within 0.1 of the published one in" in said
    assert "of 1 models" in said  # the fourth model's tau is undefined in the paper's files


def test_nothing_kept_is_nothing_shown(tmp_path: Path) -> None:
    assert [*texts.readings(archive.Archive(tmp_path, PUBLISHED))] == []

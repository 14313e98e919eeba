"""A study of a problem that the package does not know: its words and columns say what is shown."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnlight.report.study import write_study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import read_study
from attnlight.report.study.tables import study_tables
from attnlight.report.study.texts import texts
from attnlight.report.study.verdict import compare_groups, verdicts
from tests.cli.test_report import ATTACK, Page
from tests.report.study.fake import FakeTexts

WORDS = {"problem": "sentences", "instance": "sentence", "cluster": "text"}
WORDS |= {"quality": "accuracy", "criterion": "accuracy", "guided": f"a classifier of {ATTACK}"}
RIGHT = {"uniform": 0.8, "base": 0.9, "shuffled": 0.6, "adversary": 0.5}


class FakeSentences(FakeTexts):
    """Right answers are counted, three to a text; there are no labels."""

    def write(self, folder: Path) -> Path:
        super().write(folder)
        table = pd.read_parquet(folder / "study.parquet")
        known = self.label[np.searchsorted(self.index, table["index"])]
        table["correct"] = 3 * (table["prediction"] == known)
        table["instances"] = 3
        for name in ("attention_js", "prediction_tvd"):
            table[name] *= 3
        kept = ["run", "index", "correct", "instances", "attention_js", "prediction_tvd"]
        table[kept].to_parquet(folder / "study.parquet")
        return folder


@pytest.fixture(scope="module")
def fake() -> FakeSentences:
    study = FakeSentences(texts=150)
    study.head["problem"] = WORDS
    study.add("base-s0", "base", 0.9)
    for seed in range(5):
        study.add(f"uniform-s{seed}", "uniform", 0.6, 0.3, seed=seed)
        study.add(f"seed-b0-s{seed}", "seed", 0.9, 0.2, seed=seed)
        for guide, right in RIGHT.items():
            study.add(f"guide-{guide}-s{seed}", "guide", right, guide=guide, seed=seed)
        for lam, js in ((0.0, 0.15), (0.01, 0.6)):
            told = {"term": "kl", "lambda": lam, "seed": seed}
            study.add(f"adversary-kl-l{lam:g}-s{seed}", "adversary", 0.9, js, **told)
    study.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    return study


def test_means_are_over_instances(fake: FakeSentences, estimates: Estimates) -> None:
    runs = estimates.study.finished("uniform")
    right = [np.mean(fake.rows[name]["prediction"] == fake.label) for name in runs.index]
    assert estimates.per_seed(runs, estimates.study.quality) == pytest.approx(right)
    js = [np.mean(fake.rows[name]["attention_js"]) for name in runs.index]
    assert estimates.per_seed(runs, "attention_js") == pytest.approx(js, rel=1e-6)


def test_sentences_and_outcomes(estimates: Estimates) -> None:
    compared = compare_groups(estimates)
    found = {(r.spec.question, r.spec.group, r.spec.against): r.outcome for r in compared}
    adversary = "the attention of this base's adversary"
    shuffled = "the attention of this base shuffled within each text"
    assert found["needed", "uniform attention", "trained attention"] == "below"
    assert found["divergence", "the best adversary", "other seeds"] == "above"
    assert found["guides", adversary, "uniform attention"] == "below"
    assert found["informs", "the attention of this base", shuffled] == "above"
    assert found["informs", adversary, shuffled] == "below"
    said = [sentence for answers in verdicts(estimates).values() for sentence in answers]
    spoken = [row for row in compared if row.spec.question in texts()["outcomes"]]
    assert len(spoken) == 7
    assert all(row.sentence() in said for row in spoken)


def test_a_study_with_losses_is_told_in_its_own_words(fake: FakeSentences, tmp_path: Path) -> None:
    rows_file = fake.write(tmp_path) / "study.parquet"
    table = pd.read_parquet(rows_file)
    table["nll_gold"], table["nll_base"] = 1.5 + table["attention_js"], 1.2
    table.to_parquet(rows_file)
    estimates = Estimates(read_study(tmp_path))
    found = study_tables(estimates)
    names = ["models", "distances", "adversaries", "adversary_distances", "heads", "segments"]
    assert list(found) == names
    assert found["models"].head[2:5] == ["accuracy", "NLL, gold", "NLL, base"]
    uniform = estimates.estimate(estimates.study.finished("uniform"), "nll_gold")
    assert found["models"].rows[2][:4:3] == ["uniform attention", str(uniform)]
    said = [sentence for answers in verdicts(estimates).values() for sentence in answers]
    said += [part for grid in found.values() for part in (grid.title, *grid.to_texts().values())]
    assert not re.search(r"\b(probe|tag|tagger|token)s?\b", " ".join(said))
    assert "nats per sentence" in found["models"].note


def test_the_page_and_the_rows_beside_it(folder: Path, tmp_path: Path) -> None:
    paths = write_study(folder, tmp_path)
    names = {path.name for path in paths}
    assert {"outcome-kl-base-s0.svg", "probes.svg", "estimates.csv"} <= names
    assert not any(name.startswith(("figure5", "tradeoff", "heads")) for name in names)
    page = Page(tmp_path / "index.html")
    assert ATTACK in page.text
    assert not page.tags & {"script", "img"}
    written = pd.read_csv(tmp_path / "verdict.csv")
    compared = compare_groups(Estimates(read_study(folder)))
    assert list(written["outcome"]) == [row.outcome for row in compared]
    assert list(written["mean"]) == pytest.approx([row.estimate.mean for row in compared])
    assert set(written["group_models"]) == {5}

"""Collected results of classifiers, of taggers and of a custom problem."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from attnlight.problems import problem_class
from attnlight.statistics.frontier import thinned
from attnlight.storage.files import read_yaml
from attnlight.studies import state
from attnlight.studies.collect import CLUSTERS, collect
from attnlight.studies.instances import read_instances
from tests.report.fake import write_record
from tests.studies.conftest import MINIMAL, Lab
from tests.studies.fake_records import CLASSES

Done = Callable[[str], tuple[Lab, dict[str, Any]]]
OF_TAGGERS = {"task": "tagging", "target": "tokens", "options": None, "readout": "study"}


def collected_run(lab: Lab, name: str) -> dict[str, Any]:
    return next(run for run in lab.collected()["runs"] if run["name"] == name)


@pytest.mark.parametrize(
    ("name", "problem", "classes", "expected"),
    [
        ("texts", "classification", ["no", "yes"], {"corpus": "planted"}),
        ("tokens", "tagging", CLASSES, {"corpus": "conll2000", "pos": True} | OF_TAGGERS),
    ],
)
def test_entries_of_the_study(
    done: Done, name: str, problem: str, classes: list[str], expected: dict[str, Any]
) -> None:
    lab, content = done(name)
    collected = lab.collected()
    assert [run["name"] for run in collected.pop("runs")] == list(lab.runs(content))
    assert collected.pop("problem") == asdict(problem_class(problem).words(classes))
    best = collected.pop("best")
    assert collected.pop("selected") == best["kl"]
    assert best["kl"].pop("lambda") in (0.05, 0.06)
    assert best["kl"].pop("run").startswith("adversary-kl-l0.0")
    assert best.pop("kl") == {"term": "kl", "reached": True}
    assert [selected["lambda"] for selected in best.values()] == [2.1] * (name == "tokens")
    about = {"experiment": Path(content["experiment"]).stem, "classes": classes}
    assert collected == expected | {"schema": 1, "study": "tiny"} | about


NOTHING = dict.fromkeys(("term", "lambda", "context", "head", "told_by", "epochs", "heads"))
GUIDED = NOTHING | {"role": "guide", "guide": "adversary", "seed": 0, "base": "base-s0"}
GUIDED |= {"state": "finished", "epoch": 1}
VARIANT = GUIDED | {"guide": None}
OF_TOKENS = {"epochs": 7, "heads": [2, 1, 0]}


OF_KL = {"role": "adversary", "seed": 1, "term": "kl", "lambda": 0.06}


@pytest.mark.parametrize(
    ("study", "name", "expected"),
    [
        ("texts", "guide-adversary-s0", GUIDED),
        ("texts", "adversary-kl-l0.06-s1", VARIANT | OF_KL),
        ("tokens", "guide-adversary-tokens-s0", GUIDED | {"context": "tokens"} | OF_TOKENS),
        ("tokens", "uniform-h2-s0", VARIANT | {"role": "uniform", "head": 2} | OF_TOKENS),
    ],
)
def test_entries_of_a_run(done: Done, study: str, name: str, expected: dict[str, Any]) -> None:
    lab, _ = done(study)
    entry = collected_run(lab, name)
    assert entry.pop("validation").keys() >= {"f1", "attention_js"}
    guide_run = {"told_by": lab.collected()["selected"]["run"]} if expected["guide"] else {}
    assert entry == {"name": name} | expected | guide_run


def test_settings_are_read_once_a_run(done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[Path] = Counter()

    def counted(path: Path) -> dict[str, Any]:
        read[path] += 1
        return read_yaml(path)

    monkeypatch.setattr(state, "read_yaml", counted)
    state._fit_config.cache_clear()
    lab, content = done("tokens")
    folder = lab.study_folder(content)
    assert collect(folder)
    fitted = {folder.path / run / "fit.yaml": 1 for run in folder.runs}
    assert {path: read[path] for path in fitted} == fitted


def test_rows_and_validation_of_texts(done: Done) -> None:
    lab, content = done("texts")
    # two of ten predictions are wrong, one of each class
    assert collected_run(lab, "adversary-kl-l0.06-s1")["validation"] == pytest.approx(
        {"accuracy": 0.8, "macro_f1": 0.8, "f1": 0.8, "attention_js": 0.6, "prediction_tvd": 0.06},
        rel=1e-6,
    )
    base = collected_run(lab, "base-s0")
    assert base["validation"]["attention_js"] is None
    assert base["frontier"]["tvd"][0] == 0
    table = pq.read_table(lab.root / "tiny/study.parquet").to_pandas()
    assert len(table) == 10 * len(lab.runs(content))
    assert list(table["run"].unique()) == list(lab.runs(content)), "in order of the plan"
    rows = table[table["run"] == "adversary-kl-l0.06-s1"]
    assert rows["index"].tolist() == list(range(10))
    assert rows["prediction"].tolist() == [1, 0, *([0, 1] * 4)]
    assert rows["label"].tolist() == [0, 1] * 5
    assert set(rows["attention_js"]) == {np.float32(0.6)}
    assert rows["worst_js"].isna().all()
    rows = table[table["run"] == "base-s0"]
    assert rows[["base_max_attention", "search_js"]].isna().all(axis=None)
    assert rows["worst_js"].tolist() == pytest.approx(np.linspace(0.1, 0.5, 10))


def test_worst_case_may_be_measured_on_some_texts_only(lab: Lab) -> None:
    assert lab.run(MINIMAL) == 0
    path = lab.root / "tiny/base-s0/records/test/adversarial_attention.parquet"
    some = {"index": np.array([2, 7]), "worst_js": np.array([0.2, 0.7])}
    write_record(path, some, classes=["no", "yes"])
    found = read_instances(lab.study_folder(MINIMAL), lab.runs(MINIMAL)["base-s0"], "test")
    worst = found.rows()["worst_js"]
    assert np.flatnonzero(~np.isnan(worst)).tolist() == [2, 7]
    assert worst[[2, 7]].tolist() == pytest.approx([0.2, 0.7])


def test_a_thinned_frontier_keeps_its_shape() -> None:
    x = np.sort(np.random.default_rng(0).random(20_000)) ** 2
    y = 0.6 * np.sqrt(x)  # as steep at its start as a frontier is
    kept_x, kept_y = thinned(x, y)
    assert len(kept_x) <= 400
    assert (kept_x[0], kept_x[-1], kept_y[-1]) == (x[0], x[-1], y[-1])
    assert np.abs(np.interp(x, kept_x, kept_y) - y).max() < 1e-3 * y[-1]
    same, _ = thinned(x[:9], y[:9])
    np.testing.assert_array_equal(same, x[:9])


class TestCustomProblem:
    """A problem that gives each sentence of a text a class."""

    INDEX, POSITION = np.array([3, 3, 5, 9, 9, 9]), np.array([0, 1, 0, 0, 1, 2])
    LABEL = np.array([0, 1, 2, 1, 1, 0])
    BASE = np.array([0, 1, 1, 1, 0, 0])

    def write(self, path: Path, **columns: np.ndarray) -> None:
        rows = {"index": self.INDEX, "position": self.POSITION} | columns
        write_record(path, rows, classes=["a", "b", "c"])

    @pytest.mark.parametrize("named", [True, False])
    def test_is_collected_by_text(self, lab: Lab, named: bool) -> None:
        """Whether or not the experiment names the problem: records show instances within texts."""
        problem = "tests.tasks.sentences.Sentences"
        model = {"class_path": "attnlight.tasks.AttentionTask", "init_args": {"problem": problem}}
        model, data = model if named else {"class_path": "toy.Net"}, {"class_path": "toy.Reviews"}
        (lab.folder / "toy.yaml").write_text(yaml.safe_dump({"model": model, "data": data}))
        folder = lab.study_folder(MINIMAL | {"experiment": "toy.yaml", "uniform": {"seeds": [0]}})
        uniform_prediction = np.array([0, 0, 2, 1, 0, 0])
        js, tvd = np.linspace(0.1, 0.6, 6), np.full(6, 0.25)
        for name, prediction in (("base-s0", self.BASE), ("uniform-s0", uniform_prediction)):
            run = folder.path / name
            run.mkdir(parents=True)
            torch.save({"epoch": 1}, run / "best.ckpt")
            (run / "status.json").write_text('{"state": "finished", "epochs": 2}')
            for stage in ("val/{}" if named else "val/{}-1", "test/{}"):
                path = f"{run}/records/{stage}.parquet"
                columns = {"label": self.LABEL, "prediction": prediction}
                self.write(Path(path.format("predictions")), **columns)
                if name != "base-s0":
                    columns = {"prediction": prediction, "base_prediction": self.BASE}
                    columns |= {"attention_js": js, "prediction_tvd": tvd}
                    self.write(Path(path.format("base_divergence")), **columns)
        assert collect(folder)

        collected = json.loads((folder.path / "study.json").read_text())
        assert collected["problem"]["problem"] == ("sentences" if named else "classification")
        base, uniform = collected["runs"]
        assert base["validation"]["accuracy"] == pytest.approx(4 / 6)
        assert uniform["validation"]["attention_js"] == pytest.approx(js.mean())
        table = pq.read_table(folder.path / "study.parquet")
        assert table.schema.names == ["run", *CLUSTERS.names]
        rows = table.to_pandas().query("run == 'uniform-s0'")
        counts = rows[["index", "tokens", "correct", "agree"]].to_numpy()
        assert counts.T.tolist() == [[3, 5, 9], [2, 1, 3], [1, 1, 2], [1, 0, 3]]
        assert rows["attention_js"].tolist() == pytest.approx([0.3, 0.3, 1.5])
        assert rows["gold"].isna().all(), "the problem has no chunks to count"

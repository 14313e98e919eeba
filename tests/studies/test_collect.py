"""Collected results of classifiers, of taggers and of a custom problem."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from attnlight.problems import problem_class
from attnlight.records import ShardWriter, merge_shards
from attnlight.statistics.frontier import thinned
from attnlight.storage.files import read_yaml
from attnlight.studies import state
from attnlight.studies.collect import CLUSTERS, collect
from attnlight.studies.instances import read_instances
from tests.studies.conftest import ALL_ROLES, MINIMAL, TAGGER, Lab
from tests.studies.fake_records import CLASSES


def collected_run(lab: Lab, name: str) -> dict[str, Any]:
    """The entry of a run in `study.json`."""
    return next(run for run in lab.collected()["runs"] if run["name"] == name)


@pytest.mark.parametrize(
    ("content", "problem", "classes", "expected"),
    [
        (ALL_ROLES, "classification", ["no", "yes"], {"corpus": "planted"}),
        (
            TAGGER,
            "tagging",
            CLASSES,
            {
                "corpus": "conll2000",
                "task": "tagging",
                "target": "tokens",
                "options": None,
                "readout": "study",
                "pos": True,
            },
        ),
    ],
    ids=["texts", "tokens"],
)
def test_entries_of_the_study(
    lab: Lab, content: dict[str, Any], problem: str, classes: list[str], expected: dict[str, Any]
) -> None:
    assert lab.run(content) == 0
    collected = lab.collected()
    assert [run["name"] for run in collected.pop("runs")] == list(lab.runs(content))
    assert collected.pop("problem") == asdict(problem_class(problem).words(classes))
    best = collected.pop("best")
    assert collected.pop("selected") == best["kl"]
    assert best["kl"].pop("lambda") in (0.05, 0.06)
    assert best["kl"].pop("run").startswith("adversary-kl-l0.0")
    assert best.pop("kl") == {"term": "kl", "reached": True}
    assert [selected["lambda"] for selected in best.values()] == [2.1] * (content is TAGGER)
    assert collected == expected | {
        "schema": 1,
        "study": "tiny",
        "experiment": Path(content["experiment"]).stem,
        "classes": classes,
    }


GUIDED = {
    "role": "guide",
    "seed": 0,
    "base": "base-s0",
    "guide": "adversary",
    "term": None,
    "lambda": None,
    "state": "finished",
    "epoch": 1,
    "context": None,
    "head": None,
    "told_by": None,
    "epochs": None,
    "heads": None,
}


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (ALL_ROLES, "guide-adversary-s0", GUIDED),
        (
            ALL_ROLES,
            "adversary-kl-l0.06-s1",
            GUIDED | {"role": "adversary", "seed": 1, "guide": None, "term": "kl", "lambda": 0.06},
        ),
        (
            TAGGER,
            "guide-adversary-tokens-s0",
            GUIDED | {"context": "tokens", "epochs": 7, "heads": [2, 1, 0]},
        ),
        (
            TAGGER,
            "uniform-h2-s0",
            GUIDED
            | {"role": "uniform", "guide": None}
            | {"head": 2, "epochs": 7, "heads": [2, 1, 0]},
        ),
    ],
)
def test_entries_of_a_run(
    lab: Lab, content: dict[str, Any], name: str, expected: dict[str, Any]
) -> None:
    assert lab.run(content) == 0
    entry = collected_run(lab, name)
    assert entry.pop("validation").keys() >= {"f1", "attention_js"}
    guide_run = {"told_by": lab.collected()["selected"]["run"]} if expected["guide"] else {}
    assert entry == {"name": name} | expected | guide_run


def test_settings_are_read_once_a_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.run(TAGGER) == 0
    read: Counter[Path] = Counter()

    def counted(path: Path) -> dict[str, Any]:
        read[path] += 1
        return read_yaml(path)

    monkeypatch.setattr(state, "read_yaml", counted)
    state._fit_config.cache_clear()
    folder = lab.study_folder(TAGGER)
    assert collect(folder)
    fitted = {folder.path / run / "fit.yaml": 1 for run in folder.runs}
    assert {path: read[path] for path in fitted} == fitted


def test_rows_and_validation_of_texts(lab: Lab) -> None:
    assert lab.run(ALL_ROLES) == 0
    # two of ten predictions are wrong, one of each class
    assert collected_run(lab, "adversary-kl-l0.06-s1")["validation"] == pytest.approx(
        {"accuracy": 0.8, "macro_f1": 0.8, "f1": 0.8, "attention_js": 0.6, "prediction_tvd": 0.06},
        rel=1e-6,
    )
    base = collected_run(lab, "base-s0")
    assert base["validation"]["attention_js"] is None
    assert base["frontier"]["tvd"][0] == 0
    table = pq.read_table(lab.root / "tiny/study.parquet").to_pydict()
    assert len(table["run"]) == 10 * len(lab.runs(ALL_ROLES))
    assert list(dict.fromkeys(table["run"])) == list(lab.runs(ALL_ROLES)), "in order of the plan"
    rows = np.array(table["run"]) == "adversary-kl-l0.06-s1"
    assert np.array(table["index"])[rows].tolist() == list(range(10))
    assert np.array(table["prediction"])[rows].tolist() == [1, 0, *([0, 1] * 4)]
    assert np.array(table["label"])[rows].tolist() == [0, 1] * 5
    assert set(np.array(table["attention_js"])[rows]) == {float(np.float32(0.6))}
    assert set(np.array(table["worst_js"])[rows]) == {None}
    rows = np.array(table["run"]) == "base-s0"
    assert set(np.array(table["base_max_attention"])[rows]) == {None}
    assert set(np.array(table["search_js"])[rows]) == {None}
    assert np.array(table["worst_js"])[rows].tolist() == pytest.approx(np.linspace(0.1, 0.5, 10))


def test_worst_case_may_be_measured_on_some_texts_only(lab: Lab) -> None:
    assert lab.run(ALL_ROLES) == 0
    path = lab.root / "tiny/base-s0/records/test/adversarial_attention.parquet"
    shard = ShardWriter(path.with_suffix(".arrow"))
    shard.add(np.array([[2, 0], [7, 0]]), {"worst_js": np.array([0.2, 0.7])})
    shard.close()
    merge_shards([shard.path], path, metadata={"classes": ["no", "yes"]})
    found = read_instances(
        lab.study_folder(ALL_ROLES), lab.runs(ALL_ROLES)["base-s0"], "test"
    ).rows()["worst_js"]
    assert np.flatnonzero(~np.isnan(found)).tolist() == [2, 7]
    assert found[[2, 7]].tolist() == pytest.approx([0.2, 0.7])


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

    ROWS = np.array(
        [(index, k) for index, sentences in ((3, 2), (5, 1), (9, 3)) for k in range(sentences)]
    )
    LABEL = np.array([0, 1, 2, 1, 1, 0])
    BASE = np.array([0, 1, 1, 1, 0, 0])

    def write(self, run: Path, file: str, **columns: np.ndarray) -> None:
        (run / "records").mkdir(parents=True, exist_ok=True)
        shard = ShardWriter((run / file).with_suffix(".arrow"))
        shard.add(self.ROWS, columns)
        shard.close()
        merge_shards([shard.path], run / file, metadata={"classes": ["a", "b", "c"]})

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
        for run, prediction in (("base-s0", self.BASE), ("uniform-s0", uniform_prediction)):
            (folder.path / run).mkdir(parents=True)
            torch.save({"epoch": 1}, (folder.path / run) / "best.ckpt")
            ((folder.path / run) / "status.json").write_text('{"state": "finished", "epochs": 2}')
            for stage in ("val/{}" if named else "val/{}-1", "test/{}"):
                path = f"records/{stage}.parquet"
                columns = {"label": self.LABEL, "prediction": prediction}
                self.write((folder.path / run), path.format("predictions"), **columns)
                if run != "base-s0":
                    columns = {"prediction": prediction, "base_prediction": self.BASE}
                    columns |= {"attention_js": js, "prediction_tvd": tvd}
                    self.write((folder.path / run), path.format("base_divergence"), **columns)
        assert collect(folder)

        collected = json.loads((folder.path / "study.json").read_text())
        assert collected["problem"]["problem"] == ("sentences" if named else "classification")
        base, uniform = collected["runs"]
        assert base["validation"]["accuracy"] == pytest.approx(4 / 6)
        assert uniform["validation"]["attention_js"] == pytest.approx(js.mean())
        table = pq.read_table(folder.path / "study.parquet")
        assert table.schema.names == ["run", *CLUSTERS.names]
        rows = [row for row in table.to_pylist() if row["run"] == "uniform-s0"]
        assert [row["index"] for row in rows] == [3, 5, 9]
        assert [row["tokens"] for row in rows] == [2, 1, 3]
        assert [row["correct"] for row in rows] == [1, 1, 2]
        assert [row["agree"] for row in rows] == [1, 0, 3]
        assert [row["attention_js"] for row in rows] == pytest.approx([0.3, 0.3, 1.5])
        assert {row["gold"] for row in rows} == {None}, "the problem has no chunks to count"

"""What is collected of texts, and of a problem that was made up; the runs are stand-ins."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from torchmetrics.functional.classification import (
    binary_f1_score,
    multiclass_accuracy,
    multiclass_f1_score,
)

from attnlight.problems import problem_class
from attnlight.records import ShardWriter, merge_shards
from attnlight.statistics.frontier import thinned
from attnlight.studies.collect import CLUSTERS, Validation, collect, measures
from attnlight.studies.instances import Instances
from attnlight.studies.plan import plan
from attnlight.studies.state import StudyFolder
from tests.studies.conftest import CONTENT, WHOLE, Lab


def scores(label: np.ndarray, prediction: np.ndarray, classes: int) -> dict[str, Any]:
    """Measures of texts of which a base said no more."""
    columns = {"index": np.arange(len(label)), "prediction": prediction}
    names = [str(number) for number in range(classes)]
    found = measures(
        Instances(
            columns, label, prediction, names, {}, np.arange(len(label)), None, clustered=False
        )
    )
    assert (found.pop("attention_js"), found.pop("prediction_tvd")) == (None, None)
    return found


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_are_those_of_torchmetrics(classes: int) -> None:
    random = np.random.default_rng(classes)
    label, prediction = random.integers(0, classes, (2, 200))
    found = scores(label, prediction, classes)
    p, t = torch.from_numpy(prediction), torch.from_numpy(label)
    assert found["accuracy"] == pytest.approx(
        multiclass_accuracy(p, t, classes, average="micro").item()
    )
    assert found["macro_f1"] == pytest.approx(
        multiclass_f1_score(p, t, classes, average="macro").item()
    )
    if classes == 2:
        assert found["f1"] == pytest.approx(binary_f1_score(p, t).item())
    else:
        assert found["f1"] is None


def test_unmeasured_text_is_a_miss() -> None:
    found = scores(np.array([1, 1, 0]), np.array([1, -1, 0]), 2)
    assert found == {
        "accuracy": pytest.approx(2 / 3),
        "macro_f1": pytest.approx((2 / 3 + 1) / 2),
        "f1": pytest.approx(2 / 3),
    }


def test_what_is_collected(lab: Lab) -> None:
    assert lab.run(WHOLE) == 0
    held = lab.collected()
    assert {k: held[k] for k in ("schema", "study", "experiment", "corpus", "classes")} == {
        "schema": 1,
        "study": "tiny",
        "experiment": "planted_bilstm",
        "corpus": "planted",
        "classes": ["no", "yes"],
    }
    assert held["problem"] == asdict(problem_class("classification").words(["no", "yes"]))
    runs = {run["name"]: run for run in held["runs"]}
    assert list(runs) == lab.names(WHOLE)
    own = runs["adversary-kl-l0.06-s1"]
    validation = own.pop("validation")
    assert own == {
        "name": "adversary-kl-l0.06-s1",
        "role": "adversary",
        "seed": 1,
        "base": "base-s0",
        "guide": None,
        "term": "kl",
        "lambda": 0.06,
        "state": "finished",
        "epoch": 1,
    }
    # two of ten predictions are wrong, one of each class
    assert validation == pytest.approx(
        {"accuracy": 0.8, "macro_f1": 0.8, "f1": 0.8, "attention_js": 0.6, "prediction_tvd": 0.06},
        rel=1e-6,
    )
    assert runs["guide-adversary-s0"]["told_by"] == "adversary-kl-l0.05-s0"
    assert runs["base-s0"]["validation"]["attention_js"] is None
    assert runs["base-s0"]["frontier"]["tvd"][0] == 0
    assert "frontier" not in own

    table = pq.read_table(lab.root / "tiny/study.parquet").to_pydict()
    assert len(table["run"]) == 10 * len(runs)
    assert list(dict.fromkeys(table["run"])) == list(runs), "in order of the plan"
    rows = np.array(table["run"]) == "adversary-kl-l0.06-s1"
    assert np.array(table["index"])[rows].tolist() == list(range(10))
    assert np.array(table["prediction"])[rows].tolist() == [1, 0, *([0, 1] * 4)]
    assert np.array(table["label"])[rows].tolist() == [0, 1] * 5
    assert set(np.array(table["attention_js"])[rows]) == {float(np.float32(0.6))}
    assert set(np.array(table["worst_js"])[rows]) == {None}
    base = np.array(table["run"]) == "base-s0"
    assert set(np.array(table["base_max_attention"])[base]) == {None}
    assert set(np.array(table["search_js"])[base]) == {None}
    assert np.array(table["worst_js"])[base].tolist() == pytest.approx(np.linspace(0.1, 0.5, 10))


def test_a_frontier_is_thinned_to_what_it_shows() -> None:
    x = np.sort(np.random.default_rng(0).random(20_000)) ** 2
    y = 0.6 * np.sqrt(x)  # as steep at its start as a frontier is
    few, found = thinned(x, y)
    assert len(few) <= 400
    assert (few[0], few[-1], found[-1]) == (x[0], x[-1], y[-1])
    assert np.abs(np.interp(x, few, found) - y).max() < 1e-3 * y[-1]
    same, _ = thinned(x[:9], y[:9])
    np.testing.assert_array_equal(same, x[:9])


class TestProblemThatWasMadeUp:
    """A class for each sentence of a text, of which nothing but its records is known."""

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

    @pytest.mark.parametrize("known", [True, False])
    def test_is_collected_by_text(self, lab: Lab, known: bool) -> None:
        """Whether or not its name is known: records tell that a text has several instances."""
        problem = "tests.tasks.sentences.Sentences"
        model = {"class_path": "attnlight.tasks.AttentionTask", "init_args": {"problem": problem}}
        model, data = model if known else {"class_path": "toy.Net"}, {"class_path": "toy.Reviews"}
        (lab.folder / "toy.yaml").write_text(yaml.safe_dump({"model": model, "data": data}))
        study = lab.study(CONTENT | {"experiment": "toy.yaml", "uniform": {"seeds": [0]}})
        folder = StudyFolder(lab.root / "tiny", study)
        own = np.array([0, 0, 2, 1, 0, 0])
        js, tvd = np.linspace(0.1, 0.6, 6), np.full(6, 0.25)
        for run, prediction in (("base-s0", self.BASE), ("uniform-s0", own)):
            (folder.path / run).mkdir(parents=True)
            torch.save({"epoch": 1}, (folder.path / run) / "best.ckpt")
            ((folder.path / run) / "status.json").write_text('{"state": "finished", "epochs": 2}')
            for stage in ("val/{}" if known else "val/{}-1", "test/{}"):
                path = f"records/{stage}.parquet"
                told = {"label": self.LABEL, "prediction": prediction}
                self.write((folder.path / run), path.format("predictions"), **told)
                if run != "base-s0":
                    told = {"prediction": prediction, "base_prediction": self.BASE}
                    told |= {"attention_js": js, "prediction_tvd": tvd}
                    self.write((folder.path / run), path.format("base_divergence"), **told)
        assert collect(folder, plan(study), Validation(folder))

        held = json.loads((folder.path / "study.json").read_text())
        assert held["problem"]["problem"] == ("sentences" if known else "classification")
        base, uniform = held["runs"]
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
        assert {row["gold"] for row in rows} == {None}, "it counts nothing"

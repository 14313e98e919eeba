"""Means and sums over the instances of stand-ins for runs, against loops over the records."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from sklearn.metrics import f1_score as f1_of_classes
from torchmetrics.functional.classification import (
    binary_f1_score,
    multiclass_accuracy,
    multiclass_f1_score,
)

from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.studies.collect import collect
from attnlight.studies.instances import Instances, read_instances
from tests.studies.conftest import BROKEN, MINIMAL, TAGGER, Lab
from tests.studies.fake_records import CLASSES, write_records
from tests.studies.sentences import KL, SUMS, collected, expected, loss, tokens

Done = Callable[[str], tuple[Lab, dict[str, Any]]]


def scores(label: np.ndarray, prediction: np.ndarray, classes: int) -> dict[str, Any]:
    """Measures of texts of which a base said no more."""
    names, starts = [str(number) for number in range(classes)], np.arange(len(label))
    values = {"correct": prediction == label}
    found = Instances({"prediction": prediction}, label, names, starts, values, False).measures()
    assert (found.pop("attention_js"), found.pop("prediction_tvd")) == (None, None)
    return found


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_are_those_of_torchmetrics(classes: int) -> None:
    random = np.random.default_rng(classes)
    label, prediction = random.integers(0, classes, (2, 200))
    found = scores(label, prediction, classes)
    p, t = torch.from_numpy(prediction), torch.from_numpy(label)
    micro = multiclass_accuracy(p, t, classes, average="micro").item()
    macro = multiclass_f1_score(p, t, classes, average="macro").item()
    assert (found["accuracy"], found["macro_f1"]) == pytest.approx((micro, macro))
    expected = pytest.approx(binary_f1_score(p, t).item()) if classes == 2 else None
    assert found["f1"] == expected


def test_unmeasured_text_is_a_miss() -> None:
    found = scores(np.array([1, 1, 0]), np.array([1, -1, 0]), 2)
    assert found == pytest.approx({"accuracy": 2 / 3, "macro_f1": (2 / 3 + 1) / 2, "f1": 2 / 3})


@pytest.mark.parametrize(("name", "group"), [("tokens", None), ("tokens", 10), ("marked", 1)])
def test_rows_are_what_a_loop_finds(
    done: Done, name: str, group: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, content = done(name)
    if group is not None:
        monkeypatch.setattr("attnlight.studies.collect._GROUP", group)
        assert collect(lab.study_folder(content))
    found = collected(lab.root / "tiny")
    assert list(found) == list(lab.runs(content))
    whole, checked = name == "tokens", 0
    for run in lab.runs(content).values():
        folder = lab.root / "tiny" / run.name / "records/test"
        base = None if run.base is None else lab.root / "tiny" / run.base / "records/test"
        for row, (index, sentence) in zip(found[run.name], tokens(folder, base), strict=True):
            wanted = expected(sentence, CLASSES, base=base is None, whole=whole)
            assert row.pop("run") == run.name
            wanted["index"] = index
            assert row.keys() == wanted.keys()
            for column, value in wanted.items():
                close = value if value is None else pytest.approx(value, rel=1e-6)
                assert row[column] == close, (run.name, index, column)
            checked += 1
    assert checked == len(lab.runs(content)) * (6 if whole else 9)
    broken = [row for row in found[BROKEN] if not row["tokens"]]
    assert [row["index"] for row in broken] == [0, 30]


def test_validation_is_of_all_tokens(done: Done) -> None:
    lab, _ = done("tokens")
    for run in lab.collected()["runs"]:
        folder = lab.root / "tiny" / run["name"] / "records/val"
        base = None if run["base"] is None else lab.root / "tiny" / run["base"] / "records/val"
        sentences = [sentence for _, sentence in tokens(folder, base)]
        every = [token for sentence in sentences for token in sentence]
        measured = [token for token in every if token["prediction"] >= 0]
        tags = [
            [[CLASSES[max(int(t[name]), 0)] for t in sentence] for sentence in sentences]
            for name in ("label", "prediction")
        ]
        assert len(measured) == len(every) - 7 * (run["name"] == BROKEN)
        held = run["validation"]
        assert held["f1"] == pytest.approx(f1_score(*tags))
        right = sum(t["prediction"] == t["label"] for t in measured)
        assert held["accuracy"] == pytest.approx(right / len(every))
        assert held["nll_gold"] == pytest.approx(np.mean([loss(t, "label") for t in measured]))
        if base is None:
            own = {"f1", "accuracy", "nll_gold"}
            assert {name for name, value in held.items() if value is not None} == own
            counts = np.bincount([t["prediction"] for t in every]) / len(every)
            entropy = -sum(p * math.log(p) for p in counts if p)
            assert run["ignorant"] == pytest.approx(entropy)
            assert run["heads"] is None
            continue
        assert "ignorant" not in run
        against = [loss(t, "base_prediction") for t in measured]
        assert held["nll_base"] == pytest.approx(np.mean(against))
        for name in SUMS:
            assert held[name] == pytest.approx(np.nanmean([t[name] for t in measured]))
        for name in KL:
            finite = [t[name] for t in measured if math.isfinite(t[name])]
            assert 0 < len(finite) <= len(measured)
            assert held[name] == pytest.approx(np.mean(finite))
        heads = np.mean([t["attention_js_heads"] for t in measured], axis=0)
        assert held["attention_js_heads"] == pytest.approx(heads.tolist())
        assert run["heads"] == [2, 1, 0]


def test_a_run_that_cannot_be_measured(lab: Lab) -> None:
    name = "adversary-kl-l0.06-s0"
    lab.monkeypatch.setenv("FAKE_BREAKS", name)
    lab.monkeypatch.setenv("FAKE_BROKEN", "0 10 20 30 40 50")
    assert lab.run(MINIMAL | {key: TAGGER[key] for key in ("experiment", "adversaries")}) == 0
    held = lab.collected()
    assert held["selected"]["lambda"] == 0.05, "its lambda has no mean"
    own = next(run for run in held["runs"] if run["name"] == name)
    assert own["validation"] == {"f1": 0.0, "accuracy": 0.0} | dict.fromkeys(
        ("nll_gold", "nll_base", *SUMS, *KL, "attention_js_heads")
    )
    rows = collected(lab.root / "tiny")
    gold = {row["index"]: row["gold"] for row in rows["base-s0"]}
    for row in rows[name]:
        counts = [row[name] for name in ("tokens", "correct", "found", "matched", "choices")]
        assert counts == [0] * 5
        assert row["gold"] == gold[row["index"]]


def test_one_answer_a_sentence(done: Done) -> None:
    lab, _ = done("marked")
    held = lab.collected()
    assert held["target"] == "marked"
    record = read_record(lab.root / "tiny/base-s0/records/val/predictions.parquet").columns
    by_hand = f1_of_classes(record["label"], record["prediction"], average="macro")
    assert held["runs"][0]["validation"]["f1"] == pytest.approx(by_hand)


def test_one_head_and_records_of_other_tokens(lab: Lab) -> None:
    content = MINIMAL | {"experiment": TAGGER["experiment"], "seeds": {"seeds": [1]}}
    assert lab.run(content) == 0
    folder, run = lab.study_folder(content), lab.runs(content)["seed-b0-s1"]
    records = folder.path / run.name / "records"
    for stage in ("val", "test"):
        write_records(records / stage, "tokens", js=0.1, heads=1)
    found = read_instances(folder, run, "test").rows()
    assert found["attention_js_heads"].shape == (6, 1)
    np.testing.assert_array_equal(found["attention_js_heads"][:, 0], found["attention_js"])
    np.testing.assert_array_equal(found["attention_js_mean"], found["attention_js"])
    held = read_instances(folder, run, "val").measures()
    assert held["attention_js_heads"] == [held["attention_js"]]
    write_records(records / "test", "marked", js=0.1)
    with pytest.raises(InputError, match="has other rows than the records beside it"):
        read_instances(folder, run, "test")

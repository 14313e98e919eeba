"""What is collected of a study of taggers, against loops over the records; the runs are stand-ins."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score
from sklearn.metrics import f1_score as f1_of_classes

from attnlight.errors import InputError
from attnlight.problems import problem_class
from attnlight.records import read_record
from attnlight.studies.collect import measures, text_rows
from attnlight.studies.instances import read_instances
from attnlight.studies.plan import plan
from tests.studies.conftest import CONTENT, TAGGER, Lab
from tests.studies.fake_records import CLASSES, write_records
from tests.studies.sentences import SUMS, collected, expected, loss, tokens

MARKED: dict[str, Any] = CONTENT | {
    "experiment": TAGGER["experiment"],
    "options": {"data": {"target": "marked"}},
    "adversaries": {"lambdas": {"kl": [0, 0.05]}, "seeds": [0]},
}


def close(value: Any) -> Any:
    return value if value is None else pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("content", "group"),
    [(TAGGER, 1 << 17), (TAGGER, 10), (MARKED, 1)],
    ids=["tokens", "tokens in groups", "marked"],
)
def test_rows_are_what_a_loop_finds(
    lab: Lab, content: dict[str, Any], group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlight.studies.collect._GROUP", group)
    monkeypatch.setenv("FAKE_BREAKS", "adversary-kl-l0.05-s0")
    monkeypatch.setenv("FAKE_BROKEN", "0 30")
    assert lab.run(content) == 0
    found = collected(lab.root / "tiny")
    assert list(found) == lab.names(content)
    whole, checked = content is TAGGER, 0
    for run in plan(lab.study(content)):
        folder = lab.root / "tiny" / run.name / "records/test"
        base = None if run.base is None else lab.root / "tiny" / run.base / "records/test"
        for row, (index, sentence) in zip(found[run.name], tokens(folder, base), strict=True):
            wanted = expected(sentence, CLASSES, base=base is None, whole=whole)
            assert row.pop("run") == run.name
            wanted["index"] = index
            assert row.keys() == wanted.keys()
            for name, value in wanted.items():
                assert row[name] == close(value), (run.name, index, name)
            checked += 1
    assert checked == len(lab.names(content)) * (6 if whole else 9)
    broken = [row for row in found["adversary-kl-l0.05-s0"] if not row["tokens"]]
    assert [row["index"] for row in broken] == [0, 30]


def test_validation_is_of_all_tokens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BREAKS", "adversary-kl-l0.05-s0")
    monkeypatch.setenv("FAKE_BROKEN", "20")
    assert lab.run(TAGGER) == 0
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
        assert len(measured) == len(every) - 7 * (run["name"] == "adversary-kl-l0.05-s0")
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
        heads = np.mean([t["attention_js_heads"] for t in measured], axis=0)
        assert held["attention_js_heads"] == pytest.approx(heads.tolist())
        assert run["heads"] == [2, 1, 0]


def test_what_is_said_of_the_study(lab: Lab) -> None:
    assert lab.run(TAGGER) == 0
    held = lab.collected()
    runs = held.pop("runs")
    assert held.pop("problem") == asdict(problem_class("tagging").words(CLASSES, "tokens"))
    selected = {"run": "adversary-kl-l0.05-s0", "term": "kl", "lambda": 0.05, "reached": True}
    assert held["selected"] == held["best"]["kl"]
    assert held["selected"] in (
        selected,
        selected | {"run": "adversary-kl-l0.06-s0", "lambda": 0.06},
    )
    assert held["best"]["compat"]["lambda"] == 2.1
    assert {k: v for k, v in held.items() if k not in ("selected", "best")} == {
        "schema": 1,
        "study": "tiny",
        "experiment": "conll2000_study",
        "corpus": "conll2000",
        "classes": CLASSES,
        "task": "tagging",
        "target": "tokens",
        "options": None,
        "readout": "study",
        "pos": True,
    }
    told = next(run for run in runs if run["name"] == "guide-adversary-tokens-s0")
    del told["validation"]
    assert told == {
        "name": "guide-adversary-tokens-s0",
        "role": "guide",
        "seed": 0,
        "base": "base-s0",
        "guide": "adversary",
        "context": "tokens",
        "head": None,
        "term": None,
        "lambda": None,
        "state": "finished",
        "told_by": held["selected"]["run"],
        "epoch": 1,
        "epochs": 7,
        "heads": [2, 1, 0],
    }
    assert next(run for run in runs if run["name"] == "uniform-h2-s0")["head"] == 2


def test_a_run_that_cannot_be_measured(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BREAKS", "adversary-kl-l0.06-s1")
    monkeypatch.setenv("FAKE_BROKEN", "0 10 20 30 40 50")
    assert lab.run(TAGGER) == 0
    held = lab.collected()
    assert held["selected"]["lambda"] == 0.05, "its lambda has no mean"
    own = next(run for run in held["runs"] if run["name"] == "adversary-kl-l0.06-s1")
    assert own["validation"] == {"f1": 0.0, "accuracy": 0.0} | dict.fromkeys(
        ("nll_gold", "nll_base", *SUMS, "attention_js_heads")
    )
    gold = {row["index"]: row["gold"] for row in collected(lab.root / "tiny")["base-s0"]}
    for row in collected(lab.root / "tiny")["adversary-kl-l0.06-s1"]:
        counts = [row[name] for name in ("tokens", "correct", "found", "matched", "choices")]
        assert counts == [0] * 5
        assert row["gold"] == gold[row["index"]]


def test_one_answer_a_sentence(lab: Lab) -> None:
    assert lab.run(MARKED) == 0
    held = lab.collected()
    assert held["target"] == "marked"
    record = read_record(lab.root / "tiny/base-s0/records/val/predictions.parquet").columns
    by_hand = f1_of_classes(record["label"], record["prediction"], average="macro")
    assert held["runs"][0]["validation"]["f1"] == pytest.approx(by_hand)


def test_one_head(lab: Lab) -> None:
    assert lab.run(TAGGER) == 0
    folder, runs = lab.state(TAGGER), {run.name: run for run in plan(lab.study(TAGGER))}
    run = runs["seed-b0-s1"]
    for stage in ("val", "test"):
        write_records((folder.path / run.name) / "records" / stage, "tokens", js=0.1, heads=1)
    found = text_rows(folder, run)
    assert found["attention_js_heads"].shape == (6, 1)
    np.testing.assert_array_equal(found["attention_js_heads"][:, 0], found["attention_js"])
    np.testing.assert_array_equal(found["attention_js_mean"], found["attention_js"])
    held = measures(read_instances(folder, run, "val"))
    assert held["attention_js_heads"] == [held["attention_js"]]


def test_records_of_other_tokens(lab: Lab) -> None:
    assert lab.run(TAGGER) == 0
    folder, run = lab.state(TAGGER), plan(lab.study(TAGGER))[1]
    write_records((folder.path / run.name) / "records/test", "marked", js=0.1)
    with pytest.raises(InputError, match="holds other rows than the records beside it"):
        text_rows(folder, run)


CONDITIONS: dict[str, Any] = {
    name: value for name, value in MARKED.items() if name != "options"
} | {
    "conditions": {
        "tokens": {},
        "marked": {"options": {"data": {"target": "marked", "pos": False}}},
        "text": {"base": {"options": {"model": {"readout": "text"}}}},
    }
}


class TestConditions:
    @pytest.fixture(autouse=True)
    def compared(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Path]]:
        """What was compared, and where that went."""
        calls: list[dict[str, Path]] = []

        def write(folders: dict[str, Path], output: Path) -> list[Path]:
            calls.append({**folders, "": output})
            return [output / "exclusivity.md"]

        monkeypatch.setattr("attnlight.report.study.conditions.write_exclusivity", write)
        return calls

    def test_each_has_a_folder(self, lab: Lab, compared: list[dict[str, Path]]) -> None:
        assert lab.run(CONDITIONS) == 0
        names = list(CONDITIONS["conditions"])
        assert [name for _, name in lab.started()].count("base-s0") == 3 * len(names)
        assert compared == [{n: lab.root / f"tiny-{n}" for n in names} | {"": lab.root / "tiny"}]
        told = {}
        for name in names:
            held = json.loads((lab.root / f"tiny-{name}/study.json").read_text())
            assert (held["study"], held["options"]) == (f"tiny-{name}", name)
            told[name] = held["target"], held["readout"], held["pos"]
        assert told == {
            "tokens": ("tokens", "study", True),
            "marked": ("marked", "study", False),
            "text": ("tokens", "text", True),
        }
        lab.calls()
        assert lab.run(CONDITIONS, "--name=other", "--only=base") == 0
        assert len(compared) == 1, "no adversary is there"
        assert (lab.root / "other-text/study.json").is_file()

    def test_the_worst_status_counts(
        self, lab: Lab, compared: list[dict[str, Path]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_FAILS", "adversary-kl-l0.05-s0")
        monkeypatch.setenv("FAKE_FAILS_IN", "tiny-marked")
        assert lab.run(CONDITIONS) == 1
        assert [set(call) for call in compared] == [{"tokens", "text", ""}]
        assert lab.run(CONDITIONS, "--shard=2/2") == 1
        monkeypatch.delenv("FAKE_FAILS")
        assert lab.run(CONDITIONS) == 0
        assert len(compared[-1]) == 4

    def test_dry_run_lists_all(self, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
        assert lab.run(CONDITIONS, "--dry-run") == 0
        printed = capsys.readouterr().out
        assert [line for line in printed.splitlines() if "/" in line] == [
            f"{lab.root}/tiny-{name}" for name in CONDITIONS["conditions"]
        ]
        assert printed.count("3 runs of 3") == 3

    def test_of_classifiers_are_not_compared(
        self, lab: Lab, compared: list[dict[str, Path]]
    ) -> None:
        one = {"options": {"trainer": {"max_epochs": 1}}}
        assert lab.run(CONTENT | {"conditions": {"one": one, "two": {}}}) == 0
        assert (lab.root / "tiny-two/study.json").is_file()
        assert compared == []

    def test_one_of_another_study_is_told_before_any_is_run(
        self, lab: Lab, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert lab.run(CONDITIONS) == 0
        lab.calls()
        other = CONDITIONS["conditions"] | {"text": {"options": {"data": {"pos": False}}}}
        assert lab.run(CONDITIONS | {"conditions": other}) == 2
        assert "tiny-text holds another study" in capsys.readouterr().err
        assert lab.calls() == []


def test_the_comparison_is_written(lab: Lab) -> None:
    """By the report itself, from what is collected."""
    assert lab.run(CONDITIONS) == 0
    written = (lab.root / "tiny/exclusivity.csv").read_text()
    assert all(name in written for name in CONDITIONS["conditions"])

"""A table is a corpus: what `fit`, `validate` and `test` find in it by themselves."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from attnlight.__main__ import main
from attnlight.records.reading import read_record
from tests.commands import CPU, QUIET, Printed, Refused, without_figures
from tests.data.local import write_table
from tests.huggingface.folders import write_model

ROWS = [(n, f"film {n} was {('bad', 'good')[n % 2]}", ("neg", "pos")[n % 2]) for n in range(60)]
SMALL = [*CPU, *QUIET, "--trainer.logger=false", "--trainer.max_epochs=1"]
SMALL += ["--model.net.embedding_size=4", "--model.net.hidden_size=2"]
MODEL = ["--model", "bilstm_additive", "--model.vectors.path=null"]
NAMES = ("id", "sentence", "verdict")
OPTIONS = "--data.text sentence --data.label verdict"
CUT = "--data.test_fraction 0.2 --data.validation_fraction 0.1"
FIXED = ["--data.text=sentence", "--data.train=train", "--data.test_fraction=0.2"]


@pytest.fixture
def table(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(here / "cache"))
    write_table(here / "all.csv", ROWS, NAMES)
    return here / "all.csv"


def data_of(run: str, verb: str = "fit") -> dict[str, Any]:
    content = yaml.safe_load(Path(run, f"{verb}.yaml").read_text())
    options: dict[str, Any] = content["data"]["init_args"]
    return {name: value for name, value in options.items() if value is not None}


def said(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if "is read with" in line]


def test_what_fit_finds_is_written_down_and_is_what_its_options_say(
    table: Path, printed: Printed, refused: Refused
) -> None:
    fit = ["fit", *MODEL, "--data=all.csv", *SMALL]
    line = f"all.csv is read with {OPTIONS} {CUT}, since nothing else is named."
    assert said(printed(*fit)) == [line]
    (run,) = Path("checkpoints/all").iterdir()
    found = {"text": "sentence", "label": "verdict", "train": "train"}
    found |= {"validation_fraction": 0.1, "test_fraction": 0.2}
    assert data_of(str(run)).items() >= found.items()
    # Named or found, the run is the same, in any order; its own file finds nothing anew.
    refused("fit", *FIXED, *SMALL, "--data=all.csv", *MODEL, names=["already contains this run"])
    again = ["fit", f"--config={run}/fit.yaml", "--experiment=all", f"--run={run.name}"]
    assert said(printed(*again, "--ckpt_path=last", "--trainer.max_epochs=2")) == []
    assert said(printed(*fit, f"--run={run.name}", "--ckpt_path=last", "--trainer.max_epochs=3"))
    assert json.loads((run / "status.json").read_text())["epochs"] == 3


def test_one_table_is_tested_whole_unless_the_model_was_trained_on_it(
    table: Path, printed: Printed
) -> None:
    assert main(["fit", *MODEL, "--data=all.csv", "--run=r", *SMALL]) == 0
    run, predictions = Path("checkpoints/all/r"), without_figures("tests.yaml", "predictions")
    write_table(table.parent / "new.csv", ROWS[::-1][:40], NAMES)
    write_table(table.parent / "folder/dev.csv", ROWS[:20], NAMES)
    write_table(table.parent / "folder/train.csv", ROWS, NAMES)

    def tested(data: str, *options: str) -> list[str]:
        return said(printed("test", str(run), *predictions, *QUIET, "--data", data, *options))

    assert tested("all.csv") == [
        f"all.csv is read with {OPTIONS} {CUT}, since nothing else is named."
    ]
    own = read_record(run / "records/test/predictions.parquet")
    assert len(own.columns["index"]) == 12  # a fifth, cut before training
    (line,) = tested("new.csv")
    assert line == f"new.csv is read with {OPTIONS} --data.test train, since nothing else is named."
    whole = read_record(run / "records/test-new/predictions.parquet")
    assert whole.columns["index"].tolist() == list(range(40))
    assert np.bincount(whole.columns["label"]).tolist() == [20, 20]
    assert "train" not in data_of(str(run), "test-new")
    printed("validate", str(run), *predictions, *QUIET, "--data=folder")
    record = read_record(run / "records/val-folder/predictions.parquet")
    assert len(record.columns["index"]) == 20


def test_what_is_found_may_be_typed_as_it_is_said(table: Path, printed: Printed) -> None:
    write_table(table.parent / "spaces.csv", ROWS, ("id", " a text", "label's"))
    fit = ["fit", *MODEL, "--data=spaces.csv", "--run=r", *SMALL]
    (line,) = said(printed(*fit))
    given = shlex.split(line.removeprefix("spaces.csv is read with ").rpartition(",")[0])
    assert given[:4] == ["--data.text", " a text", "--data.label", "label's"]


def test_one_table_tests_a_model_from_elsewhere(table: Path, printed: Printed) -> None:
    write_model(
        Path("finetuned"), texts=[text for _, text, _ in ROWS], id2label={0: "neg", 1: "pos"}
    )
    predictions = without_figures("tests.yaml", "predictions")
    assert said(
        printed("test", "finetuned", "--data=all.csv", "--run=r", *predictions, *SMALL[:-2])
    )
    record = read_record(Path("checkpoints/finetuned/r/records/test/predictions.parquet"))
    assert len(record.columns["index"]) == 60
    assert record.columns["label"].tolist() == [0, 1] * 30


TAGS = {"the": "DET", "dog": "NOUN", "cat": "NOUN", "runs": "VERB"}
CHUNKS = {"the": "B-NP", "dog": "E-NP", "cat": "S-NP", "runs": "O"}
SENTENCES = [["the", "dog", "runs"], ["cat", "runs"], ["the", "dog"]] * 8


def write_tags(path: Path, tags: dict[str, str]) -> None:
    """Sentences of which no two are alike."""
    lists = [[(f"{word}{n}", tags[word]) for word in words] for n, words in enumerate(SENTENCES)]
    if path.suffix == ".jsonl":
        columns = [
            dict(zip(("tokens", "tags"), zip(*pairs, strict=True), strict=True)) for pairs in lists
        ]
        path.write_text("\n".join(map(json.dumps, columns)))
    else:
        path.write_text("\n".join("".join(f"{w} {t}\n" for w, t in pairs) for pairs in lists))


@pytest.mark.parametrize(
    ("name", "tags", "measures"),
    [
        ("pos.conll", TAGS, {"accuracy", "f1", "loss"}),
        ("bioes.jsonl", CHUNKS, {"accuracy", "f1", "precision", "recall", "loss"}),
    ],
)
def test_a_file_of_tags_trains_a_tagger(
    table: Path, printed: Printed, name: str, tags: dict[str, str], measures: set[str]
) -> None:
    write_tags(table.parent / name, tags)
    tagger = ["--model.net.hidden_size=8", "--model.net.heads=2"]
    words = [*CPU, *QUIET, "--trainer.logger=false", "--trainer.max_epochs=1", *tagger]
    text = printed("fit", f"--data={name}", *words, "--model=tagger_bilstm", "--run=r")
    assert len(said(text)) == 1
    run = Path("checkpoints", Path(name).stem, "r")
    predictions = without_figures("tests.yaml", "predictions")
    text = printed("test", str(run), *predictions, *QUIET)
    assert not said(text)
    assert all(re.search(rf"\b{measure}\b", text) for measure in measures)
    assert ("precision" in text) == ("precision" in measures)
    record = read_record(run / "records/test/predictions.parquet")
    assert set(record.metadata["classes"]) >= {*tags.values()}


def test_a_table_trains_a_translator(table: Path, printed: Printed) -> None:
    sides = {"source": "sentence", "target": "verdict"}
    options = [f"--data.{name}={column}" for name, column in sides.items()]
    printed("fit", "--model=seq2seq_small", "--data=all.csv", *options, "--run=r", *SMALL)
    assert data_of("checkpoints/all/r").items() >= sides.items()

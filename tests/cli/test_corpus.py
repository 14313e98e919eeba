"""What can be judged of a corpus is judged before a model, a logger or a folder is made."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError
from tests.commands import CONFIGS, CPU, QUIET, Refused
from tests.data.local import write_corpus

MODEL = ["--model", f"{CONFIGS}/models/bilstm_additive.yaml"]
COLUMNS = {"text": [f"text {i}" for i in range(20)], "label": [0, 1, 2, 1] * 5}


def untouchable(*arguments: Any, **options: Any) -> None:
    raise AssertionError("a model was made")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path / "corpus", train=COLUMNS, dev=COLUMNS, test=COLUMNS)
    write_corpus(tmp_path / "halved", train=COLUMNS)
    return tmp_path


def command(verb: str, *more: str, **options: Any) -> list[str]:
    data = {"class_path": "attnlight.datamodules.TextDataModule", "init_args": options}
    Path("corpus.yaml").write_text(yaml.safe_dump(data))
    trainer = ["-c", f"{CONFIGS}/trainer.yaml"]
    place = ["--experiment", "mine", "--run", "first"]
    return [verb, *trainer, *MODEL, "--data", "corpus.yaml", *place, *CPU, *QUIET, *more]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "corpus", "text": "sentence"}, ["sentence", "text, label"]),
        ({"path": "corpus", "classes": {"a": 1.5}}, ["classes", "1.5"]),
        ({"path": "corpus", "test": "tset"}, ["'tset'", "'test'", "test_fraction"]),
        ({"path": "halved", "validation_fraction": 0}, ["validation_fraction", "halved"]),
        ({"path": "corpus.csv"}, ["corpus.csv"]),
    ],
)
def test_a_corpus_that_cannot_be_used_stops_fit_before_all_else(
    here: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    words: list[str],
) -> None:
    monkeypatch.setattr(torch.nn.Embedding, "__init__", untouchable)
    before = sorted(here.iterdir())
    said = refused(*command("fit", **options), names=words)
    assert said.count("Given value") + said.count("given value") <= 1
    assert set(here.iterdir()) - {here / "cache", here / "corpus.yaml"} == set(before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "corpus", "label": "lable"}, "'lable'.*'label'"),
        ({"path": "corpus", "classes": {"a": 0, "b": 7}}, "7.*0, 1, 2"),
        ({"path": "corpus", "train": "tarin"}, "'tarin'.*'train'"),
        ({"path": "corpus", "test_fraction": 1.5}, "test_fraction.*1.5"),
        ({"path": "halved", "test": "test"}, "halved.*'test'.*test_fraction"),
    ],
)
def test_a_corpus_that_cannot_be_used(here: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TextDataModule(**options).prepare()

"""What Weights & Biases is told, read back from the files of an offline run."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import CONFIGS, CPU, QUIET, attnlight, experiment

pytestmark = pytest.mark.slow
OPTIONS = [
    *experiment("planted_bilstm"),
    "-c",
    f"{CONFIGS}/tests/cheap.yaml",
    "--data.train_size=300",
    "--data.validation_size=101",
    "--trainer.max_epochs=2",
    *CPU,
    *QUIET,
]
COLUMNS = {
    "predictions": ("max_attention", "attention_entropy"),
    "attention_permutation": ("median_tvd", "median_js", "flip_rate"),
}


def records(path: Path) -> Iterator[Any]:
    """The protobuf records of a `.wandb` file, a LevelDB log of 32 KiB blocks."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def history(path: Path) -> set[str]:
    return {
        "/".join(item.nested_key) or item.key
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
        for item in record.history.item
    }


def config(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        update = {"run": record.run.config.update, "config": record.config.update}.get(kind, ())
        for item in update:
            values["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return values


def summary(path: Path) -> dict[str, Any]:
    return {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for record in records(path)
        if record.WhichOneof("record_type") == "summary"
        for item in record.summary.update
    }


def test_the_verdict_card_reaches_the_summary(tmp_path: Path) -> None:
    small = ["--data.test_size=80", "--trainer.max_epochs=1", "--model.net.hidden_size=8"]
    attnlight(
        "fit", *OPTIONS, *small, f"--root={tmp_path}", "--experiment=e", "--run=r", cwd=tmp_path
    )
    run = str(tmp_path / "e/r")
    command = ["test", run, "--tests", "decision_flip,predictions", *CPU, *QUIET]
    attnlight(*command, cwd=tmp_path, WANDB_MODE="offline", WANDB_API_KEY="")
    (path,) = Path(run).glob("wandb/offline-run-*/*.wandb")
    said = summary(path)
    card = json.loads(Path(run, "report/verdict.json").read_text(encoding="utf-8"))
    assert [line["name"] for line in card["lines"]][1] == "smallest_set"
    for line in card["lines"]:
        name = f"verdict/{line['name']}"
        assert said[f"{name}_answer"] == line["answer"]
        assert said[f"{name}_text"] == line["text"]
        for end in ("value", "low", "high"):
            assert said.get(f"{name}_{end}") == line[end]


def test_curves_images_and_configuration_reach_wandb(tmp_path: Path) -> None:
    command = ["fit", *OPTIONS, f"--root={tmp_path}", "--experiment=e"]
    printed = attnlight(*command, "--run=first", cwd=tmp_path, WANDB_MODE="", WANDB_API_KEY="")
    assert printed.count("this run is offline") == 1
    folder = tmp_path / "e/first"
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    assert (folder / "wandb_id").read_text().strip() in path.name
    logged = history(path)
    for test, columns in COLUMNS.items():
        for column in columns:
            for end in ("", "_low", "_high"):
                assert f"val/{test}/{column}{end}" in logged
    assert "val/accuracy" in logged
    assert any(name.startswith("val/attention_permutation/figure") for name in logged)
    assert list(path.parent.glob("files/media/images/**/*.png"))
    whole = yaml.safe_load((folder / "fit.yaml").read_text())
    assert config(path)["fit"] == json.loads(json.dumps(whole))

    before = path.read_bytes()
    printed = attnlight(*command, "--run=second", cwd=tmp_path, WANDB_MODE="offline")
    assert "wandb" in printed
    assert "anonymous" not in printed
    assert path.read_bytes() == before
    assert len(list(tmp_path.glob("e/*/wandb/offline-run-*/*.wandb"))) == 2

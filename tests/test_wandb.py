"""What Weights & Biases is told, read back from the files of an offline run."""

import csv
import json
import re
import struct
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlight.callbacks import BaseDivergence
from attnlight.callbacks.hooks.wandb_run import sections
from tests.commands import CONFIGS, CPU, QUIET, attnlight, attnlight_here, experiment

pytestmark = pytest.mark.slow
OPTIONS = [*experiment("planted_bilstm"), "-c", f"{CONFIGS}/tests/cheap.yaml", *CPU, *QUIET]
OPTIONS += ["--data.train_size=300", "--data.validation_size=101", "--data.test_size=80"]
OPTIONS += ["--trainer.max_epochs=2"]
ENDS = ("value", "low", "high")
CURVES = {  # headlines first
    "adversarial_attention": {"worst_js", "worst_share", "upper_js"},
    "attention_permutation": {"median_tvd", "median_js", "flip_rate"},
    "decision_flip": {f"removed_fraction_{x}" for x in ("attention", "gradient")}
    | {"excess_attention"},
    "predictions": {"max_attention", "attention_entropy"},
    "single_erasure": {"outdone_expected_attention", "flip_top_attention", "flip_top_gradient"},
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


def plain(items: Any) -> dict[str, Any]:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def parts(path: Path, kind: str) -> list[Any]:
    """What the records of one kind hold."""
    return [getattr(r, kind) for r in records(path) if r.WhichOneof("record_type") == kind]


def history(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's history."""
    return [plain(part.item) for part in parts(path, "history")]


def told(path: Path, name: str) -> dict[str, Any]:
    """What a run's configuration or summary, `config` or `summary`, holds in the end."""
    first = [run.config for run in parts(path, "run")] if name == "config" else []
    updates = [plain(part.update) for part in (*first, *parts(path, name))]
    return {key: value for update in updates for key, value in update.items()}


def logged_as_csv(folder: Path, stage: str) -> list[dict[str, float]]:
    """What the CSV logger was given of a stage, one mapping for each epoch."""
    files = folder.glob("logs/version_*/metrics.csv")
    (path,) = (path for path in files if f"{stage}/loss" in path.read_text())
    with path.open() as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return [row for row in rows if f"{stage}/loss" in row]


def assert_sections(path: Path, folder: Path, stage: str) -> None:
    """The curves and the table of each epoch are what the CSV logger was given, under W&B's names."""
    rows = [row for row in history(path) if f"{stage}/loss" in row]
    epochs = logged_as_csv(folder, stage)
    assert len(rows) == len(epochs) > 0
    for row, logged in zip(rows, epochs, strict=True):
        table = json.loads((path.parent / "files" / row[f"measures/{stage}/path"]).read_text())
        assert table["columns"] == ["test", "measure", "mean", "low", "high"]
        told = {
            f"{stage}/{test}/{measure}{end}": value
            for test, measure, *values in table["data"]
            for end, value in zip(("", "_low", "_high"), values, strict=True)
            if value is not None
        }
        of_tests = {name: value for name, value in logged.items() if name.count("/") == 2}
        assert told == pytest.approx(of_tests, nan_ok=True)
        sections: dict[str, set[str]] = {}
        for key in row:
            if (found := re.fullmatch(rf"(\w+)/{stage}_(\w+)", key)) and found[1] != "trainer":
                sections.setdefault(found[1], set()).add(found[2])
                expected = logged[f"{stage}/{found[1]}/{found[2]}"]
                assert row[key] == pytest.approx(expected, nan_ok=True)
        # Each curve has a band, the ends of its interval; none is undefined.
        bands = {
            test: {f"{m}{end}" for m in names for end in ("", "_low", "_high")}
            for test, names in CURVES.items()
        }
        assert sections == bands
        assert not [key for key in row if key.startswith(f"{stage}/") and key.count("/") > 1]
        assert row[f"{stage}/accuracy"] == pytest.approx(logged[f"{stage}/accuracy"])


def test_a_run_and_its_tests_are_one_in_wandb(tmp_path: Path) -> None:
    command = ["fit", *OPTIONS, f"--root={tmp_path}", "--experiment=e"]
    printed = attnlight(*command, "--run=first", cwd=tmp_path, WANDB_MODE="", WANDB_API_KEY="")
    assert printed.count("this run is offline") == 1
    folder = tmp_path / "e/first"
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    steps = [row["trainer/global_step"] for row in history(path) if "trainer/global_step" in row]
    assert steps == sorted(steps), "figures stand at the steps of their values"
    identity = (folder / "wandb_id").read_text().strip()
    assert identity in path.name
    assert_sections(path, folder, "val")
    assert list(path.parent.glob("files/media/images/attention_permutation/val_figure*.png"))
    whole = yaml.safe_load((folder / "fit.yaml").read_text())
    assert told(path, "config")["fit"] == json.loads(json.dumps(whole))
    (best,) = (metric for metric in parts(path, "metric") if metric.name == "val/accuracy")
    assert best.summary.max
    assert best.step_metric == "trainer/global_step"

    before = path.read_bytes()
    tests = ["--tests=cheap", *CPU, *QUIET]
    printed = attnlight("test", str(folder), *tests, cwd=tmp_path, WANDB_MODE="offline")
    assert "wandb" in printed
    assert "anonymous" not in printed
    assert path.read_bytes() == before
    (tested,) = set(folder.glob("wandb/offline-run-*/*.wandb")) - {path}
    assert_sections(tested, folder, "test")
    assert list(tested.parent.glob("files/media/images/attention_permutation/test_figure*.png"))
    said = told(tested, "summary")
    card = json.loads((folder / "report/verdict.json").read_text(encoding="utf-8"))
    assert [line["name"] for line in card["lines"]][1] == "finds"
    for line in card["lines"]:
        name = f"verdict/{line['name']}"
        assert said[f"{name}_answer"] == line["answer"]
        assert said[f"{name}_text"] == line["text"]
        assert [said.get(f"{name}_{end}") for end in ENDS] == [line[end] for end in ENDS]
    (fitted,), (evaluated,) = parts(path, "run"), parts(tested, "run")
    assert fitted.run_id == evaluated.run_id == identity
    assert fitted.job_type == evaluated.job_type == "fit"
    assert list(fitted.tags) == ["fit", "PlantedEvidence"]
    assert list(evaluated.tags) == ["fit", "test", "PlantedEvidence"]
    steps = [row["_step"] for file in (path, tested) for row in history(file)]
    assert steps == sorted(set(steps))
    # The test stands where the curves have the epoch that was kept.
    rows = [row for row in history(path) if "val/accuracy" in row]
    best_step = max(rows, key=lambda row: row["val/accuracy"])["trainer/global_step"]
    assert {row["trainer/global_step"] for row in history(tested)} == {best_step}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments that `wandb.init` was called with."""
    import wandb

    calls: list[dict[str, Any]] = []
    init = wandb.init

    @wraps(init)
    def spy(**options: Any) -> Any:
        calls.append(options)
        return init(**options)

    monkeypatch.setattr(wandb, "init", spy)
    return calls


def test_job_types_tags_and_resumption(
    tmp_path: Path, started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--data.train_size=60", "--data.validation_size=20", "--data.test_size=20", *QUIET]
    small += ["--trainer.max_epochs=1", *CPU]
    place = [f"--root={tmp_path}", "--experiment=e"]
    fit = ["fit", *experiment("planted_none"), *small, *place]
    attnlight_here(*fit, "--run=base", cwd=tmp_path)
    base = tmp_path / "e/base"
    attnlight_here("validate", str(base), *CPU, cwd=tmp_path)
    other = ["--data=planted", "--data.test_size=20", "--data.distractors=2", "--corpus=mine"]
    attnlight_here("test", str(base), *other, *CPU, cwd=tmp_path)
    made = ["fit", *experiment("planted_uniform"), f"--model.base={base}", *small, *place]
    attnlight_here(*made, "--run=uniform", cwd=tmp_path)
    monkeypatch.setenv("WANDB_JOB_TYPE", "seed")  # as a study does
    attnlight_here(*fit, "--run=seed", "--seed_everything=1", cwd=tmp_path)
    name = (base / "wandb_id").read_text().strip()
    assert [call["id"] for call in started[:3]] == [name, name, f"{name}-mine"]
    assert [call["resume"] for call in started] == ["allow"] * 5
    assert [call["job_type"] for call in started] == ["fit", "fit", "test", "variant", None]
    corpus = "PlantedEvidence"
    assert [call["tags"] for call in started[:4]] == [
        ["fit", corpus],
        ["fit", "validate", corpus],
        ["test", corpus],
        ["fit", corpus],
    ]
    # Names, folders and what is kept of a run do not depend on it.
    kept = yaml.safe_load((base / "fit.yaml").read_text())["trainer"]["logger"][1]
    assert kept["class_path"] == "lightning.pytorch.loggers.WandbLogger"
    assert "monitor" not in kept["init_args"]
    assert kept["init_args"]["job_type"] is None


def test_names_that_are_not_of_a_test_stay_as_they_are() -> None:
    logged = {"val/loss": 1.0, "val/mine/own": 2.0, "epoch": 3, "train/penalty/x": 4.0}
    assert sections(logged) == (logged, {})
    values = {f"m{number}{end}": 0.5 for number in range(5) for end in ("", "_low", "_high")}
    logged |= {f"test/short/{name}": value for name, value in values.items()}
    logged["test/short/non_finite"] = 2.0
    sent, rows = sections(logged)
    ends = ("", "_low", "_high")
    assert set(sent) - set(logged) == {f"short/test_m{n}{end}" for n in range(3) for end in ends}
    assert rows["test"] == [
        *(["short", f"m{number}", 0.5, 0.5, 0.5] for number in range(5)),
        ["short", "non_finite", 2.0, None, None],
    ]
    logged |= {f"test/short/m0{end}": float("nan") for end in ends}
    sent, rows = sections(logged)
    assert {name for name in sent if "low" in name} == {f"short/test_m{n}_low" for n in (1, 2)}
    assert rows["test"][0][:2] == ["short", "m0"], "which is undefined"
    assert sections({"val/short/figure": "image"}) == ({"short/val_figure": "image"}, {})


def test_the_curve_of_a_sweep_is_sent() -> None:
    """Sweeps name a value as W&B has it."""
    logged = {
        f"val/base_divergence/{measure}{end}": 0.5
        for measure in BaseDivergence.measures
        for end in ("", "_low", "_high")
    }
    sent, _ = sections(logged | {"val/base_divergence/non_finite": 0.0, "val/accuracy": 0.9})
    for path in (CONFIGS / "sweeps").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["metric"]["name"] in sent

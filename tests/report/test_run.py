"""What a run folder holds, what the task logged, and which records belong together."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from attnlight.errors import InputError
from attnlight.report.run import (
    VERBS,
    load_run,
    read_metrics,
    require_one_run,
    require_same_instances,
    stored_records,
)
from attnlight.report.run_description import commands, describe_run
from attnlight.report.verdict.card import verdict_of
from tests.report.fake import rows_of, write_metrics, write_record, write_run


def test_records_in_order(tmp_path: Path) -> None:
    for stage, names in {
        "test": ["predictions", "attention_permutation", ".predictions.parquet.x1"],
        "val": ["predictions-10", "predictions-9", "attention_permutation-0003", "predictions"],
        "predict": ["predictions"],
    }.items():
        (tmp_path / stage).mkdir()
        for name in names:
            (tmp_path / stage / f"{name}.parquet").touch()
    (tmp_path / "test" / "notes.txt").touch()
    found = [(r.stage, r.test, r.epoch) for r in stored_records(tmp_path)]
    assert found == [
        ("test", "predictions", None),
        ("test", "attention_permutation", None),
        ("val", "predictions", None),
        ("val", "predictions", 9),
        ("val", "predictions", 10),
        ("val", "attention_permutation", 3),
    ]


def test_a_whole_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "sst" / "seed7", epochs=(0, 1))
    (folder / "test.yaml").write_text("seed_everything: 8\n")
    run = load_run(folder)
    assert [record.test for record in run.records] == ["predictions", "attention_permutation"]
    assert [record.epoch for record in run.epoch_records] == [0, 1, 0, 1]
    assert run.configs["fit"]["seed_everything"] == 7
    assert run.configs.keys() == {"fit", "test"}
    assert run.config_text == (folder / "fit.yaml").read_text()
    assert run.test_metrics == {"": {"accuracy": 0.625}}
    for verb in ("fit", "test"):  # somebody else's program writes no configuration
        (folder / f"{verb}.yaml").unlink()
    run = load_run(folder)
    assert (run.configs, run.config_text) == ({"fit": {}}, "")


@pytest.mark.parametrize("part", [3, "x", [1], {"init_args": 3}, {"init_args": {"net": [1]}}])
def test_a_section_that_is_no_mapping_says_nothing(tmp_path: Path, part: object) -> None:
    folder = write_run(tmp_path, stages=("test",), epochs=())
    (folder / "fit.yaml").write_text(yaml.safe_dump({"model": part, "data": part, "trainer": part}))
    run = load_run(folder)
    assert "Model" in describe_run(run, [])
    assert commands(run, [])
    assert verdict_of(folder).lines


HEAD, TESTED = "epoch,train/loss,val/loss\n", "epoch,test/accuracy\n"
TWO_FITS = {9: f"{HEAD}0,1,0.9\n1,1,0.8\n", 10: f"{HEAD}2,1,0.6\n1,1,0.7\n"}
# Files of versions, and the loss on validation and the accuracy on the test split that they hold.
LOGGED: list[tuple[dict[int, str], dict[int, float], float | None]] = [
    (TWO_FITS, {0: 0.9, 1: 0.7, 2: 0.6}, None),
    ({11: f"{TESTED}0,0.5\n", 2: f"{TESTED}0,0.4\n"}, {}, 0.5),
    ({0: f"{HEAD}0,1,0.9\n", 1: "epoch,val/loss\n0,0.1\n"}, {0: 0.9}, None),  # validate is no fit
    ({0: ""}, {}, None),
    ({}, {}, None),
]


@pytest.mark.parametrize(("versions", "loss", "accuracy"), LOGGED)
def test_later_versions_go_first_by_number(
    tmp_path: Path, versions: dict[int, str], loss: dict[int, float], accuracy: float | None
) -> None:
    for version, text in versions.items():
        write_metrics(tmp_path / f"version_{version}", text)
    curves, tested = read_metrics(tmp_path)
    assert list(curves.get("loss", {}).items()) == list(loss.items())
    assert tested.get("accuracy") == accuracy


def test_curves_and_test_metrics(tmp_path: Path) -> None:
    write_metrics(
        tmp_path / "version_0",
        "epoch,step,train/loss,val/loss,val/accuracy,val/attention_permutation/median_tvd\n"
        "0,9,,0.6,0.7,0.11\n0,9,0.65,,,\n1,19,,0.5,0.8,0.12\n1,19,0.55,,,\n",
    )
    names = "epoch,step,test/accuracy,test/f1_positive,test/predictions/max_attention"
    write_metrics(tmp_path / "version_1", f"{names}\n0,0,.75,nan,.3\n")
    curves, tested = read_metrics(tmp_path)
    assert curves == {"loss": {0: 0.6, 1: 0.5}, "accuracy": {0: 0.7, 1: 0.8}}
    assert tested.keys() == {"accuracy", "f1_positive"}
    assert tested["accuracy"] == 0.75
    assert math.isnan(tested["f1_positive"])


@pytest.mark.parametrize("row", ["0,one", "0,1,2", "\x00,\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, row: str) -> None:
    write_metrics(tmp_path / "version_0", f"epoch,val/loss\n{row}\n")
    with pytest.raises(InputError, match=r"version_0/metrics\.csv is not a readable file"):
        read_metrics(tmp_path)


def stored(path: Path, index: int = 0, n: int = 20, position: Any = 0, **about: object) -> Path:
    rows = rows_of("attention_permutation", n=n)
    moved = {"index": rows["index"] + index, "position": rows["position"] + position}
    return write_record(path, rows | moved, **about)


OF_RUN = {"corpus": "c", "classes": ["a", "b"], "checkpoint": "best.ckpt"}
OF_LAST = {"checkpoint_hash": "2", "checkpoint": "last.ckpt"}


@pytest.mark.parametrize(
    ("require", "other", "message"),
    [
        (require_one_run, {}, ""),
        (require_one_run, {"corpus": "d"}, "come from different corpora: one is of another run"),
        (require_one_run, {"classes": ["a"]}, "name different classes: one is of another run"),
        (require_one_run, OF_LAST, "are of two checkpoints, best.ckpt and last.ckpt"),
        (
            require_one_run,
            {"checkpoint_hash": "2"},
            "different versions of best.ckpt: test it again",
        ),
        (require_same_instances, {}, ""),
        (require_same_instances, {"stage": "val"}, "are of different splits"),
        (require_same_instances, {"corpus": "d"}, "come from different corpora"),
        (require_same_instances, {"index": 3}, r"6 are in .*, the first is index 0 \(position 0\)"),
        (require_same_instances, {"n": 24}, r"4 are in .*, the first is index 20 \(position 0\)"),
        (require_same_instances, {"position": np.ones(20, np.int64)}, "40 are in one alone"),
    ],
)
def test_records_that_belong_together(
    tmp_path: Path, require: Callable[..., None], other: dict[str, Any], message: str
) -> None:
    about = OF_RUN | {"checkpoint_hash": "1", "stage": "test"}
    pair = stored(tmp_path / "a.parquet", **about), stored(tmp_path / "b.parquet", **about | other)
    said = rf"a\.parquet and .*b\.parquet .*{message}"
    with pytest.raises(InputError, match=said) if message else nullcontext():
        require(pair) if require is require_one_run else require(*pair)
    require_one_run(pair[:1])


def test_what_may_differ_in_one_run(tmp_path: Path) -> None:
    abouts = [OF_RUN | {"checkpoint_hash": "1", "stage": stage} for stage in VERBS]
    abouts += [OF_RUN | {"checkpoint": None, "epoch": 3}, OF_RUN, {}]
    paths = [tmp_path / f"{k}.parquet" for k in range(len(abouts))]
    require_one_run([stored(p, **about) for p, about in zip(paths, abouts, strict=True)])

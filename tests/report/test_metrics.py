"""Metrics that the task logged, over the versions of a run's CSV files."""

import math
from pathlib import Path

import pytest

from attnlight.errors import InputError
from attnlight.report.run import read_metrics
from tests.report.fake import write_metrics


def test_curves_and_test_metrics(tmp_path: Path) -> None:
    write_metrics(
        tmp_path / "version_0",
        "epoch,step,train/loss,val/loss,val/accuracy,val/attention_permutation/median_tvd\n"
        "0,9,,0.6,0.7,0.11\n0,9,0.65,,,\n1,19,,0.5,0.8,0.12\n1,19,0.55,,,\n",
    )
    write_metrics(
        tmp_path / "version_1",
        "epoch,step,test/accuracy,test/f1_positive,test/predictions/max_attention\n0,0,.75,nan,.3\n",
    )
    found = read_metrics(tmp_path)
    assert found.curves == {"loss": {0: 0.6, 1: 0.5}, "accuracy": {0: 0.7, 1: 0.8}}
    assert found.test.keys() == {"accuracy", "f1_positive"}
    assert found.test["accuracy"] == 0.75
    assert math.isnan(found.test["f1_positive"])


def test_later_versions_go_first_by_number(tmp_path: Path) -> None:
    head = "epoch,train/loss,val/loss\n"
    write_metrics(tmp_path / "version_9", head + "0,1,0.9\n1,1,0.8\n")
    write_metrics(tmp_path / "version_10", head + "2,1,0.6\n1,1,0.7\n")
    curve = read_metrics(tmp_path).curves["loss"]
    assert list(curve.items()) == [(0, 0.9), (1, 0.7), (2, 0.6)]
    write_metrics(tmp_path / "version_11", "epoch,test/accuracy\n0,0.5\n")
    write_metrics(tmp_path / "version_2", "epoch,test/accuracy\n0,0.4\n")
    assert read_metrics(tmp_path).test == {"accuracy": 0.5}


def test_validate_is_no_epoch_of_fit(tmp_path: Path) -> None:
    write_metrics(tmp_path / "version_0", "epoch,train/loss,val/loss\n0,1,0.9\n")
    write_metrics(tmp_path / "version_1", "epoch,val/loss\n0,0.1\n")
    assert read_metrics(tmp_path).curves == {"loss": {0: 0.9}}


def test_nothing_logged(tmp_path: Path) -> None:
    write_metrics(tmp_path / "version_0", "")
    for folder in (tmp_path, tmp_path / "missing"):
        found = read_metrics(folder)
        assert not found.curves
        assert not found.test


@pytest.mark.parametrize("row", ["0,one", "0,1,2", "\x00,\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, row: str) -> None:
    write_metrics(tmp_path / "version_0", f"epoch,val/loss\n{row}\n")
    with pytest.raises(InputError, match=r"version_0/metrics\.csv is not a readable file"):
        read_metrics(tmp_path)

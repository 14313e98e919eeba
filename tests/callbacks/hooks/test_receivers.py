"""Figures, tables and the card are in the offline files of each logger, read back without it."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger

from attnlight.callbacks import AttentionPermutation
from attnlight.callbacks.hooks.run import SummaryTable
from tests.callbacks.test_base import run_test

NAME = "attention_permutation"


def events(folder: Path) -> Iterator[Any]:
    """The values of TensorBoard's event files: records of size, its checksum, content, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            yield from Event.FromString(data[12 : 12 + size]).summary.value
            data = data[16 + size :]


def said(folder: Path, logger: Any) -> dict[str, float]:
    """Run a test with a logger; its scalars as the CSV logger, without names, has them."""
    test = AttentionPermutation(draws=5)
    loggers = [logger, CSVLogger(folder / "csv")]
    started = run_test(folder, test, SummaryTable(), figures=True, logger=loggers)
    logger.finalize("success")
    (path,) = (folder / "csv").rglob("metrics.csv")
    names, values = (line.split(",") for line in path.read_text().splitlines())
    given = {
        n: float(v) for n, v in zip(names, values, strict=True) if n.startswith(f"test/{NAME}")
    }
    assert given == pytest.approx(
        {n: float(started.callback_metrics[n]) for n in given}, nan_ok=True
    )
    return given


def assert_table(text: str, given: dict[str, float]) -> None:
    head, _, *rows = text.splitlines()
    assert head == "| measure | mean | low | high |"
    found = {}
    for row in rows:
        measure, *numbers = (cell.strip() for cell in row.strip("|").split("|"))
        for end, number in zip(("", "_low", "_high"), numbers, strict=True):
            found[f"test/{NAME}/{measure}{end}"] = float(number)
    assert found == pytest.approx({n: v for n, v in given.items() if n in found}, rel=1e-5)
    assert given.keys() - found.keys() == {f"test/{NAME}/non_finite"}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX, of the extra `dev`, is not installed")
    given = said(tmp_path, TensorBoardLogger(tmp_path / "tb"))
    found = {value.tag.removesuffix("/text_summary"): value for value in events(tmp_path / "tb")}
    scalars = {
        name: found[name].simple_value for name in given
    }  # each with the ends of its interval
    assert scalars == pytest.approx(given, rel=1e-6, nan_ok=True)
    assert found[f"test/{NAME}/figure"].image.encoded_image_string.startswith(b"\x89PNG")
    text = {n: v.tensor.string_val[0].decode() for n, v in found.items() if v.tensor.string_val}
    assert_table(text[f"test/{NAME}/measures"], given)
    assert "May the attention of this model be read as an explanation?" in text["test/verdict"]


@pytest.mark.slow
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # files, to be read without a database
    pytest.importorskip(
        "mlflow", reason="mlflow-skinny is not installed: it needs an environment of its own"
    )
    given = said(tmp_path, MLFlowLogger(tracking_uri=(tmp_path / "mlflow").as_uri()))
    (place,) = (tmp_path / "mlflow").rglob("artifacts")
    files = {path.relative_to(place).as_posix(): path for path in place.rglob("*.*")}
    assert sorted(files) == [
        f"test/{NAME}/figure/0.png",
        f"test/{NAME}/measures/0.md",
        "test/verdict/0.md",
    ]
    assert files[f"test/{NAME}/figure/0.png"].read_bytes().startswith(b"\x89PNG")
    assert_table(files[f"test/{NAME}/measures/0.md"].read_text(), given)
    assert "May the attention of this model" in files["test/verdict/0.md"].read_text()
    logged = {name: (place.parent / "metrics" / name).read_text().split()[1] for name in given}
    assert {n: float(v) for n, v in logged.items()} == pytest.approx(given, nan_ok=True)

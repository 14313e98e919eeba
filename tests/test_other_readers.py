"""A run's records are one folder of parquet for readers that know nothing of attnlight."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from attnlight.callbacks import AttentionPermutation, Predictions
from attnlight.records import read_record
from tests.callbacks.test_base import run_test


def test_pyarrow_reads_a_folder_of_records(tmp_path: Path) -> None:
    run_test(tmp_path, Predictions(), AttentionPermutation(draws=2), figures=True)
    folder = tmp_path / "records"
    names = ("attention_permutation", "predictions")
    files = [str(folder / f"test/{name}.parquet") for name in names]
    whole = ds.dataset(folder)
    assert sorted(whole.files) == files, "figures lie elsewhere"
    assert list((tmp_path / "figures").rglob("*.pdf"))
    expected = read_record(folder / "test/predictions.parquet").columns
    rows = whole.to_table(columns=["__filename", "index"]).group_by("__filename")
    counts = dict(zip(*rows.aggregate([("index", "count")]).to_pydict().values(), strict=True))
    assert counts == dict.fromkeys(files, len(expected["index"]))
    found = ds.dataset(files[1]).to_table()["max_attention"].to_pylist()
    assert found == pytest.approx(list(expected["max_attention"]))

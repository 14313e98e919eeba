"""The rows that figures are made of."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from attnlight.figures import figure_rows
from attnlight.records import ShardWriter, merge_shards, read_record
from tests.report.fake import rows_of, write_record

ALWAYS = ["index", "position", "prediction", "max_attention"]


@pytest.fixture
def kept_scores(tmp_path: Path) -> Path:
    """A record of 60 rows with a list of scores in each, of which every fifth was not measured."""
    rows = rows_of("predictions")
    writer = ShardWriter(tmp_path / "a.arrow")
    chosen = np.arange(60) % 5 != 0
    keys = np.stack([rows.pop("index"), rows.pop("position")], axis=1)
    scores = pa.array([[0.5] * (k % 4) for k in range(chosen.sum())], pa.list_(pa.float32()))
    columns = {name: values[chosen] for name, values in rows.items()} | {"scores": scores}
    writer.add(keys[chosen], columns)
    writer.exclude(keys[~chosen])
    writer.close()
    merge_shards([writer.path], tmp_path / "x.parquet", metadata={})
    return tmp_path / "x.parquet"


def test_those_that_were_measured(kept_scores: Path) -> None:
    found, note = figure_rows(kept_scores)
    assert not note
    whole = rows_of("predictions")
    assert found.keys() == whole.keys()  # no lists
    for name, values in found.items():
        np.testing.assert_array_equal(values, whole[name][np.arange(60) % 5 != 0])
        assert values.dtype.kind == whole[name].dtype.kind


def test_the_columns_asked_for(kept_scores: Path) -> None:
    found, _ = figure_rows(kept_scores, ["scores", "length", "not_there", "index"])
    assert list(found) == [*ALWAYS, "scores", "length"]
    assert [len(scores) for scores in found["scores"][:5]] == [0, 1, 2, 3, 0]


def test_whole_texts_of_a_long_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlight.records.reading.PIECE_ROWS", 128)
    rows = rows_of("attention_permutation", n=4_000)
    rows["index"], rows["position"] = rows["index"] // 4, rows["index"] % 4
    path = write_record(tmp_path / "x.parquet", rows)
    found, note = figure_rows(path, max_rows=1_000)
    assert len(found["index"]) == 1_000
    assert note == "Shows 1,000 of 4,000 rows, those of texts chosen by a hash."
    texts, counts = np.unique(found["index"], return_counts=True)
    assert (counts == 4).all()
    assert 400 < texts.mean() < 600  # not the first ones
    whole = read_record(path).columns
    kept = np.isin(whole["index"], texts)
    for name, values in found.items():
        np.testing.assert_array_equal(values, whole[name][kept])
    assert figure_rows(path, max_rows=4_000)[1] == ""


def test_a_record_without_rows(tmp_path: Path) -> None:
    empty = {name: values[:0] for name, values in rows_of("predictions").items()}
    found, note = figure_rows(write_record(tmp_path / "x.parquet", empty))
    assert len(found["index"]) == 0
    assert not note

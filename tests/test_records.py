"""Records: every row once, whole files only, NaN here and null there."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import (
    RecordError,
    ShardWriter,
    clustered_pieces,
    merge_shards,
    read_metadata,
    read_pieces,
    read_record,
    record_columns,
)

FILL_UP = """
import resource, sys
from pathlib import Path
import numpy as np
from attnlight.errors import InputError
from attnlight.records import ShardWriter, merge_shards

kind, folder = sys.argv[1], Path(sys.argv[2])
rows = np.stack([np.arange(20_000), np.zeros(20_000, int)], axis=1)
values = {"noise": np.random.default_rng(0).random((20_000, 4))}
writer = ShardWriter(folder / "rank0.arrow")
if kind == "merge":
    writer.add(rows, values)
    writer.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    if kind == "shard":
        writer.add(rows, values)
        writer.close()
    merge_shards([folder / "rank0.arrow"], folder / "x.parquet", metadata={})
except InputError as error:
    sys.exit(f"InputError: {error}")
"""


def keys(index: list[int] | NDArray[np.int64], position: int = 0) -> NDArray[np.int64]:
    return np.stack([np.asarray(index), np.full(len(index), position)], axis=1).astype(np.int64)


def shard(path: Path, rows: NDArray[np.int64], columns: Mapping[str, Any]) -> Path:
    writer = ShardWriter(path)
    writer.add(rows, columns)
    writer.close()
    return path


def record(
    path: Path, rows: NDArray[np.int64], columns: Mapping[str, Any], **metadata: object
) -> Path:
    merge_shards([shard(path.with_suffix(".arrow"), rows, columns)], path, metadata=metadata)
    return path


class TestMerge:
    def test_rows_of_all_ranks_in_order_of_key(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        rows = np.stack(np.meshgrid(np.arange(500), np.arange(3)), axis=-1).reshape(-1, 2)
        rows = rng.permutation(rows)
        value = rows[:, 0] * 10.0 + rows[:, 1]
        parts = np.array_split(np.arange(len(rows)), 3)
        shards = [
            shard(tmp_path / f"rank{rank}.arrow", rows[part], {"value": value[part]})
            for rank, part in enumerate(parts)
        ]
        expected = rng.permutation(500)
        found = merge_shards(shards, tmp_path / "x.parquet", metadata={}, expected=expected)
        assert found == 1_500
        columns = read_record(tmp_path / "x.parquet").columns
        oracle = sorted(map(tuple, rows.tolist()))
        assert list(zip(columns["index"], columns["position"], strict=True)) == oracle
        np.testing.assert_array_equal(columns["value"], [10.0 * i + p for i, p in oracle])
        assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]

    def test_batches_and_shards_do_not_show(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("attnlight.records.shards._SHARD_ROWS", 16)
        monkeypatch.setattr("attnlight.records.merging.PIECE_ROWS", 32)
        monkeypatch.setattr("attnlight.records.reading.PIECE_ROWS", 32)
        rng = np.random.default_rng(1)
        pairs = rng.random((101, 2)).astype(np.float32)
        writers = [ShardWriter(tmp_path / f"rank{rank}.arrow") for rank in range(2)]
        for rank, writer in enumerate(writers):
            mine = np.arange(rank, 101, 2)
            for start in range(0, len(mine), 7):
                some = mine[start : start + 7]
                writer.add(keys(some), {"pair": pairs[some], "number": some})
            writer.close()
        path = tmp_path / "x.parquet"
        merge_shards([writer.path for writer in writers], path, metadata={})
        assert pq.ParquetFile(path).num_row_groups == 4  # 32 + 32 + 32 + 5
        columns = read_record(path).columns
        np.testing.assert_array_equal(columns["pair"], pairs)
        np.testing.assert_array_equal(columns["number"], np.arange(101))
        pieces = list(read_pieces(path, ["index", "pair"]))
        assert [len(piece["index"]) for piece in pieces] == [32, 32, 32, 5]
        assert pieces[0].keys() == {"index", "pair"}
        np.testing.assert_array_equal(np.concatenate([piece["pair"] for piece in pieces]), pairs)
        few = list(read_pieces(path, ["index", "pair"], texts=np.array([40, 3, 4, 999])))
        assert [piece["index"].tolist() for piece in few] == [[3, 4], [40], [], []]
        np.testing.assert_array_equal(few[0]["pair"], pairs[3:5])

    def test_a_rank_without_rows(self, tmp_path: Path) -> None:
        one = shard(tmp_path / "rank0.arrow", keys([1, 0]), {"value": np.array([1.0, 0.0])})
        empty = ShardWriter(tmp_path / "rank1.arrow")
        empty.close()
        none = shard(tmp_path / "rank2.arrow", keys([]), {"value": np.empty(0)})
        assert not empty.path.exists()
        shards = [one, empty.path, none]
        found = merge_shards(shards, tmp_path / "x.parquet", metadata={}, expected=np.arange(2))
        assert found == 2
        assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]

    def test_no_row_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(RecordError, match=r"x\.parquet: no row was recorded"):
            merge_shards([tmp_path / "rank0.arrow"], tmp_path / "x.parquet", metadata={})

    def test_a_row_twice_is_refused(self, tmp_path: Path) -> None:
        shards = [
            shard(tmp_path / "a.arrow", keys([0, 7]), {"value": np.zeros(2)}),
            shard(tmp_path / "b.arrow", keys([7, 8]), {"value": np.ones(2)}),
        ]
        with pytest.raises(RecordError, match=r"instance 7 \(position 0\) was evaluated twice"):
            merge_shards(shards, tmp_path / "x.parquet", metadata={})
        assert not (tmp_path / "x.parquet").exists()

    def test_one_text_at_two_positions_is_two_rows(self, tmp_path: Path) -> None:
        rows = np.concatenate([keys([7]), keys([7], position=1)])
        path = record(tmp_path / "x.parquet", rows, {"value": np.arange(2.0)})
        np.testing.assert_array_equal(read_record(path).columns["value"], [0.0, 1.0])

    def test_repeats_of_a_padded_sampler_are_dropped_on_request(self, tmp_path: Path) -> None:
        shards = [
            shard(tmp_path / "a.arrow", keys([0, 2, 1]), {"value": np.array([0.0, 2.0, 1.0])}),
            shard(tmp_path / "b.arrow", keys([1, 0]), {"value": np.array([-1.0, -1.0])}),
        ]
        path = tmp_path / "x.parquet"
        found = merge_shards(shards, path, metadata={}, expected=np.arange(3), drop_repeats=True)
        assert found == 3
        np.testing.assert_array_equal(read_record(path).columns["value"], [0.0, 1.0, 2.0])

    @pytest.mark.parametrize(
        ("expected", "message"),
        [
            ([0, 1, 2, 5, 9], "2 of 5 instances are missing, the first is 5"),
            ([0, 2], "instance 1 is not in the dataset"),
            ([], "instance 0 is not in the dataset"),
        ],
    )
    def test_rows_are_those_asked_for(
        self, tmp_path: Path, expected: list[int], message: str
    ) -> None:
        one = shard(tmp_path / "a.arrow", keys([2, 0, 1]), {"value": np.zeros(3)})
        asked = np.array(expected, dtype=np.int64)
        with pytest.raises(RecordError, match=message):
            merge_shards([one], tmp_path / "x.parquet", metadata={}, expected=asked)
        assert not (tmp_path / "x.parquet").exists()

    def test_a_shard_that_was_never_closed(self, tmp_path: Path) -> None:
        path = shard(tmp_path / "a.arrow", keys([0, 1]), {"value": np.zeros(2)})
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(RecordError, match=r"a\.arrow is not a complete shard"):
            merge_shards([path], tmp_path / "x.parquet", metadata={})


class TestColumns:
    def test_nan_is_null_on_disk(self, tmp_path: Path) -> None:
        one = np.array([0.5, np.nan, -np.inf])
        two = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 4.0]], dtype=np.float32)
        path = record(tmp_path / "x.parquet", keys([0, 1, 2]), {"one": one, "two": two})
        table = pq.read_table(path)
        assert table.column("one").to_pylist() == [0.5, None, -np.inf]
        assert table.column("two").to_pylist() == [[1.0, None], [None, None], [3.0, 4.0]]
        columns = read_record(path).columns
        np.testing.assert_array_equal(columns["one"], one)
        np.testing.assert_array_equal(columns["two"], two)
        assert columns["two"].dtype == np.float32

    def test_a_missing_label_reads_as_nan(self, tmp_path: Path) -> None:
        label = pa.array([1, None, 0], pa.int64())
        path = record(tmp_path / "x.parquet", keys([0, 1, 2]), {"label": label})
        np.testing.assert_array_equal(read_record(path).columns["label"], [1.0, np.nan, 0.0])

    def test_large_indices_and_integers_are_kept(self, tmp_path: Path) -> None:
        large = 2**53 + 1
        path = record(tmp_path / "x.parquet", keys([large]), {"number": np.array([large])})
        columns = read_record(path).columns
        assert columns["index"].tolist() == columns["number"].tolist() == [large]

    def test_lists_of_different_length(self, tmp_path: Path) -> None:
        words = pa.array([["a", "film"], []], pa.list_(pa.string()))
        path = record(tmp_path / "x.parquet", keys([0, 1]), {"words": words})
        assert [list(x) for x in read_record(path).columns["words"]] == [["a", "film"], []]

    def test_lists_of_values_some_undefined(self, tmp_path: Path) -> None:
        scores = pa.array([[0.5, None], None, [], [1.0, 2.0]], pa.list_(pa.float32()))
        path = record(tmp_path / "x.parquet", keys([0, 1, 2, 3]), {"scores": scores})
        found = read_record(path).columns["scores"]
        assert found[1] is None
        assert [list(found[r]) for r in (2, 3)] == [[], [1.0, 2.0]]
        np.testing.assert_array_equal(found[0], [0.5, np.nan])
        assert found[0].dtype == np.float32

    def test_lists_of_lists_of_one_length(self, tmp_path: Path) -> None:
        """Equal lengths must not turn into more dimensions in one piece and not in another."""
        heads = pa.array([[[1.0, 2.0], [3.0, 4.0]]] * 3, pa.list_(pa.list_(pa.float64())))
        path = record(tmp_path / "x.parquet", keys([0, 1, 2]), {"heads": heads})
        (piece,) = read_pieces(path, ["heads"])
        for found in (read_record(path).columns["heads"], piece["heads"]):
            assert found.shape == (3,)
            assert [list(head) for head in found[1]] == [[1.0, 2.0], [3.0, 4.0]]

    def test_fixed_lists_that_are_null_as_a_whole(self, tmp_path: Path) -> None:
        pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
        path = record(tmp_path / "x.parquet", keys([0, 1, 2]), {"pairs": pairs})
        expected = [[1, 2], [np.nan, np.nan], [3, 4]]
        np.testing.assert_array_equal(read_record(path).columns["pairs"], expected)

    def test_yes_and_no_with_undefined_values(self, tmp_path: Path) -> None:
        flips = pa.array([True, None, False])
        path = record(
            tmp_path / "x.parquet", keys([0, 1, 2]), {"some": flips, "all": np.array([True] * 3)}
        )
        columns = read_record(path).columns
        np.testing.assert_array_equal(columns["some"], [1.0, np.nan, 0.0])
        assert columns["all"].dtype == bool

    def test_says_which_are_lists_of_varying_length(self, tmp_path: Path) -> None:
        columns = {
            "value": np.zeros(1),
            "pair": np.zeros((1, 2)),
            "words": pa.array([["a"]], pa.list_(pa.string())),
            "scores": pa.array([[0.5]], pa.large_list(pa.float32())),
        }
        path = record(tmp_path / "x.parquet", keys([0]), columns)
        ragged = {name for name, long in record_columns(path).items() if long}
        assert ragged == {"words", "scores"}
        assert [*record_columns(path)] == ["index", "position", *columns]

    def test_reads_only_the_columns_asked_for(self, tmp_path: Path) -> None:
        path = record(tmp_path / "x.parquet", keys([0]), {"a": np.zeros(1), "b": np.ones(1)})
        assert read_record(path, ["b"]).columns.keys() == {"b"}

    def test_a_column_that_is_not_there(self, tmp_path: Path) -> None:
        path = record(tmp_path / "x.parquet", keys([0]), {"a": np.zeros(1)})
        with pytest.raises(RecordError, match=r"x\.parquet has no column b"):
            list(read_pieces(path, ["a", "b"]))

    def test_shapes_that_a_record_does_not_take(self, tmp_path: Path) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        with pytest.raises(RecordError, match="column cube has 3 dimensions"):
            writer.add(keys([0, 1]), {"cube": np.zeros((2, 2, 2))})
        with pytest.raises(RecordError, match="column short has 1 values for 2 rows"):
            writer.add(keys([0, 1]), {"short": np.zeros(1)})

    def test_columns_are_alike_in_every_batch(self, tmp_path: Path) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        writer.add(keys([0]), {"scores": np.zeros((1, 7)), "value": np.zeros(1)})
        with pytest.raises(RecordError, match=r"column scores is of type .*\[7\].* and .*\[9\]"):
            writer.add(keys([1]), {"scores": np.zeros((1, 9)), "value": np.zeros(1)})
        with pytest.raises(RecordError, match="column value is not in every batch"):
            writer.add(keys([1]), {"scores": np.zeros((1, 7))})

    def test_columns_are_alike_on_every_rank(self, tmp_path: Path) -> None:
        shards = [
            shard(tmp_path / f"{width}.arrow", keys([width]), {"scores": np.zeros((1, width))})
            for width in (2, 3)
        ]
        with pytest.raises(RecordError, match=r"x\.parquet: ranks differ in a column"):
            merge_shards(shards, tmp_path / "x.parquet", metadata={})


class TestExcluded:
    COLUMNS = ("prediction", "value", "count", "pair", "words")

    def columns(self, rows: int) -> dict[str, Any]:
        return {
            "prediction": np.ones(rows, dtype=np.int64),
            "value": np.full(rows, 0.5, dtype=np.float32),
            "count": np.arange(rows),
            "pair": np.ones((rows, 2)),
            "words": pa.array([["a"]] * rows, pa.list_(pa.string())),
        }

    def check(self, path: Path, excluded: list[int]) -> None:
        found = read_record(path)
        assert found.metadata["non_finite"] == len(excluded)
        columns = found.columns
        out = np.isin(columns["index"], excluded)
        np.testing.assert_array_equal(columns["prediction"], np.where(out, -1, 1))
        np.testing.assert_array_equal(columns["value"], np.where(out, np.nan, np.float32(0.5)))
        assert np.isnan(columns["count"][out].astype(float)).all()
        assert np.isnan(columns["pair"][out]).all()
        assert (columns["pair"][~out] == 1).all()
        assert [words is None for words in columns["words"]] == out.tolist()

    def test_are_null_beside_the_others(self, tmp_path: Path) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        writer.exclude(keys([4, 1]), self.COLUMNS)
        writer.add(keys([0, 3]), self.columns(2))
        writer.exclude(keys([2]), self.COLUMNS)
        writer.close()
        path = tmp_path / "x.parquet"
        merge_shards([writer.path], path, metadata={}, expected=np.arange(5))
        self.check(path, [1, 2, 4])
        pieces = read_pieces(path, ["index", "prediction", "count"], measured=True)
        (piece,) = pieces
        assert piece["index"].tolist() == [0, 3]
        assert piece["count"].dtype == np.int64

    @pytest.mark.parametrize("first", [True, False])
    def test_a_rank_that_measured_nothing(self, tmp_path: Path, first: bool) -> None:
        nothing = ShardWriter(tmp_path / "a.arrow")
        nothing.exclude(keys([1]), self.COLUMNS)
        nothing.close()
        whole = shard(tmp_path / "b.arrow", keys([0, 2]), self.columns(2))
        shards = [nothing.path, whole] if first else [whole, nothing.path]
        merge_shards(shards, tmp_path / "x.parquet", metadata={})
        self.check(tmp_path / "x.parquet", [1])

    def test_nothing_was_measured_anywhere(self, tmp_path: Path) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        writer.exclude(keys([0, 1]), ["value"])
        writer.close()
        path = tmp_path / "x.parquet"
        merge_shards([writer.path], path, metadata={})
        assert np.isnan(read_record(path).columns["value"]).all()
        assert read_metadata(path)["non_finite"] == 2
        (piece,) = read_pieces(path, ["value", "prediction"], measured=True)
        assert len(piece["value"]) == 0


class TestMetadata:
    def test_comes_back(self, tmp_path: Path) -> None:
        given = {"test": "predictions", "epoch": None, "partial": True, "measures": ["a", "ü"]}
        path = record(tmp_path / "x.parquet", keys([3, 4]), {"a": np.zeros(2)}, **given)
        expected = given | {"rows": 2, "format": 1}
        assert read_metadata(path) == expected
        assert read_record(path).metadata == expected

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(RecordError, match=r"x\.parquet is not a readable record"):
            read_metadata(tmp_path / "x.parquet")

    def test_a_foreign_parquet_file(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"index": [0]}), tmp_path / "x.parquet")
        with pytest.raises(RecordError, match="a parquet file but not an attnlight record"):
            read_record(tmp_path / "x.parquet")

    def test_another_format(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("attnlight.records.merging.FORMAT", 2)
        path = record(tmp_path / "x.parquet", keys([0]), {"a": np.ones(1)})
        monkeypatch.undo()
        expected = r"x\.parquet is a record of format 2; this version .* reads format 1\."
        for read in (read_metadata, read_record, lambda path: list(read_pieces(path, ["a"]))):
            with pytest.raises(RecordError, match=expected):
                read(path)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("rows", "many"), ("non_finite", "x"), ("checkpoint", ["x"]), ("model", "x")),
            *(("classes", "ab"), ("classes", [1]), ("measures", {"a": 1}), ("partial", "x")),
            *(("rows", None), ("format", [1])),
        ],
    )
    def test_metadata_of_another_type(self, tmp_path: Path, name: str, value: object) -> None:
        described = json.dumps({"format": 1, "rows": 1} | {name: value})
        table = pa.table({"index": [3]}).replace_schema_metadata({"attnlight": described})
        pq.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(RecordError, match=rf"x\.parquet .*{name}"):
            read_metadata(tmp_path / "x.parquet")

    @pytest.mark.parametrize("described", ["[]", "3", '"x"', "[" * 100_000])
    def test_metadata_that_is_no_mapping(self, tmp_path: Path, described: str) -> None:
        table = pa.table({"index": [3]}).replace_schema_metadata({"attnlight": described})
        pq.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(RecordError, match=r"x\.parquet is not a readable record"):
            read_metadata(tmp_path / "x.parquet")

    @pytest.mark.parametrize("kept", [0, 3, 0.5, 0.99])
    def test_a_half_written_file_is_no_record(self, tmp_path: Path, kept: float) -> None:
        path = record(tmp_path / "x.parquet", keys(np.arange(999)), {"a": np.ones(999)})
        whole = path.read_bytes()
        path.write_bytes(whole[: int(kept if kept >= 1 else kept * len(whole))])
        with pytest.raises(RecordError, match=r"x\.parquet is not a readable record"):
            read_record(path)

    def test_a_damaged_page_is_no_record(self, tmp_path: Path) -> None:
        noise = np.random.default_rng(0).random(5_000)
        path = record(tmp_path / "x.parquet", keys(np.arange(5_000)), {"a": noise})
        content = bytearray(path.read_bytes())
        for chunk in range(pq.ParquetFile(path).num_row_groups):
            where = pq.ParquetFile(path).metadata.row_group(chunk).column(2)
            start = where.dictionary_page_offset or where.data_page_offset
            content[start : start + 40] = b"\xff" * 40
        path.write_bytes(content)
        assert read_metadata(path)["rows"] == 5_000
        with pytest.raises(RecordError, match=r"x\.parquet is not a readable record"):
            read_record(path)
        with pytest.raises(RecordError, match=r"x\.parquet is not a readable record"):
            list(read_pieces(path, ["a"]))


def test_clusters_of_another_column_are_in_order_and_without_unmeasured_rows(
    tmp_path: Path,
) -> None:
    columns = {"batch": np.array([7.0, np.nan, 2.0, 7.0]), "a": np.arange(4.0)}
    path = record(tmp_path / "x.parquet", keys(np.arange(4)), columns, clusters="batch")
    ((piece, clusters),) = clustered_pieces(path, ["a"])
    assert clusters.tolist() == [2, 7, 7]
    assert piece["a"].tolist() == [2, 0, 3]


class TestFullDisk:
    def run(self, kind: str, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", FILL_UP, kind, str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        return done.stderr.strip()

    def test_while_merging_leaves_the_older_record(self, tmp_path: Path) -> None:
        path = record(tmp_path / "x.parquet", keys([0]), {"noise": np.ones(1)}, test="older")
        before = path.read_bytes()
        message = self.run("merge", tmp_path)
        assert message.startswith(f"InputError: {path} cannot be written: ")
        assert "\n" not in message
        assert path.read_bytes() == before
        assert read_metadata(path)["test"] == "older"
        assert sorted(os.listdir(tmp_path)) == ["rank0.arrow", "x.parquet"]

    def test_while_merging_leaves_no_record_where_there_was_none(self, tmp_path: Path) -> None:
        self.run("merge", tmp_path)
        assert os.listdir(tmp_path) == ["rank0.arrow"]

    def test_while_a_shard_is_written(self, tmp_path: Path) -> None:
        message = self.run("shard", tmp_path)
        assert message.startswith(f"InputError: {tmp_path}/rank0.arrow cannot be written: ")
        assert "\n" not in message
        with pytest.raises(RecordError, match=r"rank0\.arrow is not a complete shard"):
            merge_shards([tmp_path / "rank0.arrow"], tmp_path / "x.parquet", metadata={})
        assert not (tmp_path / "x.parquet").exists()


def test_a_record_in_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    one = shard(tmp_path / "a.arrow", keys([0]), {"value": np.zeros(1)})
    (tmp_path / "records").write_text("a file")
    with pytest.raises(InputError, match=r"records/x\.parquet cannot be written"):
        merge_shards([one], tmp_path / "records" / "x.parquet", metadata={})


def test_the_metadata_is_plain_json(tmp_path: Path) -> None:
    path = record(tmp_path / "x.parquet", keys([0]), {"value": np.zeros(1)}, stage="test")
    held = pq.read_schema(path).metadata[b"attnlight"]
    assert json.loads(held) == {"stage": "test", "rows": 1, "format": 1}

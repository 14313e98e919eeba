"""Records: every row once, whole files only, NaN here and null there."""

import json
import os
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
from tests.damage import files_of_at_most


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
        ("ranks", "expected", "message"),
        [
            ([[]], None, r"x\.parquet: no row was recorded"),
            ([[0, 7], [7, 8]], None, r"instance 7 \(position 0\) was evaluated twice"),
            ([[2, 0, 1]], [0, 1, 2, 5, 9], "2 of 5 instances are missing, the first is 5"),
            ([[2, 0, 1]], [0, 2], "instance 1 is not in the dataset"),
            ([[2, 0, 1]], [], "instance 0 is not in the dataset"),
        ],
    )
    def test_rows_are_those_asked_for(
        self, tmp_path: Path, ranks: list[list[int]], expected: list[int] | None, message: str
    ) -> None:
        shards = [tmp_path / f"rank{number}.arrow" for number in range(len(ranks))]
        for path, rows in zip(shards, map(keys, filter(None, ranks)), strict=False):
            shard(path, rows, {"value": np.zeros(len(rows))})
        asked = None if expected is None else np.array(expected, dtype=np.int64)
        with pytest.raises(RecordError, match=message):
            merge_shards(shards, tmp_path / "x.parquet", metadata={}, expected=asked)
        assert not (tmp_path / "x.parquet").exists()

    def test_a_shard_that_was_never_closed(self, tmp_path: Path) -> None:
        path = shard(tmp_path / "a.arrow", keys([0, 1]), {"value": np.zeros(2)})
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(RecordError, match=r"a\.arrow is not a complete shard"):
            merge_shards([path], tmp_path / "x.parquet", metadata={})


def lists(values: list[Any], item: pa.DataType, size: int = -1) -> pa.Array:
    return pa.array(values, pa.list_(item, size))


WRITTEN_IN_PART = r"^\S+ cannot be written: [^\n]+$"
LARGE = 2**53 + 1
NAN = np.nan
# What is written, and what is read: NaN for what is undefined, in arrays of one type.
WRITTEN: dict[str, tuple[Any, list[Any]]] = {
    "label": (pa.array([1, None, 0], pa.int64()), [1.0, NAN, 0.0]),
    "number": (np.array([LARGE, 0, 1]), [LARGE, 0, 1]),
    "flips": (pa.array([True, None, False]), [1.0, NAN, 0.0]),
    "all": (np.array([True, False, True]), [True, False, True]),
    "pairs": (lists([[1, 2], None, [3, 4]], pa.int64(), 2), [[1, 2], [NAN] * 2, [3, 4]]),
}
# Lists, also of equal lengths, are no arrays of more dimensions.
LISTS: dict[str, tuple[Any, list[Any]]] = {
    "words": (lists([["a", "film"], [], ["x"]], pa.string()), [["a", "film"], [], ["x"]]),
    "scores": (lists([[0.5, 2.0], None, [1.0]], pa.float32()), [[0.5, 2.0], None, [1.0]]),
    "heads": (lists([[[1.0], [3.0]]] * 3, pa.list_(pa.float64())), [[[1.0], [3.0]]] * 3),
}


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

    def test_come_back(self, tmp_path: Path) -> None:
        given = {name: values for name, (values, _) in (WRITTEN | LISTS).items()}
        path = record(tmp_path / "x.parquet", keys([0, 1, LARGE]), given)
        assert record_columns(path) == {
            name: name in LISTS for name in ("index", "position", *given)
        }
        (piece,) = read_pieces(path, list(given))
        whole = read_record(path).columns
        assert whole["index"].tolist() == [0, 1, LARGE]
        for found in (whole, piece):
            for name, (_, expected) in WRITTEN.items():
                np.testing.assert_array_equal(found[name], expected)
            for name, (_, expected) in LISTS.items():
                assert found[name].shape == (3,)
                for row, values in zip(found[name], expected, strict=True):
                    assert row is values is None or [*map(plain, row)] == values
        assert whole["scores"][0].dtype == np.float32
        assert whole["all"].dtype == bool

    def test_only_those_asked_for_are_read(self, tmp_path: Path) -> None:
        path = record(tmp_path / "x.parquet", keys([0]), {"a": np.zeros(1), "b": np.ones(1)})
        assert read_record(path, ["b"]).columns.keys() == {"b"}
        with pytest.raises(RecordError, match=r"x\.parquet has no column c"):
            list(read_pieces(path, ["a", "c"]))

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"cube": np.zeros((1, 2, 2))}, "column cube has 3 dimensions"),
            ({"short": np.zeros(2)}, "column short has 2 values for 1 rows"),
            ({"wide": np.zeros((1, 9)), "a": np.zeros(1)}, r"wide .*\[7\].* and .*\[9\]"),
            ({"wide": np.zeros((1, 7))}, "column a is not in every batch"),
        ],
    )
    def test_what_a_batch_must_not_be(
        self, tmp_path: Path, columns: dict[str, Any], message: str
    ) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        writer.add(keys([0]), {"wide": np.zeros((1, 7)), "a": np.zeros(1)})
        with pytest.raises(RecordError, match=message):
            writer.add(keys([1]), columns)

    def test_are_alike_on_every_rank(self, tmp_path: Path) -> None:
        shards = [
            shard(tmp_path / f"{width}.arrow", keys([width]), {"scores": np.zeros((1, width))})
            for width in (2, 3)
        ]
        with pytest.raises(RecordError, match=r"x\.parquet: ranks differ in a column"):
            merge_shards(shards, tmp_path / "x.parquet", metadata={})


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


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
        assert pq.read_table(path)["pair"].null_count == 0  # refused by pyarrow before 26

    def test_are_null_beside_the_others(self, tmp_path: Path) -> None:
        writer = ShardWriter(tmp_path / "a.arrow")
        writer.exclude(keys([4, 1]), self.COLUMNS)
        writer.add(keys([0, 3]), self.columns(2))
        writer.exclude(keys([2]), self.COLUMNS)
        writer.close()
        path = tmp_path / "x.parquet"
        merge_shards([writer.path], path, metadata={}, expected=np.arange(5))
        self.check(path, [1, 2, 4])
        (piece,) = read_pieces(path, ["index", "prediction", "count"], measured=True)
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
        expected = (
            r"x\.parquet is not a readable record: its format is 2; this version .* reads 1\."
        )
        for read in (read_metadata, read_record, lambda path: list(read_pieces(path, ["a"]))):
            with pytest.raises(RecordError, match=expected):
                read(path)

    OTHER_TYPES = (
        *(("rows", "many"), ("non_finite", "x"), ("checkpoint", ["x"]), ("model", "x")),
        *(("classes", "ab"), ("classes", [1]), ("measures", {"a": 1}), ("partial", "x")),
        *(("rows", None), ("format", [1])),
    )

    @pytest.mark.parametrize(
        ("described", "told"),
        [
            *((text, "is not a readable record") for text in ("[]", "3", '"x"', "[" * 100_000)),
            *((json.dumps({"format": 1, "rows": 1, n: v}), f".*{n}") for n, v in OTHER_TYPES),
        ],
    )
    def test_metadata_of_another_type(self, tmp_path: Path, described: str, told: str) -> None:
        table = pa.table({"index": [3]}).replace_schema_metadata({"attnlight": described})
        pq.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(RecordError, match=rf"x\.parquet {told}"):
            read_metadata(tmp_path / "x.parquet")


def test_clusters_of_another_column_are_in_order_and_without_unmeasured_rows(
    tmp_path: Path,
) -> None:
    columns = {"batch": np.array([7.0, np.nan, 2.0, 7.0]), "a": np.arange(4.0)}
    path = record(tmp_path / "x.parquet", keys(np.arange(4)), columns, clusters="batch")
    ((piece, clusters),) = clustered_pieces(path, ["a"])
    assert clusters.tolist() == [2, 7, 7]
    assert piece["a"].tolist() == [2, 0, 3]


class TestFullDisk:
    NOISE = keys(np.arange(20_000)), {"noise": np.random.default_rng(0).random((20_000, 4))}

    def test_while_merging_leaves_the_older_record(self, tmp_path: Path) -> None:
        path = record(tmp_path / "x.parquet", keys([0]), {"noise": np.ones(1)}, test="older")
        before, rank = path.read_bytes(), shard(tmp_path / "rank0.arrow", *self.NOISE)
        with files_of_at_most(100_000), pytest.raises(InputError, match=WRITTEN_IN_PART) as told:
            merge_shards([rank], path, metadata={})
        assert str(told.value).startswith(f"{path} cannot")
        assert path.read_bytes() == before
        assert read_metadata(path)["test"] == "older"
        assert sorted(os.listdir(tmp_path)) == ["rank0.arrow", "x.parquet"]

    def test_while_a_shard_is_written(self, tmp_path: Path) -> None:
        rank = tmp_path / "rank0.arrow"
        with files_of_at_most(100_000), pytest.raises(InputError, match=WRITTEN_IN_PART) as told:
            shard(rank, *self.NOISE)
        assert str(told.value).startswith(f"{rank} cannot")
        with pytest.raises(RecordError, match=r"rank0\.arrow is not a complete shard"):
            merge_shards([rank], tmp_path / "x.parquet", metadata={})
        assert not (tmp_path / "x.parquet").exists()

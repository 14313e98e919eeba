"""A flipped bit in a checkpoint or a record is a sentence, or changes nothing that is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from attnlight.errors import InputError
from attnlight.records import RecordError, read_metadata, read_pieces, read_record, record_columns
from attnlight.records.parquet import open_writer, read_table
from attnlight.storage.checkpoint_file import CHECKPOINT_FORMAT, CHECKPOINT_KEY, read_checkpoint
from attnlight.storage.checkpoints import AtomicCheckpointIO
from attnlight.studies.selection import chosen_epoch
from tests.damage import DAMAGES, folder_for_all, without_rights
from tests.report.fake import rows_of, write_record


def save_checkpoint(path: Path) -> Path:
    about = {"format": CHECKPOINT_FORMAT, "tokenizer": "words " * 50, "classes": ["no", "yes"]}
    content = {
        CHECKPOINT_KEY: about,
        "state_dict": {"weight": torch.arange(300.0), "bias": torch.ones(3)},
        "epoch": 3,
    }
    AtomicCheckpointIO().save_checkpoint(content, path)
    return path


def plain(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Content that can be compared bit by bit."""
    weights = {k: values.numpy().tobytes() for k, values in checkpoint["state_dict"].items()}
    return checkpoint | {"state_dict": weights}


def refused_flips(path: Path, read: Callable[[Path], dict[str, Any]], step: int) -> int:
    """How often a flipped bit of every so many bytes is refused; others change nothing that is read."""
    whole, before, refused = path.read_bytes(), read(path), 0
    for place in range(0, len(whole), step):
        flipped = bytes([whole[place] ^ (1 << place % 8)])
        path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        try:
            result: Any = read(path)
        except InputError as error:
            result = str(error)
        refused += isinstance(result, str)
        assert str(path) in result if isinstance(result, str) else result == before
    return refused


class TestCheckpoint:
    def test_every_byte(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        # 1,200 bytes of weights and 300 of the tokenizer are among them.
        assert refused_flips(path, lambda path: plain(read_checkpoint(path)), 7) > 300

    @pytest.mark.parametrize("damage", ["truncated", "empty", "bytes", "bit"])
    def test_sentence(self, tmp_path: Path, damage: str) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        DAMAGES[damage](path)
        with pytest.raises(InputError, match=r"a\.ckpt .* damaged"):
            read_checkpoint(path)

    def test_a_bit_of_a_weight_names_the_file(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        flip_value(path, torch.arange(300.0).numpy().tobytes())
        changed = torch.load(path, weights_only=True)["state_dict"]["weight"]
        assert (changed != torch.arange(300.0)).sum() == 1  # torch itself does not notice
        with pytest.raises(InputError, match=r"a\.ckpt is damaged: .*/data/0 "):
            read_checkpoint(path)

    def test_the_epoch_of_a_study(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        assert chosen_epoch(path) == 3
        data = bytearray(path.read_bytes())
        place = data.index(b"K\x03", data.index(b"epoch"))  # pickle's opcode of a small number
        data[place + 1] ^= 1
        path.write_bytes(data)
        assert torch.load(path, weights_only=True)["epoch"] == 2
        with pytest.raises(InputError, match=r"a\.ckpt .* damaged"):
            chosen_epoch(path)

    def test_that_may_not_be_read(self) -> None:
        with folder_for_all() as folder:
            save_checkpoint(folder / "a.ckpt").chmod(0)
            with without_rights(folder), pytest.raises(InputError, match=r"ckpt cannot be read: P"):
                read_checkpoint(folder / "a.ckpt")


ABOUT: dict[str, Any] = {"stage": "test", "epoch": 3, "corpus": "v2-0", "classes": ["a", "b"]}


def write(path: Path) -> Path:
    rows = rows_of("predictions", n=40)
    ragged = {"scores": pa.array([[0.5] * (row % 5) for row in range(40)], pa.list_(pa.float32()))}
    return write_record(path, rows | ragged, **ABOUT)  # type: ignore[arg-type]


def flip_value(path: Path, values: bytes) -> None:
    """Flip a bit within values that lie uncompressed in a file."""
    data = bytearray(path.read_bytes())
    data[data.index(values) + len(values) // 2] ^= 2
    path.write_bytes(data)


class TestRecord:
    def content(self, path: Path) -> dict[str, Any]:
        record = read_record(path)
        columns = {
            name: [v.tobytes() for v in values] if values.dtype == object else values.tobytes()
            for name, values in record.columns.items()
        }
        return columns | {"metadata": record.metadata, "types": record_columns(path)}

    def test_every_byte(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.parquet")
        size = path.stat().st_size
        assert refused_flips(path, self.content, 11) > size / 11 / 2

    @pytest.mark.parametrize("damage", ["truncated", "empty", "longer", "bytes", "last"])
    def test_sentence(self, tmp_path: Path, damage: str) -> None:
        path = write(tmp_path / "x.parquet")
        DAMAGES[damage](path)
        for read in (read_record, read_table):
            with pytest.raises(RecordError, match=r"x\.parquet is (not a readable|damaged)"):
                read(path)

    @pytest.fixture
    def flipped(self, tmp_path: Path) -> Path:
        """A record with one bit of one value flipped, which parquet alone reads as it is."""
        path, values = tmp_path / "x.parquet", np.arange(50.0) + 0.5
        table = pa.table({"index": range(50), "prediction": [0] * 50, "value": values})
        metadata = {"attnlight": '{"format": 1, "rows": 50}'}
        table = table.replace_schema_metadata(metadata)
        with open_writer(path, table.schema, compression="none") as writer:
            writer.write_table(table)
        flip_value(path, values.tobytes()[80:160])
        assert (pq.read_table(path)["value"].to_numpy() != values).sum() == 1
        return path

    def test_wherever_it_is_read(self, flipped: Path) -> None:
        assert read_metadata(flipped)["rows"] == 50
        assert read_table(flipped, ["index"]).num_rows == 50  # its own pages are whole
        reads: list[Callable[[], object]] = [
            lambda: read_record(flipped),
            lambda: list(read_pieces(flipped, ["value"])),
            lambda: read_table(flipped),
        ]
        for read in reads:
            with pytest.raises(RecordError, match=r"x\.parquet is not a readable record: .*CRC"):
                read()

    def test_files_without_checksums_are_read(self, tmp_path: Path) -> None:
        table = pa.table({"index": [3], "value": [0.25]})
        about = {"attnlight": '{"format": 1, "rows": 1}'}
        pq.write_table(table.replace_schema_metadata(about), tmp_path / "x.parquet")
        assert read_record(tmp_path / "x.parquet").columns["value"].tolist() == [0.25]
        assert read_table(tmp_path / "x.parquet").equals(table)

    def test_a_copy_of_some_columns_is_read(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.parquet")
        pq.write_table(pq.read_table(path).select(["index", "label"]), path)
        assert list(read_record(path).columns) == ["index", "label"]
        table = pq.read_table(path)
        renamed = table.rename_columns(["index", "lebal"])
        pq.write_table(renamed.replace_schema_metadata(table.schema.metadata), path)
        with pytest.raises(RecordError, match=r"x\.parquet is damaged: its columns"):
            read_record(path)

    @pytest.mark.parametrize(
        "values",
        [
            pa.array([[1.0], None], pa.list_(pa.float32())),
            pa.array([[1.0, 2.0], [None, None]], pa.list_(pa.float32(), 2)),
            pa.array([["a"], []], pa.large_list(pa.string())),
            pa.array([[["a"]], []]),
            pa.array(["x", "y"]).dictionary_encode(),
            pa.array([True, None]),
            pa.nulls(2),
        ],
    )
    def test_types_come_back_and_rows_in_groups(self, tmp_path: Path, values: pa.Array) -> None:
        table = pa.table({"value": values})
        with open_writer(tmp_path / "x.parquet", table.schema) as writer:
            for row in range(2):
                writer.write_table(table.slice(row, 1))
        result = read_table(tmp_path / "x.parquet")
        assert result.equals(table)
        assert result.schema.metadata is None

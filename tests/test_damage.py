"""A flipped bit in a checkpoint or a record is a sentence, or changes nothing that is read."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.checkpoints import CHECKPOINT_KEY, AtomicCheckpointIO, read_checkpoint
from attnlight.errors import InputError
from attnlight.studies.validation import chosen_epoch
from tests.damage import DAMAGES, folder_for_all, without_rights


def save_checkpoint(path: Path) -> Path:
    content = {
        CHECKPOINT_KEY: {"format": 1, "tokenizer": "words " * 50, "classes": ["no", "yes"]},
        "state_dict": {"weight": torch.arange(300.0), "bias": torch.ones(3)},
        "epoch": 3,
    }
    AtomicCheckpointIO().save_checkpoint(content, path)
    return path


def plain(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Content that can be compared bit by bit."""
    weights = {k: values.numpy().tobytes() for k, values in checkpoint["state_dict"].items()}
    return checkpoint | {"state_dict": weights}


class TestCheckpoint:
    def test_every_byte(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        whole, before = path.read_bytes(), plain(read_checkpoint(path))
        refused = 0
        for place in range(0, len(whole), 7):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            try:
                assert plain(read_checkpoint(path)) == before
            except InputError as error:
                refused += 1
                assert str(path) in str(error)
        assert refused > 300  # 1,200 bytes of weights and 300 of the tokenizer are among them

    @pytest.mark.parametrize("damage", ["truncated", "empty", "bytes", "bit"])
    def test_sentence(self, tmp_path: Path, damage: str) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        DAMAGES[damage](path)
        with pytest.raises(InputError, match=r"a\.ckpt .* damaged"):
            read_checkpoint(path)

    def test_a_bit_of_a_weight_names_the_file(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path / "a.ckpt")
        data = bytearray(path.read_bytes())
        data[data.index(torch.arange(300.0).numpy().tobytes()) + 400] ^= 1
        path.write_bytes(data)
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

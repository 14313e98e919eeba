"""What it costs to compare 75 MB with their checksums, in seconds of one core."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnlight.data.prepared import checksum, find_damage, prepare_once
from attnlight.storage.checkpoint_file import CHECKPOINT_FORMAT, CHECKPOINT_KEY, read_checkpoint
from attnlight.storage.checkpoints import AtomicCheckpointIO
from tests.benchmarks.measuring import clock

BYTES = 75_000_000
BOUND = 0.3


def seconds(call: Callable[[], object]) -> float:
    """The least time of three calls on one core, which other processes do not lengthen."""
    return min(clock(call, timer=time.process_time) for _ in range(3))


def test_a_prepared_file(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "x").write_bytes(os.urandom(BYTES))

    prepare_once(tmp_path / "corpus", write)
    assert seconds(lambda: checksum(tmp_path / "corpus" / "x")) < BOUND
    assert seconds(lambda: find_damage(tmp_path / "corpus")) < 0.005  # its content has passed


def test_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    content = {CHECKPOINT_KEY: {"format": CHECKPOINT_FORMAT}, "weight": torch.randn(BYTES // 4)}
    AtomicCheckpointIO().save_checkpoint(content, path)
    unchecked = seconds(lambda: torch.load(path, weights_only=True))
    assert seconds(lambda: read_checkpoint(path)) - unchecked < BOUND

"""Checkpoints as Lightning writes and reads them: atomically, without executing their content."""

from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from typing_extensions import override

from attnlight.storage.checkpoint_file import read_checkpoint
from attnlight.storage.files import replacing


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint to a temporary file, flush it to the disk and rename it."""

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:
                # After a failed write, torch raises again when it closes its archive.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    @override
    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(path, map_location or "cpu")

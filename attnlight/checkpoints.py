"""Checkpoints: written whole or not at all, read without running anything that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from typing_extensions import override

from attnlight.compatibility import hyperparameters
from attnlight.errors import InputError
from attnlight.files import nearest_file, replacing

CHECKPOINT_KEY = "attnlight"
OPTIMIZER_STATES = "optimizer_states"  # Lightning's key; a checkpoint of weights alone lacks it
CHECKPOINT_FORMAT = 2
_READ = (1, CHECKPOINT_FORMAT)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its target, to the disk, and only then give it the name."""

    @override
    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | Path,
        storage_options: Any | None = None,
    ) -> None:
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:
                # After a failed write torch fails again, on closing its archive.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    @override
    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        return read_checkpoint(path, map_location or "cpu")


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:  # noqa: ANN401
    """Read a checkpoint of attnlight; the hyperparameters of one of format 1 come as today's.

    Args:
        path: The file.
        map_location: As for `torch.load`.

    Raises:
        InputError: The file is missing, damaged, holds more than plain values and tensors, or was
            not written by attnlight.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no checkpoint {path}{nearest_file(Path(path))}.")
    try:
        checkpoint: Any = None
        with ZipFile(path) as file:
            changed = file.testzip()  # compares checksums, which torch does not look at
        if changed is None:
            checkpoint = torch.load(path, map_location, weights_only=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # nearly any, by where the file is damaged or what is in it
        raise InputError(
            f"{path} is no readable checkpoint: it is damaged, or holds more than plain values "
            "and tensors."
        ) from error
    if changed is not None:
        raise InputError(
            f"{path} is damaged: {changed} in it is not as it was written. Use another checkpoint "
            "of the run, or train it again."
        )
    held = checkpoint.get(CHECKPOINT_KEY) if isinstance(checkpoint, dict) else None
    given = checkpoint.get("hyper_parameters", {}) if isinstance(checkpoint, dict) else None
    if not (isinstance(held, dict) and isinstance(given, dict)):
        raise InputError(f"{path} is not a checkpoint of attnlight.")
    if held.get("format") not in _READ:
        raise InputError(
            f"{path} has checkpoint format {held.get('format')}; this version reads formats "
            f"{' and '.join(map(str, _READ))}."
        )
    result: dict[str, Any] = checkpoint | {"hyper_parameters": hyperparameters(given)}
    return result

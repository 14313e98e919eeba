"""The file of a checkpoint: its keys, and reading it without executing any code in it."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from attnlight.errors import InputError
from attnlight.storage.files import suggest_file
from attnlight.storage.migration import unmigrated

CHECKPOINT_KEY = "attnlight"
OPTIMIZER_STATES = "optimizer_states"  # Lightning's key; a checkpoint of weights alone lacks it
SLURM_JOB = "slurm_job"  # id of the job that wrote the checkpoint, which a requeued job keeps
GLOBAL_BATCH_SIZE = "global_batch_size"  # number of texts that all devices read at a step
CHECKPOINT_FORMAT = 2


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:  # noqa: ANN401
    """The content of a checkpoint of attnlight.

    Raises:
        InputError: The file is missing, damaged, not of attnlight, or has more than plain values and
            tensors.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no checkpoint {path}{suggest_file(Path(path))}.")
    try:
        checkpoint: Any = None
        with ZipFile(path) as file:
            damaged = file.testzip()  # compares checksums, which torch does not check
        if damaged is None:
            checkpoint = torch.load(path, map_location, weights_only=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # nearly any, depending on the damage or the content
        raise InputError(
            f"{path} is not a readable checkpoint: it is damaged, or contains more than plain "
            "values and tensors."
        ) from error
    if damaged is not None:
        raise InputError(
            f"{path} is damaged: the checksum of {damaged} in it does not match. Use another "
            "checkpoint of the run, or train it again."
        )
    content: dict[str, Any] = checkpoint if isinstance(checkpoint, dict) else {}
    metadata, hparams = content.get(CHECKPOINT_KEY), content.get("hyper_parameters", {})
    if not (isinstance(metadata, dict) and isinstance(hparams, dict)):
        raise InputError(f"{path} is not a checkpoint of attnlight.")
    if metadata.get("format") == 1 or "compat" in hparams:
        raise unmigrated(Path(path))
    if metadata.get("format") != CHECKPOINT_FORMAT:
        raise InputError(
            f"{path} has checkpoint format {metadata.get('format')}; this version reads format "
            f"{CHECKPOINT_FORMAT}."
        )
    return content

"""How a classifier did on the validation split at the epoch that was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import EXCLUDED, read_record
from attnlight.statistics.f1 import f1_by_class
from attnlight.studies.commands import DIVERGENCE, PREDICTIONS, attached
from attnlight.studies.plan import PlannedRun

Measures = dict[str, Any]  # numbers, None where undefined, or a list of one for each head


def chosen_epoch(best: Path) -> int:
    """The epoch, from 0, of a checkpoint.

    Raises:
        InputError: It cannot be read.
    """
    import torch

    try:  # mapped, so that no tensor is read; torch does not look at the checksum of the rest
        with ZipFile(best) as file:
            file.read(next(name for name in file.namelist() if name.endswith("/data.pkl")))
        held = torch.load(best, map_location="cpu", weights_only=True, mmap=True)
        return int(held["epoch"])
    except Exception as error:  # torch raises nearly anything on a damaged file
        raise InputError(f"{best} is no readable checkpoint: it is damaged.") from error


def validation_measures(folder: Path, run: PlannedRun, epoch: int) -> Measures:
    """Measures of a run on the validation split at one epoch, from its records.

    Args:
        folder: The run's folder.
        run: What it is.
        epoch: The epoch, from 0.

    Returns:
        `accuracy`, `macro_f1`, `f1` (of the second of two classes, None for more),
        `attention_js` and `prediction_tvd` (means over texts; None for a base).

    Raises:
        RecordError: A record is missing or damaged.
    """
    records = folder / "records" / "val"
    record = read_record(records / f"{PREDICTIONS}-{epoch}.parquet")
    classes = len(record.metadata["classes"])
    found = scores(record.columns["label"], record.columns["prediction"], classes)
    means: Measures = {"attention_js": None, "prediction_tvd": None}
    if DIVERGENCE in attached(run):
        columns = read_record(records / f"{DIVERGENCE}-{epoch}.parquet").columns
        measured = columns["prediction"] != EXCLUDED
        means = {name: float(np.mean(columns[name][measured])) for name in means}
    return found | means


def scores(label: NDArray[np.integer], prediction: NDArray[np.integer], classes: int) -> Measures:
    """Accuracy, macro F1 and the second class's F1 (for two classes; else None).

    A prediction of -1, of a text that was not measured, is a miss. A class that is neither a label
    nor predicted has no F1 and is left out of the mean.

    Args:
        label: (n,).
        prediction: (n,).
        classes: Number of classes.
    """
    (f1,) = f1_by_class(prediction[None], label, classes)
    return {
        "accuracy": float(np.mean(label == prediction)),
        "macro_f1": float(np.nanmean(f1)),
        "f1": float(f1[1]) if classes == 2 else None,
    }

"""What a tagger said of each token of a split, read from the records of its best epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.functional.spans import TagScheme, find_chunks
from attnlight.records import EXCLUDED, KEY, Record, RecordError, read_record
from attnlight.studies.commands import DIVERGENCE, PREDICTIONS, Stage, attached
from attnlight.studies.plan import PlannedRun
from attnlight.studies.state import StudyFolder

Floats = NDArray[np.float64]
# What float32 holds as 0 is taken for the least that it can hold: a loss of 103 nats.
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Tokens:
    """R tokens that a run was asked for, one sentence after the other.

    Attributes:
        index: Dataset row of the sentence of each, (R,), ascending.
        label: True class of each, (R,), -1 where it has none.
        prediction: Predicted class, (R,), -1 where it was not measured.
        probabilities: Of each class, (R, C), NaN where it was not measured.
        classes: Names of the classes.
        divergence: Columns of `BaseDivergence`, (R,) or (R, H), NaN where undefined; none of a base.
    """

    index: NDArray[np.int64]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    probabilities: NDArray[np.floating]
    classes: Sequence[str]
    divergence: Mapping[str, NDArray[Any]]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether each was measured, (R,)."""
        return np.not_equal(self.prediction, EXCLUDED)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each was measured and its prediction is its label, (R,)."""
        return self.measured & np.equal(self.prediction, self.label)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Place of the first token of each of S sentences, (S,)."""
        return np.flatnonzero(np.diff(self.index, prepend=self.index[:1] - 1))

    def losses(self, classes: NDArray[np.int64]) -> Floats:
        """Negative log-likelihood in nats of a class of each token, (R,), NaN where it is -1.

        Args:
            classes: The classes, (R,).
        """
        probability = self.probabilities[np.arange(len(classes)), classes]
        losses = -np.log(np.maximum(probability.astype(np.float64), _LEAST))
        return np.where(classes < 0, np.nan, losses)

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over the tokens of each sentence of what is defined, (S,), or (S, H) of (R, H)."""
        numbers = values.astype(np.int64) if values.dtype == bool else values.astype(np.float64)
        return np.add.reduceat(np.where(np.isnan(values), 0, numbers), self.starts, axis=0)

    def chunks(self) -> tuple[NDArray[np.bool_], ...]:
        """Where chunks start: those of the labels, those of the predictions, and what both have.

        A token without a class is outside all chunks.

        Returns:
            Three arrays (R,).
        """
        begins = torch.zeros(len(self.index), dtype=torch.bool)
        begins[self.starts] = True
        scheme, outside = _scheme(self.classes), len(self.classes)
        (gold, gold_ends), (found, found_ends) = (
            find_chunks(torch.from_numpy(np.where(tags < 0, outside, tags)), begins, scheme)
            for tags in (self.label, self.prediction)
        )
        both = (found >= 0) & (found == gold) & (found_ends == gold_ends)
        return (gold >= 0).numpy(), (found >= 0).numpy(), both.numpy()


def read_tokens(folder: StudyFolder, run: PlannedRun, stage: Stage) -> Tokens:
    """Read what a finished run said of a split.

    Args:
        folder: The study's folder.
        run: The run.
        stage: The split.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other tokens than that of the base.
    """
    path = folder.record(run.name, stage, PREDICTIONS)
    record = read_record(path)
    columns, classes = record.columns, record.metadata["classes"]
    divergence: Mapping[str, NDArray[Any]] = {}
    labels = record
    if DIVERGENCE in attached(run):
        other = folder.record(run.name, stage, DIVERGENCE)
        divergence = _same_tokens(read_record(other), record, path).columns
        # Those of the run itself are null where it was not measured.
        other = folder.record(str(run.base), stage, PREDICTIONS)
        labels = _same_tokens(read_record(other, [*KEY, "label"]), record, path)
    if "label" not in labels.columns:
        raise RecordError(f"{path}: no token has a label, or none was measured.")
    return Tokens(
        index=columns["index"],
        label=whole(labels.columns["label"]),
        prediction=columns["prediction"],
        probabilities=columns.get(
            "probabilities", np.full((len(columns["index"]), len(classes)), np.nan)
        ),
        classes=classes,
        divergence=divergence,
    )


def _same_tokens(record: Record, other: Record, path: Path) -> Record:
    if not all(np.array_equal(record.columns[key], other.columns[key]) for key in KEY):
        raise InputError(f"{path} holds other tokens than the records beside it: test it anew.")
    return record


def whole(classes: NDArray[Any]) -> NDArray[np.int64]:
    """Classes with -1 where a record has none."""
    return np.where(np.isnan(classes), -1, classes).astype(np.int64)


def _scheme(classes: Sequence[str]) -> TagScheme:
    """What the tags say, and one more that is outside all chunks."""
    from attnlight.problems.tagging import tag_scheme

    return tag_scheme([*classes, "O"])

"""What is collected of a classifier's runs: a row for each test text, and a base's frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.records import Record, read_record
from attnlight.studies.commands import DIVERGENCE, PREDICTIONS, attached
from attnlight.studies.plan import PlannedRun
from attnlight.studies.state import StudyFolder

_ADVERSARY = "adversarial_attention"
_OF_VARIANTS = ("attention_js", "prediction_tvd", "base_max_attention")
_OF_BASES = ("worst_js", "search_js", "search_tvd")
_WHOLE = dict.fromkeys(("index", "label", "prediction"), pa.int64())
SCHEMA = pa.schema(_WHOLE | dict.fromkeys((*_OF_VARIANTS, *_OF_BASES), pa.float32()))


def rows(folder: StudyFolder, run: PlannedRun) -> Mapping[str, NDArray[Any]]:
    """Columns of `SCHEMA` of a finished run, (n,) for n test texts; what it has none of is left out.

    Raises:
        RecordError: A record is missing or damaged.
    """
    record = read_record(folder.record(run.name, "test", PREDICTIONS))
    index = record.columns["index"]
    found: dict[str, NDArray[Any]] = dict(record.columns)
    if DIVERGENCE in attached(run):
        own = read_record(folder.record(run.name, "test", DIVERGENCE))
        found |= _aligned(index, own, _OF_VARIANTS)
    adversaries = _adversaries_of(folder, run)
    if adversaries is not None:
        found |= _aligned(index, adversaries, _OF_BASES)
    return found


def _aligned(
    index: NDArray[np.int64], record: Record, names: Sequence[str]
) -> Mapping[str, NDArray[Any]]:
    """Some columns of a record in the order of other rows, NaN where it has no such row."""
    own = record.columns["index"]
    places = np.minimum(np.searchsorted(own, index), len(own) - 1)
    there = own[places] == index
    return {
        name: np.where(there, record.columns[name][places], np.nan)
        for name in names
        if name in record.columns
    }


def described(folder: StudyFolder, run: PlannedRun) -> dict[str, Any]:
    """What `study.json` says of a finished run beyond what it says of all."""
    told = {} if run.guide is None else {"told_by": folder.told_by(run)}
    return told | _frontier(folder, run)


def _frontier(folder: StudyFolder, run: PlannedRun) -> dict[str, Any]:
    """The bound on attentions over a base's own encoder, where its record has one."""
    record = _adversaries_of(folder, run)
    if record is None or "frontier_js" not in record.columns:
        return {}
    from attnlight.statistics.frontier import frontier

    epsilons = np.array(record.metadata["frontier_epsilons"])
    tvd, js = thinned(*frontier(record.columns["frontier_js"], epsilons))
    return {"frontier": {"tvd": tvd.tolist(), "js": js.tolist()}}


def thinned(
    x: NDArray[np.float64], y: NDArray[np.float64], corners: int = 400
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some of a concave curve's corners, evenly along it, its ends among them.

    Ten thousand corners would make a file that is kept large; 400 move the curve by less than a
    thousandth of its height.

    Args:
        x: Ascending, (P,).
        y: Ascending, (P,).
        corners: How many to keep at most.
    """
    if len(x) <= corners:
        return x, y
    steps = np.hypot(np.diff(x) / np.ptp(x), np.diff(y) / np.ptp(y))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    kept = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], corners)))
    kept = np.minimum(kept, len(x) - 1)
    return x[kept], y[kept]


def _adversaries_of(folder: StudyFolder, run: PlannedRun) -> Record | None:
    path = folder.record(run.name, "test", _ADVERSARY)
    return read_record(path) if run.base is None and path.is_file() else None

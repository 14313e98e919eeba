"""What a study came to: `study.json` and `study.parquet`, enough for every table and figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.files import replacing, write_text
from attnlight.records import Record, read_metadata, read_record
from attnlight.studies.commands import DIVERGENCE, PREDICTIONS, attached, checkpoint
from attnlight.studies.plan import PlannedRun, base_name
from attnlight.studies.selection import Selection, select
from attnlight.studies.state import StudyFolder
from attnlight.studies.validation import Measures, chosen_epoch, validation_measures

SCHEMA = 1
JSON, PARQUET = "study.json", "study.parquet"
_ADVERSARY = "adversarial_attention"
_OF_VARIANTS = ("attention_js", "prediction_tvd", "base_max_attention")
_OF_BASES = ("worst_js", "search_js", "search_tvd")


class Validation:
    """Measures on the validation split, each run's read once.

    Args:
        folder: The study's folder.
    """

    def __init__(self, folder: StudyFolder) -> None:
        self._folder = folder
        self._held: dict[str, tuple[int, Measures]] = {}

    def of(self, run: PlannedRun) -> tuple[int, Measures]:
        """The epoch that was chosen of a finished run, and its measures."""
        if run.name not in self._held:
            epoch = chosen_epoch(checkpoint(self._folder.path, run.name))
            measures = validation_measures(self._folder.run(run.name), run, epoch)
            self._held[run.name] = epoch, measures
        return self._held[run.name]

    def selection(self, runs: Sequence[PlannedRun], term: str) -> Selection | None:
        """The adversary of one term against the first base, of some finished runs."""
        base = base_name(self._folder.study.base.seeds[0])
        own = [run for run in runs if (run.term, run.base) == (term, base)]
        return select(own, {run.name: self.of(run)[1] for run in own})


def collect(folder: StudyFolder, runs: Sequence[PlannedRun], validation: Validation) -> bool:
    """Write `study.json` and `study.parquet` of what is finished.

    Args:
        folder: The study's folder.
        runs: The plan.
        validation: Measures on the validation split.

    Returns:
        Whether any run is finished; without one nothing is written.

    Raises:
        InputError: A record or checkpoint is damaged, or a file cannot be written.
    """
    states = {run.name: folder.state(run) for run in runs}
    finished = [run for run in runs if states[run.name] == "finished"]
    if not finished:
        return False
    _write_rows(folder, finished)
    first = folder.run(finished[0].name) / "records" / "test" / f"{PREDICTIONS}.parquet"
    held = folder.study.adversaries
    terms = [] if held is None else list(held.lambdas)
    chosen = {term: validation.selection(finished, term) for term in terms}
    content = {
        "schema": SCHEMA,
        "study": folder.path.name,
        "experiment": folder.study.experiment.stem,
        "corpus": folder.study.corpus,
        "classes": read_metadata(first)["classes"],
        "selected": None if held is None else _selected(chosen[held.term]),
        "best": {term: _selected(found) for term, found in chosen.items()},
        "runs": [_described(folder, run, states[run.name], validation) for run in runs],
    }
    write_text(folder.path / JSON, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return True


def _selected(found: Selection | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "run": next(iter(found.runs.values())),
        "term": found.term,
        "lambda": found.lambda_,
        "reached": found.reached,
    }


def _described(
    folder: StudyFolder, run: PlannedRun, state: str, validation: Validation
) -> dict[str, Any]:
    held = asdict(run)
    said: dict[str, Any] = {key: held[key] for key in ("name", "role", "seed", "base", "guide")}
    said |= {"term": run.term, "lambda": run.lambda_, "state": state}
    if state != "finished":
        return said | {"epoch": None, "validation": None}
    if run.guide is not None:
        said["told_by"] = folder.told_by(run)
    epoch, measures = validation.of(run)
    said |= {"epoch": epoch, "validation": measures}
    return said | _frontier(folder, run)


def _frontier(folder: StudyFolder, run: PlannedRun) -> dict[str, Any]:
    """The bound on attentions over a base's own encoder, where its record has one."""
    record = _adversaries_of(folder, run)
    if record is None or "frontier_js" not in record.columns:
        return {}
    from attnlight.functional.frontier import frontier

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
    path = folder.run(run.name) / "records" / "test" / f"{_ADVERSARY}.parquet"
    return read_record(path) if run.base is None and path.is_file() else None


def _write_rows(folder: StudyFolder, runs: Sequence[PlannedRun]) -> None:
    """One row per run and test text, run by run: memory does not grow with the study."""
    names = pa.array([run.name for run in runs])
    with (
        replacing(folder.path / PARQUET) as temporary,
        pq.ParquetWriter(str(temporary), _schema(), compression="zstd") as writer,
    ):
        for place, run in enumerate(runs):
            writer.write_table(_rows(folder, run, place, names))


def _schema() -> pa.Schema:
    whole = {"index": pa.int64(), "label": pa.int64(), "prediction": pa.int64()}
    floats = dict.fromkeys((*_OF_VARIANTS, *_OF_BASES), pa.float32())
    return pa.schema({"run": pa.dictionary(pa.int32(), pa.string())} | whole | floats)


def _rows(folder: StudyFolder, run: PlannedRun, place: int, names: pa.Array) -> pa.Table:
    records = folder.run(run.name) / "records" / "test"
    record = read_record(records / f"{PREDICTIONS}.parquet")
    index = record.columns["index"]
    found: dict[str, NDArray[Any]] = dict(record.columns)
    if DIVERGENCE in attached(run):
        found |= _aligned(index, read_record(records / f"{DIVERGENCE}.parquet"), _OF_VARIANTS)
    adversaries = _adversaries_of(folder, run)
    if adversaries is not None:
        found |= _aligned(index, adversaries, _OF_BASES)
    owner = pa.DictionaryArray.from_arrays(np.full(len(index), place, np.int32), names)
    columns = [owner, *(_column(found, field, len(index)) for field in list(_schema())[1:])]
    return pa.Table.from_arrays(columns, schema=_schema())


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


def _column(found: Mapping[str, NDArray[Any]], field: pa.Field, rows: int) -> pa.Array:
    values = found.get(field.name)
    if values is None:
        return pa.nulls(rows, field.type)
    undefined = np.isnan(values) if values.dtype.kind == "f" else None
    return pa.array(values, field.type, mask=undefined, safe=False)


def report(folder: Path) -> list[Path]:
    """Write the tables and figures of a study that is collected."""
    from attnlight.report.study import write_study

    return write_study(folder)

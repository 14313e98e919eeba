"""What a study came to: `study.json` and `study.parquet`, enough for every table and figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.files import replacing, write_text
from attnlight.records import read_metadata
from attnlight.records.parquet import open_writer
from attnlight.studies import classification, tagging
from attnlight.studies.commands import PREDICTIONS, checkpoint
from attnlight.studies.plan import PlannedRun, base_name
from attnlight.studies.selection import Selection, select
from attnlight.studies.state import StudyFolder
from attnlight.studies.validation import Measures, chosen_epoch, validation_measures

SCHEMA = 1
JSON, PARQUET = "study.json", "study.parquet"
# Rows that are compressed together: what a base says of a text is the same in all its variants.
_GROUP = 1 << 17
_OF_ALL = ("name", "role", "seed", "base", "guide", "term")
_OF_TAGGERS = ("context", "head", "told_by")


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
            self._held[run.name] = epoch, self._measures(run, epoch)
        return self._held[run.name]

    def _measures(self, run: PlannedRun, epoch: int) -> Measures:
        if self._folder.study.tagger:
            return tagging.validation(self._folder, run)
        return validation_measures(self._folder.run(run.name), run, epoch)

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
    first = folder.record(finished[0].name, "test", PREDICTIONS)
    held = folder.study.adversaries
    terms = [] if held is None else list(held.lambdas)
    chosen = {term: validation.selection(finished, term) for term in terms}
    content = {
        "schema": SCHEMA,
        "study": folder.path.name,
        "experiment": folder.study.experiment.stem,
        "corpus": folder.study.corpus,
        "classes": read_metadata(first)["classes"],
        **(tagging.about(folder) if folder.study.tagger else {}),
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
    tagger = folder.study.tagger
    said = {key: getattr(run, key) for key in _OF_ALL}
    said |= {"lambda": run.lambda_, "state": state, "epoch": None, "validation": None}
    if tagger:
        said |= {key: getattr(run, key) for key in _OF_TAGGERS} | {"epochs": None, "heads": None}
    if state == "finished":
        said["epoch"], said["validation"] = validation.of(run)
        said |= (tagging if tagger else classification).described(folder, run)
    return said


def _write_rows(folder: StudyFolder, runs: Sequence[PlannedRun]) -> None:
    """One row per run and test text, some runs at a time: memory does not grow with the study."""
    kind = tagging if folder.study.tagger else classification
    names = pa.array([run.name for run in runs])
    owner = pa.field("run", pa.dictionary(pa.int32(), pa.string()))
    schema = pa.schema([owner, *kind.SCHEMA])
    with (
        replacing(folder.path / PARQUET) as temporary,
        open_writer(temporary, schema, compression="zstd") as writer,
    ):
        group: list[pa.Table] = []
        for place, run in enumerate(runs):
            found = kind.rows(folder, run)
            count = len(found["index"])
            own = pa.DictionaryArray.from_arrays(np.full(count, place, np.int32), names)
            columns = [_column(found.get(field.name), field.type, count) for field in kind.SCHEMA]
            group.append(pa.Table.from_arrays([own, *columns], schema=schema))
            if sum(map(len, group)) >= _GROUP or run is runs[-1]:
                writer.write_table(pa.concat_tables(group))
                group = []


def _column(values: NDArray[Any] | None, kind: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    if values.ndim == 2:
        offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
        flat = pa.array(values.reshape(-1), kind.value_type, safe=False)
        return pa.ListArray.from_arrays(pa.array(offsets), flat)
    undefined = np.isnan(values) if values.dtype.kind == "f" else None
    return pa.array(values, kind, mask=undefined, safe=False)


def report(folder: Path) -> list[Path]:
    """Write the tables and figures of a study that is collected."""
    from attnlight.report.study import write_study

    return write_study(folder)

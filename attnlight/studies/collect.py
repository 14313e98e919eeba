"""A study's results: `study.json` and `study.parquet`, enough for every table and figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.files import replacing, write_text
from attnlight.problems import problem_class
from attnlight.records import Record, read_metadata, read_record
from attnlight.records.parquet import open_writer
from attnlight.statistics.collapse import frequency_loss
from attnlight.statistics.f1 import f1_by_class
from attnlight.statistics.frontier import frontier, thinned
from attnlight.studies.argv import DIVERGENCE, OPTIONS, checkpoint
from attnlight.studies.instances import COMPARED, HEADS, Instances, read_instances
from attnlight.studies.plan import PlannedRun, base_name
from attnlight.studies.selection import Measures, Selection, chosen_epoch, select
from attnlight.studies.state import StudyFolder

SCHEMA = 1
JSON, PARQUET = "study.json", "study.parquet"
# Rows that are compressed together: a text's columns of the base are the same in all its variants.
_GROUP = 1 << 17
_ADVERSARY = "adversarial_attention"
_OF_VARIANTS = ("attention_js", "prediction_tvd", "base_max_attention")
_OF_BASES = ("worst_js", "search_js", "search_tvd")
_COUNTS = ("tokens", "correct", "agree", "gold", "found", "matched", "choices", "tau_rows")
# A row for each text: of an instance, or sums over those that are parts of it.
TEXTS = pa.schema(
    dict.fromkeys(("index", "label", "prediction"), pa.int64())
    | dict.fromkeys((*_OF_VARIANTS, *_OF_BASES), pa.float32())
)
CLUSTERS = pa.schema(
    {"index": pa.int64()}
    | dict.fromkeys(_COUNTS, pa.int32())
    | dict.fromkeys(("nll_gold", "nll_base", *COMPARED), pa.float32())
    | {HEADS: pa.list_(pa.float32())}
)


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
            self._held[run.name] = epoch, measures(read_instances(self._folder, run, "val"))
        return self._held[run.name]

    def selection(self, runs: Sequence[PlannedRun], term: str) -> Selection | None:
        """The adversary of one term against the first base, of some finished runs."""
        base = base_name(self._folder.study.base.seeds[0])
        own = [run for run in runs if (run.term, run.base) == (term, base)]
        return select(own, {run.name: self.of(run)[1] for run in own})


def measures(instances: Instances) -> Measures:
    """Measures of a run on a split.

    Returns:
        Of texts `accuracy`, `macro_f1`, `f1` (of the second of two classes, None for more),
        `attention_js` and `prediction_tvd`. Of texts whose instances are several `f1` (of what the
        problem counts, else the mean over classes), `accuracy`, and the means over measured
        instances `nll_gold`, `nll_base` (nats), `attention_js`, `attention_js_mean`,
        `attention_js_share`, `attention_tau`, `prediction_tvd` and, for each head of the base,
        `attention_js_heads`. None where there is nothing to take a mean of. An instance that was
        not measured is a miss; a class that is neither a label nor predicted has no F1.
    """
    accuracy = float(instances.correct.mean())
    if instances.places is not None:
        gold, found, both = (int(where.sum()) for where in instances.places)
        f1 = 2 * both / (gold + found) if gold + found else 0.0
    else:
        (by_class,) = f1_by_class(
            instances.prediction[None], instances.label, len(instances.classes)
        )
        f1 = float(np.nanmean(by_class))
        if not instances.clustered:
            positive = float(by_class[1]) if len(by_class) == 2 else None
            names = ("attention_js", "prediction_tvd")
            means = {name: _mean(instances.divergence.get(name), None) for name in names}
            return {"accuracy": accuracy, "macro_f1": f1, "f1": positive} | means
    compared = instances.compared()
    heads = [_mean(column) for column in compared[HEADS].T] if compared else []
    return {
        "f1": f1,
        "accuracy": accuracy,
        "nll_gold": _mean(instances.losses(instances.label)),
        **{name: _mean(compared.get(name)) for name in ("nll_base", *COMPARED)},
        HEADS: [mean for mean in heads if mean is not None] or None,
    }


def _mean(values: NDArray[Any] | None, dtype: type | None = np.float64) -> float | None:
    """Mean of what is defined."""
    defined = np.empty(0) if values is None else values[~np.isnan(values)]
    return float(defined.mean(dtype=dtype)) if len(defined) else None


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
    study, first = folder.study, read_instances(folder, finished[0], "test")
    _write_rows(folder, finished, CLUSTERS if first.clustered else TEXTS)
    words = problem_class(study.problem).words(list(first.classes), study.target or "tokens")
    of_clusters: dict[str, Any] = {}
    if first.clustered:
        base = base_name(study.base.seeds[0])
        of_clusters = {
            "task": words.problem,
            "target": study.target,
            "options": study.condition,
            "readout": folder.setting(base, "model", OPTIONS["readout"]),
            "pos": folder.setting(base, "data", "pos"),
        }
    grid = study.adversaries
    best = {}
    for term in grid.lambdas:
        found = validation.selection(finished, term)
        best[term] = None if found is None else found.described()
    content = {
        "schema": SCHEMA,
        "study": folder.path.name,
        "experiment": study.experiment.stem,
        "corpus": study.corpus,
        "classes": first.classes,
        "problem": asdict(words),
        **of_clusters,
        "selected": best.get(grid.term),
        "best": best,
        "runs": [
            _described(folder, run, states[run.name], validation, clustered=first.clustered)
            for run in runs
        ],
    }
    write_text(folder.path / JSON, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return True


def _described(
    folder: StudyFolder, run: PlannedRun, state: str, validation: Validation, *, clustered: bool
) -> dict[str, Any]:
    """The entry of a run in `study.json`."""
    keys = ("name", "role", "seed", "base", "guide", "term")
    row: dict[str, Any] = {key: getattr(run, key) for key in keys}
    row |= {"lambda": run.lambda_, "state": state, "epoch": None, "validation": None}
    if clustered:
        row |= {"context": run.context, "head": run.head, "told_by": run.guide_run}
        row |= {"epochs": None, "heads": None}
    if state != "finished":
        return row
    row["epoch"], row["validation"] = validation.of(run)
    if clustered or run.guide is not None:
        row["told_by"] = folder.guide_run(run)
    if not clustered:
        record = _adversaries(folder, run)
        if record is not None and "frontier_js" in record.columns:
            epsilons = np.array(record.metadata["frontier_epsilons"])
            tvd, js = thinned(*frontier(record.columns["frontier_js"], epsilons))
            row["frontier"] = {"tvd": tvd.tolist(), "js": js.tolist()}
        return row
    row["epochs"] = folder.status(run).get("epochs")
    if run.base is not None:
        row["heads"] = read_metadata(folder.record(run.name, "test", DIVERGENCE)).get("heads")
        return row
    instances = read_instances(folder, run, "val")
    counts = np.bincount(instances.prediction[instances.measured], minlength=len(instances.classes))
    return row | {"ignorant": frequency_loss(counts)}


def _adversaries(folder: StudyFolder, run: PlannedRun) -> Record | None:
    path = folder.record(run.name, "test", _ADVERSARY)
    return read_record(path) if run.base is None and path.is_file() else None


def text_rows(folder: StudyFolder, run: PlannedRun) -> Mapping[str, NDArray[Any]]:
    """Columns of a finished run, (S,) or (S, H) for S test texts; what it has none of is left out.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other instances than that of the base.
    """
    instances = read_instances(folder, run, "test")
    if instances.clustered:
        return instances.sums()
    found = dict(instances.columns)
    found |= {
        name: instances.divergence[name] for name in _OF_VARIANTS if name in instances.divergence
    }
    record = _adversaries(folder, run)
    if record is not None:  # which may be of some texts alone
        own = record.columns["index"]
        places = np.minimum(np.searchsorted(own, instances.columns["index"]), len(own) - 1)
        for name in set(_OF_BASES) & record.columns.keys():
            there = own[places] == instances.columns["index"]
            found[name] = np.where(there, record.columns[name][places], np.nan)
    return found


def _write_rows(folder: StudyFolder, runs: Sequence[PlannedRun], kind: pa.Schema) -> None:
    """One row per run and test text, some runs at a time: memory does not grow with the study."""
    names = pa.array([run.name for run in runs])
    owner = pa.field("run", pa.dictionary(pa.int32(), pa.string()))
    schema = pa.schema([owner, *kind])
    with (
        replacing(folder.path / PARQUET) as temporary,
        open_writer(temporary, schema, compression="zstd") as writer,
    ):
        group: list[pa.Table] = []
        for place, run in enumerate(runs):
            found = text_rows(folder, run)
            count = len(found["index"])
            own = pa.DictionaryArray.from_arrays(np.full(count, place, np.int32), names)
            columns = [_column(found.get(field.name), field.type, count) for field in kind]
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

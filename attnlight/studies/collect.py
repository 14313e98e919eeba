"""A study's results: `study.json` and `study.parquet`, the input of all tables and figures."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from attnlight.records import read_metadata
from attnlight.records.parquet import open_writer
from attnlight.statistics.collapse import frequency_loss
from attnlight.statistics.frontier import frontier, thinned
from attnlight.storage.files import replacing, write_text
from attnlight.studies.argv import BEST, DIVERGENCE
from attnlight.studies.instances import HEADS, MEANS, WORST_CASE, read_instances
from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import Measures, Selection, chosen_epoch, select
from attnlight.studies.state import StudyFolder, read_json

SCHEMA = 1
JSON, PARQUET = "study.json", "study.parquet"
# Rows that are compressed together: columns of the base are equal in all its variants.
_GROUP = 1 << 17
# One row per text: values of its instance, or sums over its instances.
TEXTS = pa.schema(
    dict.fromkeys(("index", "label", "prediction"), pa.int64())
    | dict.fromkeys(
        ("attention_js", "prediction_tvd", "base_max_attention", *WORST_CASE), pa.float32()
    )
)
CLUSTERS = pa.schema(
    {"index": pa.int64()}
    | dict.fromkeys(
        ("tokens", "correct", "agree", "gold", "found", "matched", "choices", "tau_rows"),
        pa.int32(),
    )
    | dict.fromkeys(MEANS, pa.float32())
    | {HEADS: pa.list_(pa.float32())}
)


@cache
def validation(folder: StudyFolder, run: PlannedRun) -> tuple[int, Measures]:
    """The best epoch of a finished run, from 0, and its measures on validation."""
    epoch = chosen_epoch(folder.path / run.name / BEST)
    return epoch, read_instances(folder, run, "val").measures()


def selection(folder: StudyFolder, runs: Iterable[PlannedRun], term: str) -> Selection | None:
    """The adversary that represents a term, among the finished runs of the first base."""
    base = f"base-s{folder.study.base.seeds[0]}"
    adversaries = [run for run in runs if (run.term, run.base) == (term, base)]
    return select(adversaries, {run.name: validation(folder, run)[1] for run in adversaries})


def collect(folder: StudyFolder) -> bool:
    """Write `study.json` and `study.parquet` from the finished runs, and return whether there are any."""
    states = {run: folder.state(run) for run in folder.runs.values()}
    finished = [run for run, state in states.items() if state == "finished"]
    if not finished:
        return False
    folder.require_one_corpus(finished)
    study, first = folder.study, read_instances(folder, finished[0], "test")
    _write_rows(folder, finished, CLUSTERS if first.several_instances else TEXTS)
    words = study.setup.problem.words(list(first.classes), study.setup.target or "tokens")
    best: dict[str, Any] = {}
    for term in study.adversaries.lambdas:
        chosen = selection(folder, finished, term)
        best[term] = chosen and {
            "run": next(iter(chosen.runs.values())),
            "term": term,
            "lambda": chosen.lambda_,
            "reached": chosen.reached,
        }
    content = {
        "schema": SCHEMA,
        "study": folder.path.name,
        "experiment": study.experiment.stem,
        "corpus": study.setup.corpus,
        "classes": first.classes,
        "problem": asdict(words),
        "selected": best.get(study.adversaries.term),
        "best": best,
        "runs": [_entry(folder, *each, first.several_instances) for each in states.items()],
    }
    if first.several_instances:
        base = f"base-s{study.base.seeds[0]}"
        content |= {
            "task": words.problem,
            "target": study.setup.target,
            "options": study.condition,
            "readout": folder.setting(base, "model", "net.readout"),
            "pos": folder.setting(base, "data", "pos"),
        }
    write_text(folder.path / JSON, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return True


def _entry(folder: StudyFolder, run: PlannedRun, state: str, several: bool) -> dict[str, Any]:
    """The entry of a run in `study.json`."""
    names = ("name", "role", "seed", "base", "guide", "term", "context", "head")
    row: dict[str, Any] = {name: getattr(run, name) for name in names}
    row |= {"lambda": run.lambda_, "told_by": run.guide_run, "state": state}
    if run.removals:
        _, row["method"], row["share"] = run.removals[-1]
    row |= dict.fromkeys(("epoch", "validation", "epochs", "heads"))
    if state != "finished":
        return row
    row["epoch"], row["validation"] = validation(folder, run)
    row["told_by"] = folder.guide_run(run)
    if several:
        row["epochs"] = read_json(folder.path / run.name / "status.json").get("epochs")
    if several and run.base is not None:
        row["heads"] = read_metadata(folder.record(run.name, "test", DIVERGENCE)).get("heads")
    elif several:
        instances = read_instances(folder, run, "val")
        prediction = instances.columns["prediction"][instances.values["tokens"]]
        counts = np.bincount(prediction, minlength=len(instances.classes))
        row["ignorant"] = frequency_loss(counts)
    elif run.base is None:
        record = read_instances(folder, run, "test").worst_case
        if record is not None and "frontier_js" in record.columns:
            epsilons = np.array(record.metadata["frontier_epsilons"])
            tvd, js = thinned(*frontier(record.columns["frontier_js"], epsilons))
            row["frontier"] = {"tvd": tvd.tolist(), "js": js.tolist()}
    return row


def _write_rows(folder: StudyFolder, runs: Sequence[PlannedRun], kind: pa.Schema) -> None:
    """Write one row per run and test text, some runs at a time to bound memory."""
    import pandas as pd

    names = [run.name for run in runs]
    group: list[pa.Table] = []
    schema = pa.schema([pa.field("run", pa.dictionary(pa.int32(), pa.string())), *kind])
    with (
        replacing(folder.path / PARQUET) as temporary,
        open_writer(temporary, schema, compression="zstd") as writer,
    ):
        for run in runs:
            rows = read_instances(folder, run, "test").rows()
            columns = {n: list(v) if v.ndim == 2 else v for n, v in rows.items() if n in kind.names}
            frame = pd.DataFrame(dict.fromkeys(kind.names) | columns)
            frame["run"] = pd.Categorical([run.name] * len(frame), names)
            group.append(pa.Table.from_pandas(frame, schema, preserve_index=False, safe=False))
            if sum(map(len, group)) >= _GROUP or run is runs[-1]:
                writer.write_table(pa.concat_tables(group))
                group = []

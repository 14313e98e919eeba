"""What of a run folder goes to docs/results: of each record the columns that the page needs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.files import replacing, write_text
from attnlight.records.parquet import open_writer, read_table
from attnlight.report.agreement import agreement, read_scores, write_agreement
from results_page import importance, planted, predictions, serrano, studies

Columns = Sequence[str] | None  # None: all
KEYS = ("index", "position", "prediction")
TAU = (*KEYS, *(column for column, _ in importance.PAIRS.values()))
_ARMS = [name for names in importance.ARMS.values() for name in names]
_WIDER = [f"{name}{importance.WIDER}" for name in importance.SCALED]
_CLASSIFIERS = (*predictions.TEXT, *planted.NAMES, *planted.MINIMAL)
# Which columns of which test's records the page needs of which experiments; a later line wins.
_NEEDED: tuple[tuple[Iterable[str], str, Columns], ...] = (
    (_CLASSIFIERS, "predictions", None),
    (_CLASSIFIERS, "attention_permutation", None),
    ((*_ARMS, *_WIDER), "importance_correlation", TAU),
    (importance.MODELS, "importance_correlation", (*TAU, *importance.P_VALUES)),
    (importance.MODELS, "adversarial_attention", (*KEYS, *importance.JS)),
    ((*serrano.MODELS, *predictions.TAGGERS), "predictions", (*KEYS, "label")),
    (serrano.MODELS, "single_erasure", (*KEYS, *serrano.ERASURE)),
    (serrano.MODELS, "decision_flip", (*KEYS, *serrano.REMOVAL)),
)
NEEDED: dict[str, dict[str, Columns]] = {}  # columns by test, of each experiment
for _experiments, _test, _columns in _NEEDED:
    for _name in _experiments:
        NEEDED.setdefault(_name, {})[_test] = _columns
# Columns of what `attnlight predict` wrote of the planted corpora.
_PREDICTED: dict[str, Columns] = dict.fromkeys(planted.NAMES, planted.COLUMNS)
_PREDICTED |= dict.fromkeys(planted.MINIMAL, (*planted.COLUMNS, *planted.MINIMAL_COLUMNS))


def keep_all(runs: Path, records: Path) -> list[str]:
    """Replace the kept records by those of the runs below a folder.

    Args:
        runs: Folder of the experiments, `checkpoints`.
        records: docs/results.

    Returns:
        A line for each run that was left out because it is not finished.
    """
    left_out: list[str] = []
    for name, tests in NEEDED.items():
        scored = []
        for run in sorted((runs / name).glob("seed*")):
            if lacking := _lacking(run, tests):
                left_out.append(f"{run} {lacking}: not taken over.")
                continue
            keep(run, records / name / run.name)
            if name in (*_ARMS, *importance.MODELS):
                there = pq.read_schema(run / "records/test/importance_correlation.parquet").names
                scored += [run] if any(column.startswith("scores_") for column in there) else []
        if len(scored) > 1:
            # How far runs agree: the scores themselves are many times as large. Tau is kept as
            # float32, which changes no digit that is shown.
            target = records / name / importance.AGREEMENT
            write_agreement(agreement(read_scores(scored)), target)
            columns = ["index", "first", "second", *importance.WITH_ITSELF]
            table = read_table(target, columns)
            taus = dict.fromkeys(importance.WITH_ITSELF, pa.float32())
            fields = [field.with_type(taus.get(field.name, field.type)) for field in table.schema]
            _write(table.cast(pa.schema(fields)), target)
    for path in sorted(runs.glob("*/study.json")):
        keep_study(path.parent, records / studies.FOLDER / path.parent.name)
    return left_out


def _lacking(run: Path, tests: Iterable[str]) -> str:
    """What is missing in a run folder, empty where it was fitted and tested."""
    if not (run / "status.json").is_file():
        return "has no status.json"
    status = json.loads((run / "status.json").read_text(encoding="utf-8"))
    if status["state"] != "finished":
        return f"is {status['state']}"
    missing = [test for test in tests if not (run / f"records/test/{test}.parquet").is_file()]
    return f"was not tested by {', '.join(missing)}" if missing else ""


def keep(run: Path, target: Path) -> None:
    """Copy what the page needs of a run folder, `<experiment>/seed<k>`, that was fitted and tested.

    Args:
        run: The run folder.
        target: Its folder in docs/results, replaced.

    Raises:
        InputError: A file cannot be written.
    """
    shutil.rmtree(target, ignore_errors=True)
    config = (run / "fit.yaml").read_text(encoding="utf-8")
    # Where the runs lay on the machine that made them says nothing.
    config = re.sub(r"^root: .*", "root: checkpoints", config, flags=re.MULTILINE)
    write_text(target / "fit.yaml", f"# yamllint disable-file\n{config}")  # style is PyYAML's
    for source in run.glob("logs/version_*/metrics.csv"):
        copy = target / source.relative_to(run)
        copy.parent.mkdir(parents=True)
        shutil.copyfile(source, copy)
    name = run.parent.name
    places = {f"records/test/{test}.parquet": columns for test, columns in NEEDED[name].items()}
    places[serrano.WORST_CASE] = None
    places |= {"predictions.parquet": _PREDICTED[name]} if name in _PREDICTED else {}
    for place, columns in places.items():
        if (run / place).exists():
            there = pq.read_schema(run / place).names
            names = [name for name in columns or there if name in there]
            _write(read_table(run / place, names), target / place)


def keep_study(study: Path, target: Path) -> None:
    """Copy what `attnlight study` collected, from which its report is written anew.

    A tagger's sums over the tokens of a sentence are rounded to 12 significant bits, a fourth of a
    thousandth, which means over all sentences do not notice; of the conditions of a study, whose
    curves alone are shown, the columns of these are kept.

    Raises:
        InputError: A file cannot be written.
    """
    target.mkdir(parents=True, exist_ok=True)
    table = read_table(study / "study.parquet")
    text = (study / "study.json").read_text(encoding="utf-8")
    head = json.loads(text)
    if head.get("task") == "tagging":
        shown = studies.CURVES if head["options"] else table.column_names
        names = [name for name in shown if name in table.column_names]
        table = pa.table({name: _rounded(table[name].combine_chunks()) for name in names})
    _write(table, target / "study.parquet")
    write_text(target / "study.json", text)


def _rounded(values: pa.Array) -> pa.Array:
    """float32 to 12 significant bits, half to even, in lists too; another type as it is."""
    if pa.types.is_list(values.type):
        rounded = _rounded(values.values)
        return pa.ListArray.from_arrays(values.offsets, rounded, mask=values.is_null())
    if values.type != pa.float32():
        return values
    bits = np.array(values.fill_null(0), np.float32).view(np.uint32)
    bits = (bits + 0x7FF + (bits >> 12 & 1)) & 0xFFFFF000
    return pa.array(bits.view(np.float32), mask=np.array(values.is_null()))


def _write(table: pa.Table, target: Path) -> None:
    """Write a table as small as parquet can: floats byte by byte, the ascending index by its steps."""
    with replacing(target) as temporary:
        pq.write_table(table, temporary)
        schema = pq.ParquetFile(temporary).schema
        leaves = [schema.column(place) for place in range(len(schema))]
        floats = [leaf.path for leaf in leaves if leaf.physical_type == "FLOAT"]
        encoding = dict.fromkeys(floats, "BYTE_STREAM_SPLIT") | {"index": "DELTA_BINARY_PACKED"}
        with open_writer(
            temporary,
            table.schema,
            compression="zstd",
            compression_level=19,
            use_dictionary=[leaf.path for leaf in leaves if leaf.path not in encoding],
            column_encoding=encoding,
        ) as writer:
            writer.write_table(table)

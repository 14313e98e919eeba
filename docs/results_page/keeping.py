"""What of a run folder goes to docs/results: of each record the columns that the page needs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.files import replacing, write_text
from attnlight.records import record_columns
from attnlight.records.parquet import open_writer, read_table
from attnlight.report.agreement import agreement, read_scores
from results_page import importance, planted, predictions, serrano, studies

Columns = Sequence[str] | None  # None: all
KEYS = ("index", "position", "prediction")
TAU = (*KEYS, *(column for column, _ in importance.PAIRS.values()))
_ARMS = [name for names in importance.ARMS.values() for name in names]
_WIDER = [f"{name}{importance.WIDER}" for name in importance.SCALED]
_CLASSIFIERS = (*predictions.TEXT, *planted.NAMES, *planted.MINIMAL)
# Columns by test that the page needs of each experiment; a later line wins.
NEEDED: dict[str, dict[str, Columns]] = {}
for _experiments, _test, _columns in (
    (_CLASSIFIERS, "predictions", None),
    (_CLASSIFIERS, "attention_permutation", None),
    ((*_ARMS, *_WIDER), "importance_correlation", TAU),
    (importance.MODELS, "importance_correlation", (*TAU, *importance.P_VALUES)),
    (importance.MODELS, "adversarial_attention", (*KEYS, *importance.JS)),
    ((*serrano.MODELS, *predictions.TAGGERS), "predictions", (*KEYS, "label")),
    (serrano.MODELS, "single_erasure", (*KEYS, *serrano.ERASURE)),
    (serrano.MODELS, "decision_flip", (*KEYS, *serrano.REMOVAL)),
):
    for _name in _experiments:
        NEEDED.setdefault(_name, {})[_test] = _columns


def keep_all(runs: Path, records: Path) -> list[str]:
    """Replace the kept records, docs/results, by those of the runs below a folder.

    Returns:
        A line for each run that was left out because it is not finished.
    """
    left_out: list[str] = []
    for name, tests in NEEDED.items():
        scored = []
        for run in sorted((runs / name).glob("seed*")):
            path = run / "status.json"
            status = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            untested = [x for x in tests if not (run / f"records/test/{x}.parquet").is_file()]
            lacking = f"was not tested by {', '.join(untested)}" if untested else ""
            if status.get("state") != "finished":
                lacking = f"is {status['state']}" if status else "has no status.json"
            if lacking:
                left_out.append(f"{run} {lacking}: not taken over.")
                continue
            keep(run, records / name / run.name)
            if name in (*_ARMS, *importance.MODELS):
                columns = record_columns(run / "records/test/importance_correlation.parquet")
                scored += [run] if any(column.startswith("scores_") for column in columns) else []
        if len(scored) > 1:
            # How far runs agree: the scores themselves are many times as large. Tau is kept as
            # float32, which changes no digit that is shown.
            types = dict.fromkeys(importance.WITH_ITSELF, np.float32)
            taus = agreement(read_scores(scored))[["index", "first", "second", *types]]
            table = pa.Table.from_pandas(taus.astype(types), preserve_index=False)
            _write(table.replace_schema_metadata(), records / name / importance.AGREEMENT)
    for path in sorted(runs.glob("*/study.json")):
        keep_study(path.parent, records / studies.FOLDER / path.parent.name)
    return left_out


def keep(run: Path, target: Path) -> None:
    """Replace a folder by what the page needs of a run, `<experiment>/seed<k>`, that was tested."""
    shutil.rmtree(target, ignore_errors=True)
    config = (run / "fit.yaml").read_text(encoding="utf-8")
    # Where the runs lay on the machine that made them says nothing.
    config = re.sub(r"^root: .*", "root: checkpoints", config, flags=re.MULTILINE)
    write_text(target / "fit.yaml", f"# yamllint disable-file\n{config}")  # style is PyYAML's
    for source in run.glob("logs/version_*/metrics.csv"):
        write_text(target / source.relative_to(run), source.read_text(encoding="utf-8"))
    name = run.parent.name
    places = {f"records/test/{test}.parquet": columns for test, columns in NEEDED[name].items()}
    places[serrano.WORST_CASE] = None
    if name in planted.PREDICTED:
        places["predictions.parquet"] = planted.PREDICTED[name]
    for place, columns in places.items():
        if (run / place).exists():
            there = pq.read_schema(run / place).names
            names = [name for name in columns or there if name in there]
            _write(read_table(run / place, names), target / place)


def keep_study(study: Path, target: Path) -> None:
    """Copy what `attnlight study` collected, from which its report is written anew.

    A tagger's sums over the tokens of a sentence are rounded to 12 significant bits, half to even, a
    fourth of a thousandth, which means over all sentences do not notice; of the conditions of a
    study, whose curves alone are shown, the columns of these are kept.
    """
    table = read_table(study / "study.parquet")
    text = (study / "study.json").read_text(encoding="utf-8")
    head = json.loads(text)
    if head.get("task") == "tagging":
        names = studies.CURVES if head["options"] else table.column_names
        names = [name for name in names if name in table.column_names]
        table = table.select(names).replace_schema_metadata()
        for place, name in enumerate(names):
            column = table[name].combine_chunks()
            values = column.values if pa.types.is_list(column.type) else column
            if values.type == pa.float32():
                mantissa, exponent = np.frexp(np.array(values.fill_null(0)))
                rounded = np.ldexp(np.round(mantissa * 2**12), exponent - 12)
                values = pa.array(rounded, values.type, mask=np.array(values.is_null()))
                if pa.types.is_list(column.type):
                    nothing = column.is_null()
                    values = pa.ListArray.from_arrays(column.offsets, values, mask=nothing)
                table = table.set_column(place, name, values)
    _write(table, target / "study.parquet")
    write_text(target / "study.json", text)


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

"""Archives runs in docs/results: of each record the columns that the page needs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.records import record_columns
from attnlight.records.parquet import open_writer, read_table
from attnlight.report.agreement import agreement, read_scores
from attnlight.storage.files import replacing, write_text
from results_page import (
    importance,
    minilm,
    pairs,
    planted,
    predictions,
    pruthi,
    saliency,
    serrano,
    studies,
    texts,
)

Columns = Sequence[str] | None  # None: all
_RUNS = ("seed", "base-s")  # folders of runs: of an experiment, and of a study's bases
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
    ((*pairs.MODELS, *texts.MODELS), "predictions", (*KEYS, "label")),
    ((*pruthi.MODELS, *pruthi.REASONS), "predictions", (*KEYS, "label")),
    (pruthi.DECEIVED, "impermissible_mass", (*KEYS, *pruthi.COLUMNS)),
    ((*pairs.MODELS, *texts.MODELS), "importance_correlation", (*TAU, *pairs.P_VALUES)),
    ((*pairs.MODELS, *texts.MODELS), "adversarial_attention", (*KEYS, *pairs.JS.values())),
    (pairs.MODELS, "attention_permutation", (*KEYS, "median_tvd")),
    (texts.MODELS, "attention_permutation", (*KEYS, "median_tvd", "max_attention")),
    (
        pairs.BABI,
        "evidence_mass",
        (*KEYS, *pairs.EVIDENCE.values(), *pairs.SENTENCES.values(), pairs.PROVEN),
    ),
    (
        pairs.BABI,
        "decision_flip",
        (*KEYS, "removed_fraction_attention", "removed_fraction_minimal"),
    ),
    *(
        ((name,), test, (*KEYS, *columns))
        for name, tests in {
            **{name: model.tests for name, model in saliency.MODELS.items()},
            **minilm.TESTS,
        }.items()
        for test, columns in tests.items()
    ),
):
    for _name in _experiments:
        NEEDED.setdefault(_name, {})[_test] = _columns
# Studies whose bases are all that is kept, but for `minilm.STUDIES`.
STUDIED = {
    **pairs.MODELS,
    **texts.MODELS,
    **pruthi.MODELS,
    **pruthi.REASONS,
    **saliency.MODELS,
    **minilm.MODELS,
}


def archive_runs(runs: Path, records: Path) -> list[str]:
    """Replace the archived records in docs/results by those of the runs below a folder.

    Returns:
        A line for each run that was left out as unfinished.
    """
    left_out: list[str] = []
    for name, tests in NEEDED.items():
        scored = []
        folders = (path for kind in _RUNS for path in (runs / name).glob(f"{kind}*"))
        for run in sorted(folders):
            path = run / "status.json"
            status = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            untested = [x for x in tests if not (run / f"records/test/{x}.parquet").is_file()]
            lacking = f"was not tested by {', '.join(untested)}" if untested else ""
            if status.get("state") != "finished":
                lacking = f"is {status['state']}" if status else "has no status.json"
            if lacking:
                left_out.append(f"{run} {lacking}: not archived.")
                continue
            archive_run(run, records / name / run.name.replace(*_RUNS[::-1]))
            if name in (*_ARMS, *importance.MODELS):
                columns = record_columns(run / "records/test/importance_correlation.parquet")
                scored += [run] if any(column.startswith("scores_") for column in columns) else []
        if len(scored) > 1:
            # Only the agreement is archived, since the scores are many times as large.
            types = dict.fromkeys(importance.WITH_ITSELF, np.float32)
            taus = agreement(read_scores(scored))[["index", "first", "second", *types]]
            table = pa.Table.from_pandas(taus.astype(types), preserve_index=False)
            _write(rounded(table.replace_schema_metadata()), records / name / importance.AGREEMENT)
    for path in sorted(runs.glob("*/study.json")):
        if path.parent.name in NEEDED.keys() - {*minilm.STUDIES}:  # bases are archived above
            continue
        archive_study(path.parent, records / studies.FOLDER / path.parent.name)
    return left_out


def archive_run(run: Path, target: Path) -> None:
    """Replace a folder by what the page needs of a tested run, `<experiment>/seed<k>`.

    The values of a run of `STUDIED` are `rounded`, an error of 1/4000 of each text's value.
    """
    shutil.rmtree(target, ignore_errors=True)
    config = (run / "fit.yaml").read_text(encoding="utf-8")
    # The path on the machine that trained the run is irrelevant.
    config = re.sub(r"^root: .*", "root: checkpoints", config, flags=re.MULTILINE)
    write_text(target / "fit.yaml", f"# yamllint disable-file\n{config}")  # style is PyYAML's
    name = run.parent.name
    logs = "version_0" if name in saliency.MODELS else "version_*"  # the others are of `test`
    for source in run.glob(f"logs/{logs}/metrics.csv"):
        write_text(target / source.relative_to(run), source.read_text(encoding="utf-8"))
    places = {f"records/test/{test}.parquet": columns for test, columns in NEEDED[name].items()}
    places[serrano.WORST_CASE] = None
    if (run / saliency.SANITY).exists():
        places[saliency.SANITY] = (*KEYS, *saliency.sanity_columns(run / saliency.SANITY))
    if name in planted.PREDICTED:
        places["predictions.parquet"] = planted.PREDICTED[name]
    root = f"{run.parent.parent}/".encode()  # in metadata, as irrelevant as that of fit.yaml
    for place, columns in places.items():
        if (run / place).exists():
            available = pq.read_schema(run / place).names
            names = [name for name in columns or available if name in available]
            table = read_table(run / place, names)
            texts = (table.schema.metadata or {}).items()
            table = table.replace_schema_metadata(
                {key: text.replace(root, b"") for key, text in texts} or None
            )
            if name in STUDIED:
                types = (pa.float32() if pa.types.is_floating(x) else x for x in table.schema.types)
                fields = (x.with_type(t) for x, t in zip(table.schema, types, strict=True))
                table = rounded(table.cast(pa.schema(fields, table.schema.metadata)))
            _write(table, target / place)
    if name in STUDIED:
        write_text(target / "status.json", (run / "status.json").read_text(encoding="utf-8"))


def archive_study(study: Path, target: Path) -> None:
    """Copy the files of a study from which its report can be written.

    Values are `rounded`, an error of 1/4000 of each value, negligible in means over all texts. Of a
    tagger's conditions only the columns of the curves are copied.
    """
    table = read_table(study / "study.parquet")
    text = (study / "study.json").read_text(encoding="utf-8")
    head = json.loads(text)
    if head.get("task") == "tagging":
        names = studies.CURVES if head["options"] else table.column_names
        names = [name for name in names if name in table.column_names]
        table = table.select(names).replace_schema_metadata()
    _write(rounded(table), target / "study.parquet")
    write_text(target / "study.json", text)


def rounded(table: pa.Table) -> pa.Table:
    """The table with each float32, or list of them, rounded to 12 significant bits, half to even."""
    for place, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        values = column.values if pa.types.is_list(column.type) else column
        if values.type == pa.float32():
            mantissa, exponent = np.frexp(np.array(values.fill_null(0)))
            nearest = np.ldexp(np.round(mantissa * 2**12), exponent - 12)
            values = pa.array(nearest, values.type, mask=np.array(values.is_null()))
            if pa.types.is_list(column.type):
                nulls = column.is_null()
                values = pa.ListArray.from_arrays(column.offsets, values, mask=nulls)
            table = table.set_column(place, name, values)
    return table


def _write(table: pa.Table, target: Path) -> None:
    """Write a table compactly: floats as byte streams, the ascending index as differences."""
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

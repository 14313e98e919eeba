"""What of a run folder goes to docs/results: of each record the columns that the page needs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.files import replacing, write_text
from attnlight.records.parquet import read_table, write_table
from attnlight.report.agreement import agreement, read_scores, write_agreement
from results_page import (
    arms,
    chunking,
    classification,
    planted,
    posthoc,
    reliability,
    serrano,
    several_classes,
    studies,
)

Columns = Sequence[str] | None  # None: all
PREDICTED = ("index", "label", "tokens", "attention", "evidence")  # of `attnlight predict`
KEYS = ("index", "position", "prediction")
TAU = (*KEYS, *(column for column, _ in arms.PAIRS.values()))
_POSTHOC = [model.experiment for model in posthoc.MODELS]
_SERRANO = [model.experiment for model in serrano.MODELS]
_SEVERAL_CLASSES = [model.experiment for model in several_classes.MODELS]
# Which columns of which tests' records the page needs of which experiments; a later line wins.
_NEEDED: list[tuple[Iterable[str], dict[str, Columns]]] = [
    (
        (*classification.TEXT, *planted.NAMES, *planted.MINIMAL),
        {"predictions": None, "attention_permutation": None},
    ),
    ((*arms.NAMES, *arms.BASES), {"importance_correlation": TAU}),
    (
        _POSTHOC,
        {
            "importance_correlation": (*TAU, "p_attention_input_gradient", "p_attention_loo"),
            "adversarial_attention": (*KEYS, "worst_js", "worst_share", "search_js"),
        },
    ),
    (
        _SERRANO,
        {
            "predictions": (*KEYS, "label"),
            "single_erasure": (*KEYS, *serrano.ERASURE),
            "decision_flip": (*KEYS, *serrano.REMOVAL),
        },
    ),
    (chunking.NAMES, {"predictions": chunking.COLUMNS}),
]
EXPERIMENTS = tuple(dict.fromkeys(name for names, _ in _NEEDED for name in names))


def wanted(name: str) -> dict[str, Columns]:
    """The tests of an experiment that the page needs, with their columns."""
    parts = [tests for names, tests in _NEEDED if name in names]
    return {test: columns for tests in parts for test, columns in tests.items()}


def keep_all(runs: Path, records: Path) -> list[str]:
    """Replace the kept records by those of the runs below a folder.

    Args:
        runs: Folder of the experiments, `checkpoints`.
        records: docs/results.

    Returns:
        A line for each run that was left out because it is not finished.
    """
    left_out: list[str] = []
    for name in EXPERIMENTS:
        extra = planted.MINIMAL_COLUMNS if name in planted.MINIMAL else ()
        columns = () if name in _SEVERAL_CLASSES else (*PREDICTED, *extra)
        scored = []
        for run in sorted((runs / name).glob("seed*")):
            if lacking := _lacking(run, wanted(name)):
                left_out.append(f"{run} {lacking}: not taken over.")
                continue
            keep(run, records / name / run.name, wanted(name), columns)
            if name in (*arms.NAMES, *_POSTHOC):
                there = pq.read_schema(run / "records/test/importance_correlation.parquet").names
                scored += [run] if any(column.startswith("scores_") for column in there) else []
        if len(scored) > 1:
            keep_agreement(scored, records / name / reliability.FILE)
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


def keep(
    run: Path,
    target: Path,
    tests: Mapping[str, Columns],
    predicted: Sequence[str] = PREDICTED,
) -> None:
    """Copy what the page needs of a run folder that was fitted and tested.

    Args:
        run: The run folder.
        target: Its folder in docs/results, replaced.
        tests: Which of the tests' records, and their columns.
        predicted: Columns of what `attnlight predict` wrote; none: leave it out.

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
    places = {f"records/test/{test}.parquet": columns for test, columns in tests.items()}
    places[several_classes.FILE] = None
    if predicted:
        places["predictions.parquet"] = predicted
    for place, columns in places.items():
        if (run / place).exists():
            there = pq.read_schema(run / place).names
            names = [name for name in columns or there if name in there]
            _write(read_table(run / place, names), target / place)


def keep_agreement(runs: Sequence[Path], target: Path) -> None:
    """Keep how far runs of one experiment agree: `attnlight reliability RUN... --output`.

    The scores themselves are many times as large. Tau is kept as float32, which changes no digit
    that is shown.

    Raises:
        InputError: A run lacks its scores, or the runs are not of the same texts.
    """
    found = agreement(read_scores(runs))
    scratch = target.with_suffix(".scores")
    try:
        write_agreement(found, scratch)
        table = read_table(scratch)
    finally:
        scratch.unlink(missing_ok=True)
    fields = [
        field.with_type(pa.float32()) if pa.types.is_floating(field.type) else field
        for field in table.select(reliability.COLUMNS).schema
    ]
    _write(table.select(reliability.COLUMNS).cast(pa.schema(fields)), target)


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
        write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=19,
            use_dictionary=[leaf.path for leaf in leaves if leaf.path not in encoding],
            column_encoding=encoding,
        )

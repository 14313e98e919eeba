"""Archives runs: of each record the columns that the page needs, in few digits."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.records import read_metadata, record_columns
from attnlight.records.parquet import read_table
from attnlight.report.agreement import agreement, read_scores
from attnlight.storage.files import write_text
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
)

Columns = Sequence[str] | None  # None: all
_RUNS = ("seed", "base-s")  # folders of runs: of an experiment, and of a study's bases
KEYS = ("index", "position", "prediction")
TAU = (*KEYS, *(column for column, _ in importance.PAIRS.values()))
_ARMS = [name for names in importance.ARMS.values() for name in names]
_WIDER = [f"{name}{importance.WIDER}" for name in importance.SCALED]
_PAIRS = [name for name in pairs.MODELS if name not in pairs.RESIZED]  # shown with all tests
_JS = (*KEYS, *importance.JS)
_ALL_PAIRS = (*_PAIRS, *pairs.TEXT_MODELS)
_LABELS = (*KEYS, "label")
_LABELLED = (
    *(*planted.NAMES, *planted.MINIMAL, *serrano.MODELS, *predictions.TAGGERS),
    *(*pairs.MODELS, *pairs.TEXT_MODELS, *pruthi.MODELS, *pruthi.REASONS),
)
_EVIDENCE = (*KEYS, *pairs.EVIDENCE.values(), *pairs.SENTENCES.values(), pairs.PROVEN)
_SHUFFLED = (*KEYS, "max_attention", "median_tvd", "flip_rate")
_REMOVED = (*KEYS, "removed_fraction_attention", "removed_fraction_minimal")
# Columns by test that the page needs of each experiment; a later line wins.
NEEDED: dict[str, dict[str, Columns]] = {}
for _experiments, _test, _columns in (
    (predictions.TEXT, "predictions", (*_LABELS, "probabilities")),
    (_LABELLED, "predictions", _LABELS),
    ((*predictions.TEXT, *planted.NAMES), "attention_permutation", _SHUFFLED),
    ((*_ARMS, *_WIDER), "importance_correlation", TAU),
    (importance.MODELS, "importance_correlation", (*TAU, *importance.P_VALUES)),
    (importance.MODELS, "adversarial_attention", _JS),
    (serrano.MODELS, "single_erasure", (*KEYS, *serrano.ERASURE)),
    (serrano.MODELS, "decision_flip", (*KEYS, *serrano.REMOVAL)),
    (pruthi.DECEIVED, "impermissible_mass", (*KEYS, *pruthi.COLUMNS)),
    (pruthi.REASONED, "impermissible_mass", (*KEYS, "mass")),
    (_ALL_PAIRS, "importance_correlation", (*TAU, *pairs.P_VALUES)),
    (_ALL_PAIRS, "adversarial_attention", (*KEYS, *pairs.JS.values())),
    (_ALL_PAIRS, "attention_permutation", (*KEYS, "median_tvd")),
    (pairs.BABI, "evidence_mass", _EVIDENCE),
    (pairs.BABI, "decision_flip", _REMOVED),
    *(
        ((name,), test, (*KEYS, *columns))
        for name, tests in (saliency.TESTS | minilm.TESTS).items()
        for test, columns in tests.items()
    ),
):
    for _name in _experiments:
        NEEDED.setdefault(_name, {})[_test] = _columns
# Studies whose bases are all that is kept, but for `minilm.STUDIES`.
STUDIED: dict[str, object] = {
    **pairs.MODELS,
    **pairs.TEXT_MODELS,
    **pruthi.MODELS,
    **pruthi.REASONS,
    **saliency.MODELS,
    **minilm.MODELS,
}
# Records whose floats have 10 significant bits, an error of 1/2000 of each text's value: no printed
# digit changes. In all others quantiles, ties or digits do.
_COARSE = {"importance_correlation", "reliability", "impermissible_mass", "single_erasure"}
_COARSE |= {"plausibility", "state_token_agreement", "head_ablation"}
# On bAbI the taus are ranked.
_RANKED = {(name, "importance_correlation") for name in pairs.BABI}


def significant_bits(name: str, record: str) -> int:
    """Significant bits of the floats in a record of an experiment or study."""
    if record in _COARSE and (name, record) not in _RANKED:
        return 10
    return 12 if name in STUDIED or record == "study" else 24


def archive_runs(runs: Path, records: Path) -> list[str]:
    """Replace the archived folders below `records` by those of the runs below another folder.

    Returns:
        A line for each run that was left out as unfinished.
    """
    left_out: list[str] = []
    for name, tests in NEEDED.items():
        scored = []
        folders = (path for kind in _RUNS for path in (runs / name).glob(f"{kind}*"))
        for run in sorted(folders):
            if lacking := _lacking(run, tests):
                left_out.append(f"{run} {lacking}: not archived.")
                continue
            archive_run(run, records / name / run.name.replace(*_RUNS[::-1]))
            if name in (*_ARMS, *importance.MODELS):
                columns = record_columns(run / "records/test/importance_correlation.parquet")
                scored += [run] if any(column.startswith("scores_") for column in columns) else []
        if len(scored) > 1:
            # Only the agreement is archived, since the scores are many times as large.
            taus = agreement(read_scores(scored))[
                ["index", "first", "second", *importance.WITH_ITSELF]
            ]
            table = pa.Table.from_pandas(taus, preserve_index=False)
            bits = significant_bits(name, Path(importance.AGREEMENT).stem)
            _write(table.replace_schema_metadata(), records / name / importance.AGREEMENT, bits)
    for path in sorted(runs.glob("*/study.json")):
        if path.parent.name in NEEDED.keys() - {*minilm.STUDIES}:  # bases are archived above
            continue
        archive_study(path.parent, records / studies.FOLDER / path.parent.name)
    return left_out


def archive_folders(root: Path, target: Path) -> None:
    """Archive the folders of runs and studies that were unpacked below a root, maybe changed."""
    for run in sorted(path.parent for path in root.glob("*/seed*/fit.yaml")):
        archive_run(run, target / run.relative_to(root))
    for path in sorted(root.glob(f"*/{importance.AGREEMENT}")):
        bits = significant_bits(path.parent.name, path.stem)
        _write(read_table(path), target / path.relative_to(root), bits)
    for path in sorted(root.glob(f"{studies.FOLDER}/*/study.json")):
        archive_study(path.parent, target / path.parent.relative_to(root))


def _lacking(run: Path, tests: Iterable[str]) -> str:
    """What a run lacks to be archived; empty if nothing."""
    path = run / "status.json"
    status = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if status.get("state") != "finished":
        return f"is {status['state']}" if status else "has no status.json"
    untested = [x for x in tests if not (run / f"records/test/{x}.parquet").is_file()]
    return f"was not tested by {', '.join(untested)}" if untested else ""


def archive_run(run: Path, target: Path) -> None:
    """Replace a folder by what the page needs of a tested run, `<experiment>/seed<k>`."""
    shutil.rmtree(target, ignore_errors=True)
    config = (run / "fit.yaml").read_text(encoding="utf-8")
    # The path on the machine that trained the run is irrelevant.
    config = re.sub(r"^root: .*", "root: checkpoints", config, flags=re.MULTILINE)
    write_text(target / "fit.yaml", config)
    name = run.parent.name
    logs = "version_0" if name in saliency.MODELS else "version_*"  # the others are of `test`
    for source in run.glob(f"logs/{logs}/metrics.csv"):
        if logged := evaluated(source.read_text(encoding="utf-8")):
            write_text(target / source.relative_to(run), logged)
    places = {f"records/test/{test}.parquet": columns for test, columns in NEEDED[name].items()}
    places[serrano.WORST_CASE] = None
    if (run / saliency.SANITY).exists():  # what its verdicts need
        about = read_metadata(run / saliency.SANITY)
        kinds = product(("signed", "sizes"), (len(about["parts"]), "seeds"), about["methods"])
        places[saliency.SANITY] = (*KEYS, *("_".join(map(str, kind)) for kind in kinds))
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
            _write(table, target / place, significant_bits(name, Path(place).stem))
    if name in STUDIED:
        write_text(target / "status.json", (run / "status.json").read_text(encoding="utf-8"))


def evaluated(logged: str) -> str:
    """The lines and columns of metrics.csv that validation or a test has written."""
    frame = pd.read_csv(io.StringIO(logged), dtype=str, keep_default_na=False)
    frame = frame.filter(regex="^(epoch|val/|test/)")
    measured = frame.drop(columns="epoch", errors="ignore").ne("").any(axis=1)
    return str(frame[measured].to_csv(index=False)) if measured.any() else ""


def archive_study(study: Path, target: Path) -> None:
    """Copy the files of a study from which its report can be written.

    Of a tagger's conditions only the columns of the curves are copied.
    """
    table = read_table(study / "study.parquet")
    text = (study / "study.json").read_text(encoding="utf-8")
    head = json.loads(text)
    if head.get("task") == "tagging":
        names = studies.CURVES if head["options"] else table.column_names
        names = [name for name in names if name in table.column_names]
        table = table.select(names).replace_schema_metadata()
    _write(table, target / "study.parquet", significant_bits(study.name, "study"))
    write_text(target / "study.json", text)


def _write(table: pa.Table, target: Path, bits: int) -> None:
    """Write a table with each float, or list of them, of so many significant bits, half to even."""
    target.parent.mkdir(parents=True, exist_ok=True)
    columns = [rounded(column.combine_chunks(), bits) for column in table.columns]
    table = pa.table(columns, table.column_names).replace_schema_metadata(table.schema.metadata)
    pq.write_table(table, target)


def rounded(values: pa.Array, bits: int) -> pa.Array:
    """Floats, or floats in lists, rounded to so many significant bits; other values as they are."""
    kind, missing = values.type, values.is_null()
    if pa.types.is_fixed_size_list(kind):
        inner = rounded(values.values, bits)
        return pa.FixedSizeListArray.from_arrays(inner, kind.list_size, mask=missing)
    if pa.types.is_list(kind):
        inner = rounded(values.values, bits)
        return pa.ListArray.from_arrays(values.offsets, inner, mask=missing)
    if not pa.types.is_floating(kind):
        return values
    mantissa, exponent = np.frexp(np.array(values.fill_null(0), np.float32))
    nearest = np.ldexp(np.round(mantissa * 2**bits), exponent - bits)
    return pa.array(nearest, pa.float32(), mask=np.array(missing))

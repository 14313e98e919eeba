"""Archives runs: of each record the columns that the page needs, in few digits."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
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
    honest,
    importance,
    pairs,
    planted,
    read_data,
    saliency,
    serrano,
    studies,
    translation,
)
from results_page.archive import FIT, config_of
from results_page.predictions import OF_MINILM

_RUNS = ("seed", "base-s")  # folders of runs: of an experiment, and of a study's bases
_HONEST, _SYMBOLS = "honest_", "pruthi_sequences"
_SCORED = ("importance_correlation", "saliency_agreement")  # by which seeds are compared
KEYS = ("index", "position", "prediction")
# Curves of the task and those of tests that pages read. Of a test's own run also the means of the
# archived columns, which check these.
_LOGGED = re.compile(
    r"epoch|(val|test)/([^/]+|predictions/max_attention|attention_permutation/(median_tvd|flip_rate)"
    r"|importance_correlation/tau_attention_(loo|input_gradient))"
)
# Names of experiments whose runs are the bases of a study, which are all that is kept of most.
OF_STUDY = re.compile("|".join(["-", *(f"^{name}$" for name in OF_MINILM)]))
# Records whose floats have 10 significant bits, an error of at most 1/2000 of each text's value; all
# others have 12.
_COARSE = {"importance_correlation", "reliability", "impermissible_mass", "single_erasure"}
_COARSE |= {"plausibility", "state_token_agreement", "head_ablation", "alignment_error"}
_FEW = 256  # values of a column, such as shares of a length, that are not rounded


@cache
def needed(name: str) -> dict[str, list[str]]:
    """By each test that the pages read of an experiment the columns, as regular expressions."""
    return {
        test: [*KEYS, *columns.split()]
        for test, by_name in read_data("archived").items()
        for pattern, columns in by_name.items()
        if re.fullmatch(pattern, name)
    }


def significant_bits(name: str, record: str) -> int:
    """Significant bits of the floats in a record of an experiment or study."""
    ranked = name in pairs.BABI and record == "importance_correlation"
    if name.startswith(_HONEST):  # means alone are shown, of conicity over all texts
        return 7 if record == "conicity" else 9
    if name.startswith(_SYMBOLS) and record == "alignment_error":  # likewise, over all words
        return 8
    return 10 if record in _COARSE and not ranked else 12


def archive_runs(runs: Path, records: Path) -> list[str]:
    """Replace the archived folders below `records` by those of the runs below another folder.

    Returns:
        A line for each run that was left out as unfinished.
    """
    left_out: list[str] = []
    for name in sorted(path.name for path in runs.iterdir() if needed(path.name)):
        scored, test = [], _SCORED[name in honest.TESTED]
        folders = (path for kind in _RUNS for path in (runs / name).glob(f"{kind}*"))
        for run in sorted(folders):
            if lacking := _lacking(run):
                left_out.append(f"{run} {lacking}: not archived.")
                continue
            archive_run(run, records / name / run.name.replace(*_RUNS[::-1]))
            if name in {*importance.MODELS, *honest.TESTED} or name.endswith("_vectors"):
                columns = record_columns(run / f"records/test/{test}.parquet")
                scored += [run] if any(column.startswith("scores_") for column in columns) else []
        if len(scored) > 1:
            # Only the agreement is archived, since the scores are many times as large.
            taus = agreement(read_scores(scored, test))
            kept = honest.ITSELF if name in honest.TESTED else importance.WITH_ITSELF
            taus = taus[["index", "first", "second", *kept]]
            taus = taus.replace({x: dict([_RUNS[::-1]]) for x in ("first", "second")}, regex=True)
            table = pa.Table.from_pandas(taus, preserve_index=False)
            _write(table.replace_schema_metadata(), records / name / importance.AGREEMENT, name)
    for path in sorted(runs.glob("*/study.json")):
        name = path.parent.name
        if not needed(name) or name in OF_MINILM:  # of others the bases alone, above
            archive_study(path.parent, records / studies.FOLDER / name)
        elif name in {*honest.TESTED, *translation.LEARNED}:
            honest.archive_adversaries(path.parent, records / name / honest.ADVERSARIES)
    return left_out


def _lacking(run: Path) -> str:
    """What a run lacks to be archived; empty if nothing."""
    path = run / "status.json"
    status = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if status.get("state") != "finished" and config_of(run).name == FIT:
        return f"is {status['state']}" if status else "has no status.json"
    tests = needed(run.parent.name)
    untested = [x for x in tests if not (run / f"records/test/{x}.parquet").is_file()]
    return f"was not tested by {', '.join(untested)}" if untested else ""


def archive_run(run: Path, target: Path) -> None:
    """Replace a folder by what the page needs of a tested run, `<experiment>/seed<k>`."""
    shutil.rmtree(target, ignore_errors=True)
    config = (source := config_of(run)).read_text(encoding="utf-8")
    # The path on the machine that trained the run is irrelevant.
    config = re.sub(r"^root: .*", "root: checkpoints", config, flags=re.MULTILINE)
    write_text(target / source.name, config)
    name = run.parent.name
    alone = name in saliency.MODELS or name.startswith((_HONEST, "real_text-"))
    logs = "version_0" if alone else "version_*"  # the others are of `test`
    wanted = needed(name)
    columns = (f"{test}/({'|'.join(found)})" for test, found in wanted.items())
    means = re.compile(f"test/({'|'.join(columns)})")
    for source in run.glob(f"logs/{logs}/metrics.csv"):
        # The lines and columns that validation or a test has written.
        logged = pd.read_csv(source, dtype=str, keep_default_na=False)
        logged = logged[[x for x in logged if _LOGGED.fullmatch(x) or means.fullmatch(x)]]
        measured = logged.drop(columns="epoch", errors="ignore").ne("").any(axis=1)
        if measured.any():
            write_text(target / source.relative_to(run), logged[measured].to_csv(index=False))
    places = {f"records/test/{test}.parquet": found for test, found in wanted.items()}
    places[serrano.WORST_CASE] = [".*"]
    if (run / saliency.SANITY).exists():  # what its verdicts need
        parts = len(read_metadata(run / saliency.SANITY)["parts"])
        places[saliency.SANITY] = [*KEYS, f"(signed|sizes)_({parts}|seeds)_.*"]
    if name in planted.PREDICTED:
        places["predictions.parquet"] = [*planted.PREDICTED[name]]
    root = f"{run.parent.parent}/".encode()  # in metadata, as irrelevant as that of fit.yaml
    for place in (place for place in places if (run / place).exists()):
        kept = re.compile("|".join(places[place]))
        names = [x for x in pq.read_schema(run / place).names if kept.fullmatch(x)]
        table = read_table(run / place, names)
        texts = (table.schema.metadata or {}).items()
        marks = {key: text.replace(root, b"") for key, text in texts}
        # Of these studies pages read on which side of it a p-value is, and of others its size.
        level = 0.05 if name.startswith("jain_wallace_") else None
        _write(table.replace_schema_metadata(marks or None), target / place, name, level)
    if OF_STUDY.search(name):
        write_text(target / "status.json", (run / "status.json").read_text(encoding="utf-8"))


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
    _write(table, target / "study.parquet", study.name)
    write_text(target / "study.json", text)


def _write(table: pa.Table, target: Path, name: str, level: float | None = None) -> None:
    """Write a table of an experiment or study with each float, or list of them, rounded.

    With a level, p-values, in columns that begin with `p_`, are rounded as `rounded` does with it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    bits, columns = significant_bits(name, target.stem), {}
    for column, values in zip(table.column_names, table.columns, strict=True):
        of_p = level if column.startswith("p_") else None
        columns[column] = rounded(values.combine_chunks(), bits, of_p)
    pq.write_table(pa.table(columns).replace_schema_metadata(table.schema.metadata), target)


def rounded(values: pa.Array, bits: int, level: float | None = None) -> pa.Array:
    """Floats, or floats in lists, rounded to so many significant bits; other values as they are.

    At most `_FEW` different values stay as they are: each is stored once, and errors of rounding
    would not cancel in their mean.

    A null is NaN in place of a float. With a level, values up to it are 0 and others 1.
    """
    kind = values.type
    if pa.types.is_fixed_size_list(kind):
        inner = rounded(values.values, bits)
        return pa.FixedSizeListArray.from_arrays(inner, kind.list_size, mask=values.is_null())
    if pa.types.is_list(kind):
        inner = rounded(values.values, bits)
        return pa.ListArray.from_arrays(values.offsets, inner, mask=values.is_null())
    if not pa.types.is_floating(kind):
        return values
    floats = np.array(values.fill_null(np.nan), np.float32)
    if level is not None:
        floats = np.where(np.isnan(floats), np.nan, floats > np.float64(level))
    elif len(np.unique(floats)) > _FEW:
        mantissa, exponent = np.frexp(floats)
        floats = np.ldexp(np.round(mantissa * 2**bits), exponent - bits)
    return pa.array(floats, pa.float32())

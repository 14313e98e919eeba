"""`attnlight export`: explanations of a run in formats of other packages."""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.cli import export_formats as formats
from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError, did_you_mean
from attnlight.records import SCORES, TEXTS, kept_scores, read_metadata, read_rows, record_columns
from attnlight.storage.files import read_yaml, replacing, require_no_links_out
from attnlight.storage.foreign_classes import STORED, require_trusted
from attnlight.storage.model_folder import tested_config
from attnlight.storage.shipped import find_config

_MARKS = "rationale_items"  # column of the record of plausibility, the number of marked items
DESCRIPTION = """\
Write the explanations of a run from a record that has scores of items: that of the test `Texts`, or
one of `Plausibility` or `SaliencyAgreement` with keep_scores: true. The formats:

  jsonl       RUN/export/test-RECORD.jsonl: for each text its items, class,
              probabilities and the scores of all methods
  captum      RUN/export/test-METHOD.captum.jsonl: arguments of captum's
              VisualizationDataRecord; scores are divided by the text's largest
  thermostat  RUN/export/test-METHOD.parquet: the columns of Thermostat's data
              sets (Feldhus et al. 2021), with tokens in place of their ids
  eraser      RUN/export/test-METHOD.jsonl: the format of the ERASER benchmark
              (DeYoung et al. 2020), with the scores of a text's items as soft
              predictions and the highest ones as hard predictions
              (start_token inclusive, end_token exclusive)"""
EPILOG = """\
ERASER's own scripts need a score for each token of their documents: with `splitting: whitespace`
and without truncation, as in configs/data/movie_rationales.yaml, items are these tokens. Items that
are sentences are written as soft_sentence_predictions alone.

attnlight export RUN
attnlight export RUN --format eraser --ids doc_id"""


def main(argv: list[str]) -> int:
    """Write the files, and print the methods and the file, or the folder of several."""
    parser = VerbParser("export", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="checkpoints/<experiment>/<run>")
    add("--format", choices=formats.FORMATS, default="jsonl", help="the format (default: jsonl)")
    add("--record", metavar="NAME", help="record with scores (default: the first that has some)")
    add("--method", action="append", metavar="NAME", help="this method alone; may be repeated")
    what = (
        "eraser: share of the items that are hard predictions, rounded up (default: the record's "
    )
    add("--share", type=float, help=f"{what}mean share of marked items, where there are any)")
    what = (
        "eraser, jsonl: column of the corpus with the ids of documents (default: the number of the "
    )
    what += "row); where they are not unique, annotation ids have the number of the row added"
    add("--ids", metavar="COLUMN", help=what)
    folders = "folder in RUN/records (default: test); val, or test-CORPUS of another corpus"
    add("--records", metavar="FOLDER", default="test", help=folders)
    add("--data", metavar="FILE", help="corpus of --ids, if it is not the one of RUN/fit.yaml")
    options = parser.parse_args(argv)
    run, share = options.run, options.share
    if share is not None and not 0 < share <= 1:
        raise InputError(f"--share is {share:g}; it must be above 0 and at most 1.")
    if not re.fullmatch(r"(test|val)(-[^/\0]+)?", options.records):
        raise InputError(
            f"--records is {options.records!r}; expected test, val, or test-CORPUS of another corpus."
        )
    require_no_links_out(run)
    folder, form = run / "records" / options.records, options.format
    # The first record that has scores: for ERASER one with marks, else one with texts.
    first = "plausibility" if form == "eraser" else TEXTS
    paths = sorted(folder.glob("*.parquet"), key=lambda path: (path.stem != first, path.stem))
    scored = (path for path in paths if any(n.startswith(SCORES) for n in record_columns(path)))
    path = next(scored, folder / f"{TEXTS}.parquet")
    if options.record is not None:
        path = folder / f"{Path(options.record).name}.parquet"
    methods = _methods(path, form, options.method)
    ids = None
    if options.ids is not None:
        file = tested_config(run) or run / "fit.yaml"
        file = file if options.data is None else Path(find_config(options.data, "data"))
        ids = document_ids(file, options.records.partition("-")[0], options.ids)
    ending = {"captum": ".captum.jsonl", "thermostat": ".parquet"}.get(form, ".jsonl")
    files = {f"{options.records}-{name}{ending}": [name] for name in methods}
    if form == "jsonl":
        files = {f"{options.records}-{path.stem}.jsonl": methods}
    target = run / "export"
    target.mkdir(exist_ok=True)
    for file, names in files.items():
        with replacing(target / file) as temporary:
            if form == "thermostat":
                rows = formats.explained_rows(path, names)
                pq.write_table(formats.thermostat_table(rows, *names), temporary)
            else:
                records = _records(form, path, names, ids, share)
                lines = "".join(f"{json.dumps(record)}\n" for record in records)
                temporary.write_text(lines, encoding="utf-8")
    print(f"Scores of {', '.join(methods)} from {path}")
    print(target if len(files) > 1 else target / file)
    return 0


def _methods(path: Path, form: str, chosen: Sequence[str] | None) -> list[str]:
    """The methods to export from a record: the chosen ones, or all."""
    kept, columns = kept_scores(path), record_columns(path)
    texts = formats.OF_TEXTS
    needed = {"captum": texts, "thermostat": texts, "eraser": texts[:1]}.get(form, ())
    if lacking := [name for name in needed if name not in columns]:
        raise InputError(
            f"{path} has no column {lacking[0]}, which --format {form} needs: export the record of "
            "`attnlight test RUN --tests texts`."
        )
    known = list(dict.fromkeys([*["attention"] * ("attention" in columns), *kept]))
    for name in chosen or known:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"{path} has no method {name!r}{hint}; it has {', '.join(known)}.")
        if "/" in name or "\0" in name:
            raise InputError(f"{path} has a method {name!r}, which cannot be the name of a file.")
    return list(chosen or known)


def _records(
    form: str, path: Path, methods: Sequence[str], ids: NDArray[np.str_] | None, share: float | None
) -> Iterator[dict[str, Any]]:
    """The instances of a record in a format of JSON lines."""
    unique = ids is None or len(set(ids.tolist())) == len(ids)
    of_sentences = read_metadata(path).get("items") == "sentences"
    if form == "eraser" and share is None:  # the mean share, over the texts that have marked items
        scores, marked = f"{SCORES}{methods[0]}", np.zeros(0)
        if _MARKS in record_columns(path):
            rows = read_rows(path, [_MARKS, "prediction", scores], measured=True)
            marked = np.array([row[_MARKS] / max(len(row[scores]), 1) for row in rows])
        if not marked.any():
            raise InputError(f"{path} has no marked items to take the share of: give --share.")
        share = float(marked[marked > 0].mean())
    for row in formats.explained_rows(path, methods):
        index = row["index"]
        if ids is not None and index >= len(ids):
            raise InputError(f"{path} has row {index}, but the corpus of --ids {len(ids):,} rows.")
        document = str(index) if ids is None else str(ids[index])
        if form == "jsonl":
            yield {"id": document, **row}
        elif form == "captum":
            yield formats.captum_record(row, methods[0])
        elif row["position"]:
            raise InputError(
                f"{path} explains tokens; ERASER's format has one explanation for each text."
            )
        else:
            annotation = document if unique else f"{document}:{index}"
            names = document, annotation
            yield formats.eraser_record(row, methods[0], share or 1.0, of_sentences, *names)


def document_ids(file: Path, stage: str, column: str) -> NDArray[np.str_]:
    """The ids of a stage's documents, by row of its source, from a run's configuration or a corpus file."""
    from attnlight.cli.composition import TABLES
    from attnlight.data.columns import require_columns
    from attnlight.datamodules import TextDataModule
    from attnlight.storage.parsing import OneSentenceParser

    table = {"class_path": "TextDataModule", "init_args": {"path": str(file)}}
    content = table if file.is_dir() or file.suffix in TABLES else read_yaml(file)
    if STORED.fullmatch(file.name):
        require_trusted(file, content)
    reader = OneSentenceParser()
    reader.add_subclass_arguments(TextDataModule, "data")
    try:
        parsed = reader.parse_object({"data": content.get("data", content)})
    except InputError as error:
        raise InputError(f"{file} does not describe a corpus of texts to read: {error}") from error
    sources = reader.instantiate(parsed).data.sources
    split = "test" if stage == "test" else "validation"
    source = sources[split if split in sources else "train"]  # from which it was cut
    with tempfile.TemporaryDirectory() as scratch:
        rows = source.load(Path(scratch))
        require_columns(rows, source, [column], {column: "--ids"})
        return np.array([str(value) for value in rows[column]])

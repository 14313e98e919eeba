"""`attnlight export`: explanations of a run in the format of ERASER."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError, did_you_mean
from attnlight.records import KEY, SCORES, kept_scores, read_metadata, read_pieces
from attnlight.storage.files import read_yaml, replacing, require_no_links_out
from attnlight.storage.foreign_classes import STORED, require_trusted
from attnlight.storage.shipped import find_config

DESCRIPTION = """\
Write the explanations of a run as JSON lines in the format of the ERASER benchmark (DeYoung et al.
2020), one file for each attribution method: RUN/export/test-METHOD.jsonl. Each text has the scores
of its items as soft predictions, its highest ones as hard predictions (start_token inclusive,
end_token exclusive), its class and the probabilities of all classes. The input is
RUN/records/test/plausibility.parquet, written by `Plausibility` with keep_scores: true."""
EPILOG = """\
ERASER's own scripts need a score for each token of their documents: with `splitting: whitespace`
and without truncation, as in configs/data/movie_rationales.yaml, items are these tokens. Items that
are sentences are written as soft_sentence_predictions alone.

attnlight export RUN --ids doc_id"""


def main(argv: list[str]) -> int:
    """Write the files and print their paths."""
    parser = VerbParser("export", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="checkpoints/<experiment>/<run>")
    add("--method", action="append", metavar="NAME", help="this method alone; may be repeated")
    add(
        "--share",
        type=float,
        help="share of the items that are hard predictions, rounded up (default: the record's mean "
        "share of marked items, where there are any)",
    )
    add(
        "--ids",
        metavar="COLUMN",
        help="column of the corpus with the ids of documents (default: the number of the row); "
        "where they are not unique, annotation ids have the number of the row added",
    )
    records = "folder in RUN/records (default: test); val, or test-CORPUS of another corpus"
    add("--records", metavar="FOLDER", default="test", help=records)
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
    path = run / "records" / options.records / "plausibility.parquet"
    methods = kept_scores(path)
    chosen = options.method or methods
    for name in chosen:
        if name not in methods:
            hint = did_you_mean(name, methods)
            raise InputError(f"{path} has no method {name!r}{hint}; it has {', '.join(methods)}.")
        if "/" in name or "\0" in name:
            raise InputError(f"{path} has a method {name!r}, which cannot be the name of a file.")
    ids = None
    if options.ids is not None:
        file = run / "fit.yaml" if options.data is None else Path(find_config(options.data, "data"))
        ids = document_ids(file, options.records.partition("-")[0], options.ids)
    for name in chosen:
        target = run / "export" / f"{options.records}-{name}.jsonl"
        target.parent.mkdir(exist_ok=True)
        with replacing(target) as temporary, temporary.open("w", encoding="utf-8") as stream:
            lines = [json.dumps(line) for line in explanations(path, name, share, ids)]
            stream.write("".join(f"{line}\n" for line in lines))
        print(f"{target}: {len(lines):,} texts")
    return 0


def document_ids(file: Path, stage: str, column: str) -> NDArray[np.str_]:
    """The ids of a stage's documents, by row of its source, from a run's configuration or a corpus file.

    Raises:
        InputError: The file describes no corpus, or the corpus has no such column.
    """
    from attnlight.data.columns import require_columns
    from attnlight.datamodules import TextDataModule
    from attnlight.storage.parsing import OneSentenceParser

    content = read_yaml(file)
    if STORED.fullmatch(file.name):
        require_trusted(file, content)
    reader = OneSentenceParser()
    reader.add_subclass_arguments(TextDataModule, "data")
    try:
        parsed = reader.parse_object({"data": content.get("data", content)})
    except InputError as error:
        raise InputError(f"{file} does not describe a corpus of texts to read: {error}") from error
    sources = reader.instantiate(parsed).data.sources
    source = sources["test"] if stage == "test" else sources.get("validation", sources["train"])
    with tempfile.TemporaryDirectory() as scratch:
        rows = source.load(Path(scratch))
        require_columns(rows, source, [column], {column: "--ids"})
        return np.array([str(value) for value in rows[column]])


def explanations(
    path: Path, method: str, share: float | None = None, ids: NDArray[np.str_] | None = None
) -> Iterator[dict[str, Any]]:
    """The explanation of each measured text of a record by a method, as ERASER's JSON.

    Args:
        path: The record.
        method: The method.
        share: Share of the items that are hard predictions; None: the mean share of marked items.
        ids: Ids of documents, by row of the source; None: the number of the row.

    Raises:
        InputError: Rows are tokens, no share is given and nothing is marked, or the source has fewer
            rows.
    """
    metadata, scores = read_metadata(path), f"{SCORES}{method}"
    if share is None:
        shares = [
            piece["rationale_items"] / np.array([max(len(row), 1) for row in piece[scores]])
            for piece in read_pieces(path, ["rationale_items", "prediction", scores], measured=True)
        ]
        marked = np.concatenate([np.zeros(0), *shares])
        if not marked.any():
            raise InputError(f"{path} has no marked items to take the share of: give --share.")
        share = float(marked[marked > 0].mean())
    unique = ids is not None and len(set(ids.tolist())) == len(ids)
    names = metadata.get("classes") or []
    columns = [*KEY, "prediction", "probabilities", scores]
    for piece in read_pieces(path, columns, measured=True):
        for index, position, prediction, probabilities, row in zip(
            *(piece[name] for name in columns), strict=True
        ):
            if position:
                raise InputError(
                    f"{path} explains tokens; ERASER's format has one explanation for each text."
                )
            if ids is not None and index >= len(ids):
                raise InputError(
                    f"{path} has row {index}, but the corpus of --ids {len(ids):,} rows."
                )
            document = str(index) if ids is None else str(ids[index])
            classes = [*names, *map(str, range(len(names), len(probabilities)))]
            yield {
                "annotation_id": document if unique or ids is None else f"{document}:{index}",
                "rationales": [_predictions(document, row, share, metadata.get("items"))],
                "classification": classes[prediction],
                "classification_scores": dict(zip(classes, map(float, probabilities), strict=True)),
            }


def _predictions(
    document: str, scores: NDArray[np.float64], share: float, items: str | None
) -> dict[str, Any]:
    """Soft and hard predictions of one text; an item without a score counts as its least one."""
    import torch

    from attnlight.functional.ranking import ranking

    defined = scores[~np.isnan(scores)]
    soft = np.where(np.isnan(scores), defined.min(initial=0.0), scores)
    if items == "sentences":
        return {"docid": document, "soft_sentence_predictions": soft.tolist()}
    row = torch.from_numpy(soft)[None]
    order = ranking(row, torch.ones_like(row, dtype=torch.bool)).squeeze(0).numpy()
    top = np.sort(order[: max(1, int(np.ceil(share * len(soft) - 1e-9)))])
    runs = np.split(top, np.flatnonzero(np.diff(top) > 1) + 1) if len(top) else []
    return {
        "docid": document,
        "hard_rationale_predictions": [
            {"start_token": int(run[0]), "end_token": int(run[-1]) + 1} for run in runs
        ],
        "soft_rationale_predictions": soft.tolist(),
    }

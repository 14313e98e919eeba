"""Rows of a record with scores of items, in formats of other packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlight.errors import InputError
from attnlight.records import KEY, SCORES, TEXTS, read_metadata, read_pieces, record_columns

if TYPE_CHECKING:
    import pyarrow as pa

# Of the files of each format, and the columns that it needs.
ENDINGS = {
    "jsonl": ".jsonl",
    "captum": ".captum.jsonl",
    "thermostat": ".parquet",
    "eraser": ".jsonl",
}
_OF_TEXTS = ("probabilities", "label", "tokens", "items")
NEEDED: Mapping[str, Sequence[str]] = {
    "jsonl": (),
    "captum": _OF_TEXTS,
    "thermostat": _OF_TEXTS,
    "eraser": ("probabilities",),
}
MARKS = "rationale_items"  # column of the record of plausibility, the number of marked items
_OF_SOME_RECORDS = ("label", "probabilities", "attention", "tokens", "items", "text")
Row = Mapping[str, Any]


def scored_record(folder: Path, form: str) -> Path:
    """The first record of a folder that has scores: for ERASER one with marks, else one with texts."""
    first = "plausibility" if form == "eraser" else TEXTS
    paths = sorted(folder.glob("*.parquet"), key=lambda path: (path.stem != first, path.stem))
    scored = (path for path in paths if any(n.startswith(SCORES) for n in record_columns(path)))
    return next(scored, folder / f"{TEXTS}.parquet")


def explained_rows(path: Path, methods: Sequence[str]) -> Iterator[Row]:
    """The measured rows of a record, each ready for JSON.

    Args:
        path: The record.
        methods: The methods whose scores a row has.

    Yields:
        `index`, `position` (0 if the instance is the whole text), `prediction`, `scores` by method
        (None where an item has none), and of records that have them `text`, `items` (their words),
        `label` (None if unknown) and `probabilities` by class.
    """
    classes, columns = read_metadata(path).get("classes") or [], record_columns(path)
    wanted = (*_OF_SOME_RECORDS, *(f"{SCORES}{method}" for method in methods))
    names = [*KEY, "prediction", *(name for name in wanted if name in columns)]
    for piece in read_pieces(path, names, measured=True):
        for values in zip(*(piece[name] for name in names), strict=True):
            yield _row(dict(zip(names, values, strict=True)), methods, classes)


def _row(read: Mapping[str, Any], methods: Sequence[str], known: Sequence[str]) -> Row:
    """A row of a record, as of `explained_rows`; `known` are the names of the first classes."""
    label, probabilities = read.get("label"), read.get("probabilities", ())
    classes = [*known, *map(str, range(len(known), len(probabilities)))]
    row = {name: int(read[name]) for name in KEY}
    row |= {"text": read["text"]} if "text" in read else {}
    if "items" in read:
        row["items"] = [" ".join(read["tokens"][start:end]) for start, end in read["items"]]
    if "label" in read:
        labelled = label is not None and label >= 0  # False for NaN
        row["label"] = classes[int(label)] if labelled else None
    row["prediction"] = classes[read["prediction"]] if classes else str(read["prediction"])
    if "probabilities" in read:
        row["probabilities"] = dict(zip(classes, map(float, probabilities), strict=True))
    row["scores"] = {}
    for method in methods:
        scores = read.get(f"{SCORES}{method}")
        if scores is None:  # attention of a record of texts, by head
            scores = np.mean([*read["attention"]], axis=0)
        row["scores"][method] = [None if np.isnan(score) else float(score) for score in scores]
    return row


def captum_record(row: Row, method: str) -> dict[str, Any]:
    """The arguments of captum's `VisualizationDataRecord`: scores in [-1, 1], 0 where there is none."""
    scores = [score or 0.0 for score in row["scores"][method]]
    largest = max(map(abs, scores), default=0.0) or 1.0
    return {
        "word_attributions": [score / largest for score in scores],
        "pred_prob": row["probabilities"][row["prediction"]],
        "pred_class": row["prediction"],
        "true_class": row["label"],
        "attr_class": row["prediction"],
        "attr_score": sum(scores),
        "raw_input_ids": row["items"],
        "convergence_score": None,
    }


def thermostat_table(rows: Iterable[Row], method: str) -> pa.Table:
    """The columns of a data set of Thermostat, and `position`; tokens are in place of `input_ids`.

    Classes are those of the schema, as `datasets` reads it from a parquet file.
    """
    import pyarrow as pa
    from datasets import ClassLabel, Features, Sequence, Value

    rows = list(rows)
    classes = list(rows[0]["probabilities"]) if rows else []
    number: Any = Value("int32")
    of_item = {"attributions": Sequence(Value("float32")), "tokens": Sequence(Value("string"))}
    of_row = {"label": ClassLabel(names=classes), "predictions": Sequence(Value("float32"))}
    features = Features({"idx": number, "position": number, **of_item, **of_row})
    columns = {
        "idx": [row["index"] for row in rows],
        "position": [row["position"] for row in rows],
        "attributions": [row["scores"][method] for row in rows],
        "tokens": [row["items"] for row in rows],
        "label": [None if row["label"] is None else classes.index(row["label"]) for row in rows],
        "predictions": [list(row["probabilities"].values()) for row in rows],
    }
    return pa.table(columns, schema=features.arrow_schema)


def marked_share(path: Path, method: str) -> float:
    """The mean share of marked items of the texts of a record that have some.

    Raises:
        InputError: Nothing is marked.
    """
    scores, shares = f"{SCORES}{method}", [np.zeros(0)]
    if MARKS in record_columns(path):
        shares += [
            piece[MARKS] / np.array([max(len(row), 1) for row in piece[scores]])
            for piece in read_pieces(path, [MARKS, "prediction", scores], measured=True)
        ]
    marked = np.concatenate(shares)
    if not marked.any():
        raise InputError(f"{path} has no marked items to take the share of: give --share.")
    return float(marked[marked > 0].mean())


def eraser_record(
    row: Row, method: str, share: float, of_sentences: bool, document: str, annotation: str
) -> dict[str, Any]:
    """A row as ERASER's JSON; an item without a score counts as its least one.

    Args:
        row: The row.
        method: The method.
        share: Share of the items that are hard predictions.
        of_sentences: Whether items are sentences, which have soft predictions alone.
        document: Id of the document.
        annotation: Id of the row, which is unique.
    """
    import torch

    from attnlight.functional.ranking import ranking

    scores = row["scores"][method]
    least = min([0.0, *(score for score in scores if score is not None)])
    soft = [least if score is None else score for score in scores]
    rationale: dict[str, Any] = {"docid": document}
    if of_sentences:
        rationale["soft_sentence_predictions"] = soft
    else:
        values = torch.tensor([soft], dtype=torch.float64)
        order = ranking(values, torch.ones_like(values, dtype=torch.bool)).squeeze(0).numpy()
        top = np.sort(order[: max(1, int(np.ceil(share * len(soft) - 1e-9)))])
        runs = np.split(top, np.flatnonzero(np.diff(top) > 1) + 1) if len(top) else []
        rationale["hard_rationale_predictions"] = [
            {"start_token": int(run[0]), "end_token": int(run[-1]) + 1} for run in runs
        ]
        rationale["soft_rationale_predictions"] = soft
    return {
        "annotation_id": annotation,
        "rationales": [rationale],
        "classification": row["prediction"],
        "classification_scores": row["probabilities"],
    }

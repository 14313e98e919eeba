"""Attribution scores of a record in the formats of other packages."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attnlight.records import KEY, SCORES, read_metadata, read_rows, record_columns

FORMATS = ("jsonl", "captum", "thermostat", "eraser")
OF_TEXTS = ("probabilities", "label", "tokens", "items")  # columns that captum and Thermostat need
Row = dict[str, Any]


def explained_rows(path: Path, methods: Sequence[str]) -> Iterator[Row]:
    """The measured rows of a record, each ready for JSON.

    Yields:
        `index`, `position` (0 if the instance is the whole text), `prediction`, `scores` by method
        (None where an item has none), and of records that have them `text`, `items` (their words),
        `label` (None if unknown) and `probabilities` by class.
    """
    known, columns = read_metadata(path).get("classes") or [], record_columns(path)
    wanted = ("attention", "text", *OF_TEXTS, *(f"{SCORES}{method}" for method in methods))
    names = [*KEY, "prediction", *(name for name in wanted if name in columns)]
    for read in read_rows(path, names, measured=True):
        number = max(len(known), len(read.get("probabilities", ())), int(read["prediction"]) + 1)
        classes = [*known, *map(str, range(len(known), number))]
        row: Row = {name: int(read[name]) for name in KEY}
        row |= {"text": read["text"]} if "text" in read else {}
        if "items" in read:
            spans, tokens = read["items"], read["tokens"]
            row["items"] = [" ".join(tokens[start:end]) for start, end in spans]
        if "label" in read:  # None or NaN where it is unknown
            labelled = read["label"] is not None and read["label"] >= 0
            row["label"] = classes[int(read["label"])] if labelled else None
        row["prediction"] = classes[int(read["prediction"])]
        if "probabilities" in read:
            shares = map(float, read["probabilities"])
            row["probabilities"] = dict(zip(classes, shares, strict=False))
        row["scores"] = {}
        for method in methods:
            scores = read.get(f"{SCORES}{method}")
            if scores is None:  # attention of a record of texts, by head
                scores = np.mean([*read["attention"]], axis=0)
            row["scores"][method] = [None if np.isnan(x) else float(x) for x in scores]
        yield row


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
    """The columns of Thermostat, with `position`, and tokens for `input_ids`; its schema has the classes."""
    from datasets import ClassLabel, Features, Sequence, Value

    found = [
        {
            "idx": row["index"],
            "position": row["position"],
            "attributions": row["scores"][method],
            "tokens": row["items"],
            "label": None if row["label"] is None else [*row["probabilities"]].index(row["label"]),
            "predictions": [*row["probabilities"].values()],
            "classes": [*row["probabilities"]],
        }
        for row in rows
    ]
    names = found[0]["classes"] if found else []
    label, number, real = ClassLabel(names=names), Value("int32"), Value("float32")
    types = {"idx": number, "position": number, "attributions": Sequence(real)}
    types |= {"tokens": Sequence(Value("string")), "label": label, "predictions": Sequence(real)}
    return pa.Table.from_pylist(found, schema=Features(types).arrow_schema)


def eraser_record(
    row: Row, method: str, share: float, of_sentences: bool, document: str, annotation: str
) -> dict[str, Any]:
    """A row as ERASER's JSON; an item without a score counts as its least one.

    A `share` of the items are hard predictions; sentences have none. `annotation` is unique.
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

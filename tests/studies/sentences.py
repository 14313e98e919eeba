"""What a study of taggers should collect, found by loops over the records."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from seqeval.metrics.sequence_labeling import get_entities

from attnlight.records import read_record

SUMS = ("attention_js", "attention_js_mean", "attention_js_share", "attention_tau")
SUMS += ("prediction_tvd",)
KL = ("attention_kl", "attention_kl_elements")
OF_VARIANTS = (*SUMS, *KL, "nll_base", "agree", "choices", "tau_rows", "attention_js_heads")


def collected(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(folder / "study.parquet").to_pylist():
        found.setdefault(row["run"], []).append(row)
    return found


def tokens(folder: Path, base: Path | None) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    records = [read_record(folder / "predictions.parquet").columns]
    if base is not None:
        records.append(read_record(folder / "base_divergence.parquet").columns)
    labels = read_record((base or folder) / "predictions.parquet").columns["label"]
    whole = [
        {name: values[row] for columns in records for name, values in columns.items()}
        | {"label": int(labels[row])}
        for row in range(len(labels))
    ]
    for index in sorted({token["index"] for token in whole}):
        yield int(index), [token for token in whole if token["index"] == index]


def chunks(tags: list[int], classes: Sequence[str]) -> set[tuple[str, int, int]]:
    """Chunks as seqeval finds them, a token without a tag being outside."""
    return set(get_entities([classes[tag] if tag >= 0 else "O" for tag in tags]))


def loss(token: dict[str, Any], name: str) -> float:
    """Negative log-likelihood of a class, by the standard library."""
    probability = float(token["probabilities"][int(token[name])])
    return -math.log(probability) if probability else 149 * math.log(2)  # 2 ** -149, the least


def expected(
    sentence: list[dict[str, Any]], classes: Sequence[str], *, base: bool, whole: bool
) -> dict[str, Any]:
    """The row of a sentence, of a base or a variant, with chunks or without."""
    measured = [token for token in sentence if token["prediction"] >= 0]
    found: dict[str, Any] = {
        "tokens": len(measured),
        "correct": sum(token["prediction"] == token["label"] for token in measured),
        "nll_gold": sum(loss(token, "label") for token in measured),
    } | dict.fromkeys(("gold", "found", "matched"))
    if whole:
        tags = [[int(token[name]) for token in sentence] for name in ("label", "prediction")]
        gold, own = (chunks(each, classes) for each in tags)
        found |= {"gold": len(gold), "found": len(own), "matched": len(gold & own)}
    if base:
        return found | dict.fromkeys(OF_VARIANTS)
    for name in (*SUMS, *KL):
        found[name] = sum(t[name] for t in measured if not math.isnan(t[name]))
    return found | {
        "agree": sum(token["prediction"] == token["base_prediction"] for token in measured),
        "nll_base": sum(loss(token, "base_prediction") for token in measured),
        "choices": sum(not math.isnan(token["attention_js_share"]) for token in measured),
        "tau_rows": sum(not math.isnan(token["attention_tau"]) for token in measured),
        "attention_js_heads": [
            sum(token["attention_js_heads"][head] for token in measured)
            for head, _ in enumerate(sentence[0]["attention_js_heads"])
        ],
    }

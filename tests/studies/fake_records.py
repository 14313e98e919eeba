"""Records of a tagger that a random generator made up."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.report.fake import write_record

CLASSES = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
HEADS = 3
LENGTHS = (4, 1, 7, 3, 2, 5)
ANSWERS = (1,) * 9


def rows_of(target: str) -> np.ndarray:
    """Sentence and position of each row, (R, 2); sentences are numbered 0, 10, 20 and so on."""
    lengths = LENGTHS if target == "tokens" else ANSWERS
    return np.array([(10 * i, k) for i, length in enumerate(lengths) for k in range(length)])


def write_records(
    folder: Path,
    target: str,
    *,
    js: float | None,
    broken: tuple[int, ...] = (),
    heads: int = HEADS,
    **about: object,
) -> None:
    """Write a split of `<run>/records/<stage>`; `js` is None for a base, `broken` not measured."""
    rows = rows_of(target)
    shared = np.random.default_rng(zlib.crc32(folder.name.encode()))
    label, base = shared.integers(0, len(CLASSES), (2, len(rows)))
    random = np.random.default_rng(zlib.crc32(str(folder.parts[-3:]).encode()))
    scores = random.normal(size=(len(rows), len(CLASSES))) + 2 * np.eye(len(CLASSES))[label]
    probabilities = (np.exp(scores) / np.exp(scores).sum(1, keepdims=True)).astype(np.float32)
    probabilities[0] = np.eye(len(CLASSES))[(label[0] + 1) % len(CLASSES)]  # sure, and wrong
    prediction = probabilities.argmax(1) if js is not None else base
    measured = ~np.isin(rows[:, 0], broken)

    def write(name: str, columns: dict[str, Any]) -> None:
        keys = {"index": rows[:, 0], "position": rows[:, 1]}
        kept = {key: values[measured] for key, values in (keys | columns).items()}
        excluded = rows[~measured].tolist()
        write_record(folder / name, kept, excluded=excluded, classes=CLASSES, **about)

    columns = {"prediction": prediction, "probabilities": probabilities, "label": label}
    write("predictions.parquet", columns)
    if js is None:
        return
    each = js * random.uniform(0.5, 1.5, (len(rows), heads))
    alone = np.array([(rows[:, 0] == i).sum() for i in rows[:, 0]]) == 1
    alone &= target == "tokens"
    columns = {
        "prediction": prediction,
        "base_prediction": base,
        "attention_js": each.mean(1),
        "attention_js_share": np.where(alone, np.nan, random.uniform(size=len(rows))),
        "attention_tau": np.where(alone | (label == 2), np.nan, random.uniform(-1, 1, len(rows))),
        "prediction_tvd": random.uniform(size=len(rows)),
        "attention_kl": np.where(alone, np.inf, 9 * each.mean(1)),
        "attention_kl_elements": 0.3 * each.mean(1),
    }
    if heads > 1:
        columns |= {"attention_js_heads": each, "attention_js_mean": 0.9 * each.mean(1)}
        about["heads"] = list(range(heads))[::-1]
    write("base_divergence.parquet", columns)

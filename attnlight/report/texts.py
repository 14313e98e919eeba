"""Some texts of a run with their attention, from the file that `attnlight predict` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS
from attnlight.data.selection import choose
from attnlight.records import KEY, read_pieces, record_columns
from attnlight.report.tables import class_name

_TEXTS, _TOKENS, _LETTERS = 6, 400, 60  # most of a page, of a text and of a token
_COLUMNS = (*KEY, "tokens", "items", "attention", "probabilities", "label")
_OF_SOME_CORPORA = ("query", "allowed", "evidence")
_BOUNDARY = {SPECIAL_TOKENS[BOS], SPECIAL_TOKENS[EOS]}


@dataclass(frozen=True)
class Token:
    """A token of a text on the page.

    Attributes:
        word: The token, shortened if it is very long.
        share: Its attention (mean over heads; of a sentence, that of the sentence) in per cent of
            the largest in the text.
        evidence: Whether the corpus marks it as evidence.
    """

    word: str
    share: int
    evidence: bool


@dataclass(frozen=True)
class ShownText:
    """A text on the page.

    Attributes:
        name: Its dataset index and, if the instance is not the whole text, its position.
        prediction: The predicted class and its probability.
        label: The gold class; "" without one.
        query: Its query; "" without one.
        allowed: The classes that it may be answered with; empty if all.
        tokens: Its first tokens, without boundary tokens.
        hidden: Number of tokens that are left out at the end.
    """

    name: str
    prediction: str
    label: str
    query: str
    allowed: list[str]
    tokens: list[Token]
    hidden: int


def shown_texts(path: Path, classes: Sequence[str] | None) -> list[ShownText]:
    """Texts chosen by a hash of the dataset index, the first instance of each.

    Args:
        path: The `predictions.parquet` of a run.
        classes: Names of the classes; None: their numbers.

    Returns:
        At most six texts; none if there is no such file or an earlier version wrote it with other
        columns.

    Raises:
        RecordError: The file is damaged.
    """
    available = record_columns(path) if path.is_file() else {}
    if not set(_COLUMNS) <= available.keys():
        return []
    columns = [*_COLUMNS, *(name for name in _OF_SOME_CORPORA if name in available)]
    indices = [piece["index"] for piece in read_pieces(path, ["index"])]
    chosen = choose(np.unique(np.concatenate(indices)), _TEXTS, seed=0) if indices else np.empty(0)
    shown: dict[int, ShownText] = {}
    for piece in read_pieces(path, columns, texts=chosen.astype(np.int64)):
        for place, index in enumerate(piece["index"].tolist()):
            if index not in shown:
                row = {name: values[place] for name, values in piece.items()}
                shown[index] = _shown_text(row, classes)
    return list(shown.values())


def _shown_text(row: Mapping[str, Any], classes: Sequence[str] | None) -> ShownText:
    """The text of one row of the file, from its values by column."""
    weights = np.zeros(len(row["tokens"]))
    for (start, end), weight in zip(row["items"], np.mean(list(row["attention"]), 0), strict=True):
        weights[start:end] = weight
    shares = (100 * weights / max(weights.max(initial=0), np.finfo(float).tiny)).round().astype(int)
    evidence = row.get("evidence", np.zeros(len(weights))) > 0
    tokens = [
        Token(_shortened(word), share, gold)
        for word, share, gold in zip(row["tokens"], shares.tolist(), evidence.tolist(), strict=True)
        if word not in _BOUNDARY
    ]
    query = [_shortened(word) for word in row.get("query", ()) if word not in _BOUNDARY]
    likeliest = int(np.argmax(row["probabilities"]))
    allowed = row.get("allowed", ())
    restricted = 0 < len(allowed) < len(row["probabilities"])
    return ShownText(
        name=f"text {row['index']}" + (f", position {row['position']}" * bool(row["position"])),
        prediction=f"{class_name(likeliest, classes)} ({row['probabilities'][likeliest]:.2f})",
        label=class_name(int(row["label"]), classes) if row["label"] >= 0 else "",
        query=" ".join(query[:_TOKENS]) + " …" * (len(query) > _TOKENS),
        allowed=[class_name(int(number), classes) for number in allowed if restricted],
        tokens=tokens[:_TOKENS],
        hidden=max(0, len(tokens) - _TOKENS),
    )


def _shortened(word: str) -> str:
    return word if len(word) <= _LETTERS else f"{word[: _LETTERS - 1]}…"

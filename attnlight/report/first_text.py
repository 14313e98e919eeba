"""The text that a page begins with: the median case, in the colours of some scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from attnlight.data.selection import choose
from attnlight.figures.tables import class_name
from attnlight.records import KEY, SCORES, RecordFile, Source, read_record, read_rows
from attnlight.report.join_pieces import Piece, of_pieces
from attnlight.report.texts import (
    BOUNDARY,
    COLUMNS,
    LAYERS,
    TRANSLATED,
    Chosen,
    Row,
    pieces_of,
    query_label,
    shortened,
    words_before,
)

_TOKENS = 40  # so many have a place on the first screen
_TEXTS, _QUERY = 6, 400  # most texts to choose from where no test does, and words of a query
_OF_SOME_CORPORA = ("query", "text", "offsets", "answer")
# Layers that are the scores of an attribution, those with signs first; without a card the first that is
# recorded is shown.
_METHODS = {
    "input_gradient": ["input_gradient"],
    "occlusion": ["occlusion", "loo"],
    "integrated_gradients": ["integrated_gradients"],
}


@dataclass(frozen=True)
class Token:
    """A token of a text on the page, or several that are parts of one character."""

    before: str  # what stands between it and the token before
    word: str  # the token, shortened if it is very long; "" if only `before` follows the last one
    # Its score by layer (of a sentence, that of the sentence) in per cent of the largest in the
    # text, where it is not 0.
    shares: Mapping[str, int]
    values: str  # the scores in words
    # Whether it is of the part of the text that is predicted, if instances are parts.
    predicted: bool


class FirstText(NamedTuple):
    """A text with its layers."""

    row: Row  # its dataset index and its position, 0 if the instance is the whole text
    name: str  # the same in words; without the position if instances are whole texts
    prediction: str  # the predicted class
    probability: str  # that of it
    label: str  # the gold class; "" without one
    query: str  # its query, or the words of a translation so far; "" without one
    asked: str  # what stands before it
    tokens: list[Token]  # the part of it that is shown, without boundary tokens
    before: bool  # whether tokens before that part are left out
    after: int  # number of tokens after it that are left out
    layers: dict[str, str]  # layers by name
    median: bool  # whether it is a median case of a test
    framed: bool  # whether the part that is shown has tokens of the smallest flip set


def first_text(
    source: Source, classes: Sequence[str] | None, cases: Chosen | None, methods: Sequence[str]
) -> FirstText | None:
    """The first text of a page; None without such a file, or if it lacks a column of texts.

    The source is the `predictions.parquet` of a run, or a record `texts`. `cases` are texts of one
    test, of which short typical ones are preferred; None: the first rows of at most six texts,
    chosen by a hash of the dataset index. `methods` are names of attributions, the best first.
    """
    file = RecordFile.of(source)
    available = file.columns if file.path.is_file() else {}
    if not set(COLUMNS) <= available.keys():
        return None
    keys = read_record(file, KEY).columns
    if cases is not None:  # those that are preferred first
        candidates = [row for row, _ in (*cases.typical, *cases.lowest, *cases.highest)]
    else:
        found, first = np.unique(keys["index"], return_index=True)
        some = first[np.isin(found, choose(found, _TEXTS, seed=0))] if len(found) else first
        candidates = list(zip(*(keys[name][some].tolist() for name in KEY), strict=True))
    if not candidates:
        return None
    scores = (f"{SCORES}{name}" for name in LAYERS)
    columns = [*COLUMNS, *(name for name in (*_OF_SOME_CORPORA, *scores) if name in available)]
    read = read_rows(file, columns, texts=np.array([index for index, _ in candidates]))
    rows = {(int(row["index"]), int(row["position"])): row for row in read}
    pieces = {key: pieces_of(rows[key]) for key in candidates}
    short = (key for key in candidates if len(pieces[key]) <= _TOKENS + 1)
    key = next(short, candidates[0])
    of_parts = bool(keys["position"].any())
    asked = query_label(file)
    row, tokens = rows[key], _tokens(rows[key], pieces[key], of_parts and asked != TRANSLATED)
    start, stop = 0, len(tokens)
    if stop > _TOKENS + 1:  # where attention is
        weights = [token.shares.get("attention", 0) for token in tokens]
        start = int(np.convolve(weights, np.ones(_TOKENS), "valid").argmax())
        stop = start + _TOKENS
    query = [shortened(word) for word in row.get("query", ()) if word not in BOUNDARY]
    if asked == TRANSLATED:
        said = {x: (float(one["label"]), one["probabilities"]) for x, one in rows.items()}
        query = words_before(key, said, classes).split(" ")
    likeliest = int(np.argmax(row["probabilities"]))
    predicted = shortened(row.get("answer") or class_name(likeliest, classes))
    return FirstText(
        row=key,
        name=f"text {key[0]}" + f", position {key[1]}" * of_parts,
        prediction=predicted,
        probability=f"{row['probabilities'][likeliest]:.2f}",
        label=class_name(int(row["label"]), classes) if row["label"] >= 0 else "",
        query=" ".join(query[:_QUERY]) + " …" * (len(query) > _QUERY),
        asked=asked,
        tokens=tokens[start:stop],
        before=start > 0,
        after=sum(bool(token.word) for token in tokens[stop:]),
        layers=_layers({layer for token in tokens for layer in token.shares}, methods, file),
        median=cases is not None,
        framed=any("minimal" in token.shares for token in tokens[start:stop]),
    )


def _tokens(row: Mapping[str, Any], pieces: Sequence[Piece], of_parts: bool) -> list[Token]:
    """All tokens of a row of the file; `of_parts`: instances are tokens or sentences, as items are."""
    position, spans = int(row["position"]), [tuple(span) for span in row["items"]]
    span = position, position + 1
    sentences = any(end - start > 1 for start, end in spans)
    if sentences:
        span = spans[position] if position < len(spans) else (0, 0)
    part = range(*span) if of_parts else range(0)
    layers = {"attention": np.mean(list(row["attention"]), 0)}
    layers |= {name: row[SCORES + name] for name in LAYERS if SCORES + name in row}
    by_piece = {}
    for name, scores in layers.items():
        values = np.full(len(row["tokens"]), np.nan)
        for (start, end), score in zip(spans, scores, strict=True):
            values[start:end] = score
        # Of a sentence each token has the score of the whole.
        known = [None if np.isnan(value) else float(value) for value in values]
        joined = of_pieces(pieces, known, name == "minimal" or sentences)
        by_piece[name] = np.array(joined, dtype=np.float64)  # NaN where none is defined
    shares = {}
    for name, values in by_piece.items():
        largest = np.nan_to_num(np.abs(values)).max(initial=0) or 1.0
        shares[name] = (100 * np.nan_to_num(values) / largest).round().astype(int)
    tokens = []
    for place, piece in enumerate(pieces):
        said = []  # scores in words
        for name, values in by_piece.items():
            if name == "minimal":
                said += ["in the flip set"] * bool(values[place] > 0)
            elif not np.isnan(values[place]):
                said.append(f"{LAYERS[name]} {values[place]:.2g}")
        shown = {name: int(share[place]) for name, share in shares.items() if share[place]}
        words = shortened(piece.before), shortened(piece.text)
        predicted = any(token in part for token in piece.tokens)
        tokens.append(Token(*words, shown, ", ".join(said), predicted))
    return tokens


def _layers(recorded: set[str], methods: Sequence[str], file: RecordFile) -> dict[str, str]:
    """Layers that are shown and their names: attention, that of the best method, the worst case."""
    layers = {"attention": LAYERS["attention"]}
    best = (layer for name in (*methods, *_METHODS) for layer in _METHODS.get(name, ()))
    for layer in (*(layer for layer in best if layer in recorded),)[:1]:
        best_of_all = bool(methods) and layer in _METHODS.get(methods[0], ())
        layers[layer] = f"{LAYERS[layer]}{', the best other method' if best_of_all else ''}"
    if "worst_case" in recorded:
        moved = f" (within {file.metadata['epsilon']:g})" if "epsilon" in file.metadata else ""
        layers["worst_case"] = f"another attention, same prediction{moved}"
    return layers

"""The columns of pairs: queries, allowed answers and supporting sentences."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnlight.batch import UNK
from attnlight.data.columns import is_text, list_element
from attnlight.data.labels import feature_names, some
from attnlight.data.sentences import SentenceIds
from attnlight.data.sources import Dataset, Source
from attnlight.data.tokenization import encode_texts, rust_threads
from attnlight.errors import InputError, did_you_mean
from attnlight.records import list_column

EVIDENCE = "evidence"  # per-token column: 1 on the tokens of supporting sentences


def mark_evidence(rows: Dataset, source: Source, passage: str, evidence: str) -> Dataset:
    """The rows with the column `evidence`: a number for each sentence, 1 if it supports the answer.

    `passage` names the column of lists of sentences, `evidence` that of positions in them.
    """
    schema = rows.features.arrow_schema
    for column, holds, expected in (
        (passage, is_text, "lists of sentences, as evidence needs them"),
        (evidence, pyarrow.types.is_integer, "lists of positions of sentences"),
    ):
        kind = schema.field(column).type
        if not holds(list_element(kind)):
            raise InputError(f"column {column} of {source} holds {kind}; expected {expected}")
    sizes, _ = _ragged(rows, passage)
    counts, positions = _ragged(rows, evidence)
    owner = np.repeat(np.arange(len(rows)), counts)
    places = np.array([-1 if place is None else place for place in positions.to_pylist()], np.int64)
    outside = (places < 0) | (places >= sizes[owner])
    if outside.any():
        first = int(outside.argmax())
        row, place = owner[first], positions[first]
        raise InputError(
            f"row {row} of {source} has {sizes[row]} sentences; its {evidence} names sentence {place} "
            "(from 0)"
        )
    starts = np.concatenate([[0], sizes]).cumsum()
    marks = np.zeros(starts[-1], np.int8)
    marks[starts[owner] + places] = 1
    others = [name for name in rows.column_names if name != EVIDENCE]
    return rows.select_columns(others).add_column(EVIDENCE, list_column(marks, sizes))


def read_candidates(
    rows: Dataset,
    source: Source,
    column: str,
    classes: Sequence[str],
    labels: NDArray[np.int64],
    extend: bool,
) -> tuple[list[str], pyarrow.ListArray]:
    """The classes, and the numbers of those that each row may be answered with, (rows,).

    The `column` holds lists of labels or of names of classes; `labels` (rows,) are -1 for rows that
    are dropped. With `extend` candidates that are no classes yet become such, in alphabetical
    order.
    """
    kind = rows.features.arrow_schema.field(column).type
    element = list_element(kind)
    if not (is_text(element) or pyarrow.types.is_integer(element)):
        raise InputError(f"column {column} of {source} holds {kind}; expected lists of answers")
    counts, values = _ragged(rows, column)
    encoded = values.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy()
    label_names = dict(enumerate(feature_names(rows.features[str(source.label)]) or ()))
    renamed = {
        value: name
        for name, given in (source.classes or {}).items()
        for value in (given if isinstance(given, list) else [given])
    }
    names = []
    for value in encoded.dictionary.to_pylist():
        name = str(label_names.get(value, value))
        names.append(renamed.get(value, renamed.get(name, name)))
    if extend:
        classes = [*classes, *sorted(set(names) - set(classes))]
    numbers = {name: number for number, name in enumerate(classes)}
    allowed = np.array([numbers.get(name, -1) for name in names], np.int16)[codes]
    owner = np.repeat(np.arange(len(rows)), counts)
    unknown = (allowed < 0) & (labels[owner] >= 0)
    if unknown.any():
        first = int(unknown.argmax())
        name = names[codes[first]]
        raise InputError(
            f"row {owner[first]} of {source} has the candidate {name!r}, which is not among the "
            f"classes {some(classes)}{did_you_mean(name, classes)}"
        )
    listed = np.bincount(owner[allowed == labels[owner]], minlength=len(rows)) > 0
    missing = ~listed & (labels >= 0)
    if missing.any():
        row = int(missing.argmax())
        candidates = some(names[code] for code in codes[owner == row])
        raise InputError(
            f"row {row} of {source} has the {source.label} {classes[labels[row]]!r}, which is not "
            f"among its {column}: {candidates or 'there are none'}"
        )
    return list(classes), list_column(allowed, counts)


def encode_queries(
    tokenizer: Tokenizer, queries: Sequence[str], rows: Iterable[int], source: object
) -> list[list[int]]:
    """Ids of queries, which messages name by their rows in the source."""
    ids, empty = encode_texts(tokenizer, queries)
    for row, query, without in zip(rows, queries, empty.tolist(), strict=True):
        if without:
            raise InputError(
                f"row {row} of {source} has the query {query!r}, which has no token; remove the row "
                "or give it a query"
            )
    return ids


def encode_joined(
    passages: Sequence[str],
    tokenizer: Tokenizer,
    queries: Sequence[str],
    rows: Iterable[int],
    source: object,
) -> tuple[SentenceIds, list[list[int]]]:
    """Ids of passages with a query each as one text, and the `segment` of each of these.

    The tokenizer puts its special tokens between and around them. Where both are longer than it allows,
    the end of the passage is cut; a passage without a token becomes one unknown token.
    """
    length, alone = tokenizer.truncation, tokenizer.num_special_tokens_to_add(is_pair=False)
    most, rows = None, list(rows)
    if length:
        most = length["max_length"] - tokenizer.num_special_tokens_to_add(is_pair=True)
        tokenizer.enable_truncation(length["max_length"], strategy="only_first")
    counts = map(len, encode_queries(tokenizer, queries, rows, source))
    for row, count in zip(rows, counts, strict=True):
        if most is not None and count - alone >= most:
            raise InputError(
                f"row {row} of {source} has a query of {count - alone} or more tokens, which leaves none "
                f"of the {most} that the model reads to its passage: shorten it or remove the row"
            )
    with rust_threads():
        encodings = tokenizer.encode_batch(list(zip(passages, queries, strict=True)))
    empty = np.zeros(len(encodings), np.bool_)
    ids: list[list[int]] = []
    segments: list[list[int]] = []
    for number, encoding in enumerate(encodings):
        place, own = encoding.sequence_ids.index(1), list(encoding.ids)
        empty[number] = 0 not in encoding.sequence_ids[:place]
        if empty[number]:
            start = int(encoding.special_tokens_mask[0])
            own, place = [*own[:start], UNK, *own[start:]], place + 1
        ids.append(own)
        segments.append([0] * place + [1] * (len(own) - place))
    parts = [[passage] for passage in passages]
    return SentenceIds(ids, [[len(own)] for own in ids], parts, empty, {}), segments


def _ragged(rows: Dataset, column: str) -> tuple[NDArray[np.int64], pyarrow.Array]:
    """Lengths of the lists of a column, 0 for missing ones, and their concatenated values."""
    lists = rows.select_columns([column]).with_format("arrow")[:][column].combine_chunks()
    lengths = pyarrow.compute.fill_null(pyarrow.compute.list_value_length(lists), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64), lists.flatten()

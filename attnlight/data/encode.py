"""Encode the rows of a source and write them as a split of a prepared corpus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnlight.batch import BOS, MARKED, PAD, SEGMENT
from attnlight.data.bio import check_tags
from attnlight.data.dataset import EDIT_OF, TAGS, split_writer
from attnlight.data.documents import DocumentReader, Documents
from attnlight.data.features import CHARACTERS, TokenFeatures
from attnlight.data.pairs import EVIDENCE, encode_joined, encode_queries
from attnlight.data.parts import Part
from attnlight.data.sentences import SentenceIds, SentenceRules, encode_sentences
from attnlight.data.tagged import Tagged, TaggedReader
from attnlight.data.targets import IGNORED, Target
from attnlight.data.tokenization import count_cut, rust_threads, words_of_pieces
from attnlight.errors import InputError

_SENTENCES = 1000  # sentences encoded at a time


def write_split(
    folder: Path,
    part: Part[DocumentReader],
    tokenizer: Tokenizer,
    sentences: SentenceRules | None = None,
    joined: bool = False,
) -> dict[str, int]:
    """Write a split of a prepared corpus (`CorpusDataModule`) without holding it in memory.

    With rules for `sentences` the column `sentences` holds the number of ids of each, and `text` is
    a list of sentences. A passage and a query that are `joined` are one text, with the column
    `segment`.

    Returns:
        Number of documents without a token, which are stored as one unknown token (`empty`), what
        the limits on sentences cut (`SentenceIds.cut`), of pairs with evidence, the number of
        passages that were cut before the end of a supporting sentence (`evidence_cut`) and, of word
        pieces, the number of texts that were cut (`truncated`).
    """
    kinds = {name: pyarrow.list_(kind) for name, kind in part.reader.extras.items()}
    kinds |= {SEGMENT: pyarrow.list_(pyarrow.int8())}
    if sentences is not None:
        kinds["text"] = pyarrow.list_(pyarrow.string())
    ready = part.reader.source.tokens is not None and part.queries is None
    counts = Counter(empty=0)
    with split_writer(folder, kinds) as write:
        for documents in part.reader(part.rows):
            rows = documents.rows
            columns: dict[str, Any] = {"index": rows, "label": part.labels[rows]}
            if part.edit_of is not None:
                columns[EDIT_OF] = part.edit_of[rows]
            queries: list[str] = []
            if part.queries is not None:
                queries = columns["query_text"] = list(chain(*part.queries.texts(rows)))
            asked = tokenizer, queries, rows, part.reader.source
            inputs: list[Any]
            if joined:
                encoded, columns[SEGMENT] = encode_joined(documents.texts, *asked)
                inputs = list(zip(documents.texts, queries, strict=True))
            else:
                encoded = encode_sentences(tokenizer, documents.texts, sentences)
                inputs = list(chain(*encoded.texts))
                columns |= {"query": encode_queries(*asked)} if queries else {}
            counts.update(encoded.cut, empty=int(encoded.empty.sum()))
            columns["tokens"] = encoded.ids
            if sentences is not None:
                columns |= {"sentences": encoded.sizes, "text": encoded.texts}
            else:
                columns |= {"words": documents.words} if ready else {"text": documents.texts}
                lengths = map(len, encoded.ids)
                if (cut_texts := count_cut(tokenizer, inputs, lengths)) is not None:
                    counts.update(truncated=cut_texts)
            aligned, cut = _follow_tokens(documents, tokenizer, encoded, inputs)
            columns |= aligned
            if part.queries is not None and EVIDENCE in cut:
                counts.update(evidence_cut=cut[EVIDENCE])
            if part.allowed is not None:
                columns["allowed"] = part.allowed.take(pyarrow.array(rows))
            columns["length"] = [len(row) for row in columns["tokens"]]
            write(columns)
    return dict(counts)


def _follow_tokens(
    documents: Documents, tokenizer: Tokenizer, encoded: SentenceIds, inputs: Sequence[Any]
) -> tuple[dict[str, Any], Counter[str]]:
    """The per-token columns, and of each the number of documents cut before a value that is not 0.

    A token has the value of the word it begins in; boundary tokens, empty texts and the query of an
    input that is a pair have 0. Inputs are what was encoded, sentences or texts.
    """
    extras: dict[str, list[NDArray[np.float64]]] = {name: [] for name in documents.extras}
    cut = Counter(dict.fromkeys(extras, 0))
    if not extras:
        return {}, cut
    with rust_threads():
        encodings = iter(tokenizer.encode_batch(inputs))
    parts = zip(documents.words or (), encoded.texts, encoded.sizes, strict=True)
    for document, (words, texts, sizes) in enumerate(parts):
        starts = np.cumsum([0] + [len(word) + 1 for word in words])[:-1]
        place, at = 0, 0  # of the part, among the tokens and in the document
        places, origins, removed = [], [], []
        for text, kept in zip(texts, sizes, strict=True):
            at = documents.texts[document].index(text, at)
            found = []
            encoding = next(encodings)
            for piece in (encoding, *encoding.overflowing):
                offsets = np.array(piece.offsets, np.int64).reshape(-1, 2)[:, 0]
                real = np.flatnonzero([part == 0 for part in piece.sequence_ids])
                found.append((real, np.searchsorted(starts, at + offsets[real], side="right") - 1))
            (real, origin), *overflowing = found
            places.append(place + real[:kept])
            origins.append(origin[:kept])
            removed += [origin for _, origin in overflowing]
            place, at = place + kept, at + len(text)
        for name, column in documents.extras.items():
            values = np.asarray(column[document], np.float64)
            aligned = np.zeros(len(encoded.ids[document]))
            aligned[np.concatenate(places)] = values[np.concatenate(origins)]
            extras[name].append(aligned)
            cut[name] += any(values[origin].any() for origin in removed)
    return dict(extras), cut


def write_tagged(
    folder: Path,
    part: Part[TaggedReader],
    tokenizer: Tokenizer,
    features: TokenFeatures,
    numbers: Mapping[str, int],
    target: Target,
    strict: bool,
    divided: bool = False,
) -> None:
    """Write a split of sentences with a tag for each token, as `write_split` writes texts.

    Columns: `index`, `length`, `tokens`, `tags` (labels by `numbers`), the target's, the features',
    the reader's marks, and `words`, of which the tokenizer makes one token each. One that has `divided`
    them makes several, of which the first has the tag and is `marked`.
    """
    marked = [MARKED] if divided else target.columns
    kinds = {TAGS: pyarrow.list_(pyarrow.int16()), MARKED: pyarrow.list_(pyarrow.int8())}
    for name in features.rules.columns:
        packed = name.startswith(CHARACTERS)
        kinds[name] = pyarrow.list_(pyarrow.int64() if packed else pyarrow.int32())
    kinds |= dict.fromkeys(part.reader.marks, pyarrow.list_(pyarrow.float32()))
    boundary = [BOS] if target.target == "sentence" else []
    sentences = part.reader(part.rows)
    with split_writer(folder, kinds) as write:
        while chunk := list(islice(sentences, _SENTENCES)):
            rows: list[dict[str, Any]] = []
            for sentence in chunk:
                check_tags(sentence.place, sentence.tags, numbers, strict)
                ids, words, first = _ids_of_words(tokenizer, sentence, boundary, divided)
                labels = np.full(len(ids), IGNORED)
                labels[first] = target.labels(sentence.tags, numbers, sentence.row)
                row = {"index": sentence.row, "length": len(ids), "words": sentence.words}
                row |= {"tokens": ids, TAGS: labels} | dict.fromkeys(marked, labels != IGNORED)
                along = {**features.encode(sentence.words, sentence.pos), **sentence.marks}
                for name, values in along.items():
                    row[name] = np.where(words < 0, PAD, np.asarray(values)[words])
                rows.append(row)
            write({name: [row[name] for row in rows] for name in rows[0]})


def _ids_of_words(
    tokenizer: Tokenizer, sentence: Tagged, boundary: list[int], divided: bool
) -> tuple[list[int], NDArray[np.int64], NDArray[np.int64]]:
    """Ids of a sentence, the word of each, -1 of special ones, and the places that may have labels."""
    text = " ".join(sentence.words)
    if divided:
        starts = np.cumsum([0, *(len(word) + 1 for word in sentence.words)])[:-1]
        try:
            return words_of_pieces(tokenizer, text, starts.tolist())
        except InputError as error:
            raise InputError(f"{sentence.place}: {error}") from error
    ids = [*boundary, *tokenizer.encode(text).ids]
    places = np.arange(len(ids))
    if len(ids) - len(boundary) != len(sentence.words):
        raise InputError(
            f"{sentence.place} has {len(sentence.words)} words, but {len(ids) - len(boundary)} ids."
        )
    return ids, places - len(boundary), places

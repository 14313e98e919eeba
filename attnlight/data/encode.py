"""From the rows of a source to a split of a prepared corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.data.dataset import save_split
from attnlight.data.documents import DocumentReader, Documents
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import encode_texts, rust_threads

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def write_split(
    folder: Path,
    reader: DocumentReader,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    tokenizer: Tokenizer,
    sentences: SentenceRules | None = None,
) -> dict[str, int]:
    """Write a split of a prepared corpus (`CorpusDataModule`) without holding it in memory.

    Args:
        folder: Folder to write; `<folder>.arrow` is used on the way.
        reader: Reads the source.
        rows: Rows of the source to write, ascending.
        labels: Class of each row of the source.
        tokenizer: Tokenizer of the corpus.
        sentences: How texts become sentences, where they do: `sentences` then holds the ids of
            each, and `text` is a list of them.

    Returns:
        Documents that had no token and are kept as one unknown token (`empty`), and what limits of
        sentences cut (`SentenceIds.cut`).
    """
    import pyarrow

    strings, numbers = pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.int32())
    kinds = {"index": pyarrow.int64(), "label": pyarrow.int64(), "length": pyarrow.int32()}
    kinds |= {"tokens": numbers}
    kinds |= {name: pyarrow.list_(kind) for name, kind in reader.extras.items()}
    if sentences is not None:
        kinds |= {"sentences": numbers, "text": strings}
    else:
        ready = reader.source.tokens is not None
        kinds |= {"words": strings} if ready else {"text": pyarrow.string()}
    counts = Counter(empty=0)
    columns = _columns(reader(rows), labels, tokenizer, sentences, counts)
    save_split(folder, pyarrow.schema(kinds), columns)
    return dict(counts)


def _columns(
    chunks: Iterable[Documents],
    labels: NDArray[np.int64],
    tokenizer: Tokenizer,
    sentences: SentenceRules | None,
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    """The columns of a split, in chunks; `counts` grows by what is counted on the way."""
    for documents in chunks:
        columns: dict[str, Any] = {"index": documents.rows, "label": labels[documents.rows]}
        if sentences is not None:
            found = encode_sentences(tokenizer, documents.texts, sentences)
            columns |= {"tokens": found.ids, "sentences": found.sizes, "text": found.texts}
            counts.update(found.cut, empty=int(found.empty.sum()))
        else:
            ids, empty = encode_texts(tokenizer, documents.texts)
            ready = documents.words is not None
            source = {"words": documents.words} if ready else {"text": documents.texts}
            columns |= {"tokens": ids} | source | _follow_tokens(documents, tokenizer, ids)
            counts.update(empty=int(empty.sum()))
        yield columns | {"length": [len(row) for row in columns["tokens"]]}


def _follow_tokens(
    documents: Documents, tokenizer: Tokenizer, ids: list[list[int]]
) -> dict[str, Any]:
    """Each token's value is that of the word it begins in; 0 for boundaries and empty texts."""
    extras: dict[str, list[NDArray[np.float64]]] = {name: [] for name in documents.extras}
    if not extras:
        return {}
    with rust_threads():
        encodings = tokenizer.encode_batch(documents.texts)
    for document, words in enumerate(documents.words or ()):
        encoding = encodings[document]
        starts = np.cumsum([0] + [len(word) + 1 for word in words])[:-1]
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 0]
        real = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
        origin = np.searchsorted(starts, offsets[real], side="right") - 1
        for name, values in documents.extras.items():
            aligned = np.zeros(len(ids[document]))
            aligned[real] = np.asarray(values[document], np.float64)[origin]
            extras[name].append(aligned)
    return dict(extras)

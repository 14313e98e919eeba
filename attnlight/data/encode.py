"""From the rows of a source to a split of a prepared corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.data.documents import DocumentReader, Documents
from attnlight.data.sources import silent
from attnlight.data.tokenization import encode_texts, rust_threads

if TYPE_CHECKING:
    import pyarrow
    from tokenizers import Tokenizer


def write_split(
    folder: Path,
    reader: DocumentReader,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    tokenizer: Tokenizer,
) -> int:
    """Write a split of a prepared corpus (`CorpusDataModule`) without holding it in memory.

    Args:
        folder: Folder to write; `<folder>.arrow` is used on the way.
        reader: Reads the source.
        rows: Rows of the source to write, ascending.
        labels: Class of each row of the source.
        tokenizer: Tokenizer of the corpus.

    Returns:
        How many documents had no token and are kept as one unknown token.
    """
    import datasets
    import pyarrow

    stream, empty = folder.with_suffix(".arrow"), 0
    schema = _schema(reader)
    with pyarrow.ipc.new_stream(str(stream), schema) as writer:
        for documents in reader(rows):
            ids, without = encode_texts(tokenizer, documents.texts)
            columns = _columns(documents, labels, ids)
            if documents.extras:
                columns |= _follow_tokens(documents, tokenizer, ids)
            writer.write_table(pyarrow.table(columns, schema=schema))
            empty += int(without.sum())
    with silent():
        datasets.Dataset.from_file(str(stream)).save_to_disk(str(folder))
    stream.unlink()
    return empty


def _schema(reader: DocumentReader) -> pyarrow.Schema:
    import pyarrow

    display = {"text": pyarrow.string()}
    if reader.source.tokens is not None:
        display = {"words": pyarrow.list_(pyarrow.string())}
    numbers = {"index": pyarrow.int64(), "label": pyarrow.int64(), "length": pyarrow.int32()}
    lists = {"tokens": pyarrow.list_(pyarrow.int32())}
    extras = {name: pyarrow.list_(kind) for name, kind in reader.extras.items()}
    return pyarrow.schema(numbers | lists | extras | display)


def _columns(
    documents: Documents, labels: NDArray[np.int64], ids: list[list[int]]
) -> dict[str, Any]:
    return {
        "index": documents.rows,
        "label": labels[documents.rows],
        "length": [len(row) for row in ids],
        "tokens": ids,
    } | ({"text": documents.texts} if documents.words is None else {"words": documents.words})


def _follow_tokens(
    documents: Documents, tokenizer: Tokenizer, ids: list[list[int]]
) -> dict[str, Any]:
    """Each token's value is that of the word it begins in; 0 for boundaries and empty texts."""
    extras: dict[str, list[NDArray[np.float64]]] = {name: [] for name in documents.extras}
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

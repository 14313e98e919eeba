from typing import Any

import datasets
import numpy as np
import pytest

from attnlight.data import columns, documents
from attnlight.data.documents import DocumentReader
from attnlight.data.sources import Source
from attnlight.errors import InputError


def reader(source: Source, extras: tuple[str, ...] = (), **columns: list[Any]) -> DocumentReader:
    return DocumentReader(datasets.Dataset.from_dict(columns), source, extras)


def read(reader: DocumentReader, rows: list[int]) -> list[documents.Documents]:
    return list(reader(np.array(rows, np.int64)))


def test_rows_are_read_in_chunks_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "READ_ROWS", 7)
    monkeypatch.setattr(documents, "ENCODE_CHARACTERS", 20)
    texts = ["t" * (number % 30) + str(number) for number in range(100)]
    rows = [row for row in range(100) if row % 3 and not 28 <= row < 42]
    found = read(reader(Source(text="text"), text=texts), rows)
    assert np.concatenate([part.rows for part in found]).tolist() == rows
    assert [text for part in found for text in part.texts] == [texts[row] for row in rows]
    for part in found:
        assert len(part.texts) == 1 or sum(map(len, part.texts)) <= 20 + max(map(len, part.texts))


@pytest.mark.parametrize("chosen", [[], [0], [2, 3], [1, 7, 8], [9], list(range(10))])
def test_only_chunks_with_chosen_rows_are_read(
    monkeypatch: pytest.MonkeyPatch, chosen: list[int]
) -> None:
    monkeypatch.setattr("attnlight.data.columns.READ_ROWS", 3)
    rows = datasets.Dataset.from_dict({"text": list("abcdefghij")})
    parts = list(DocumentReader(rows, Source(text="text"))(np.array(chosen, np.int64)))
    assert [row for part in parts for row in part.rows.tolist()] == chosen
    assert [text for part in parts for text in part.texts] == ["abcdefghij"[row] for row in chosen]
    assert len(parts) == len({row // 3 for row in chosen})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source(path="a/b", split="s", text="nope"), "split s of a/b has no column 'nope'; it has"),
        (Source(path="a/b", text="number"), "column number of .* holds int64; expected text"),
        (Source(path="a/b", tokens="text"), "column text of .* expected a list of strings"),
        (Source(path="a/b", tokens="numbers"), "column numbers of .* expected a list of strings"),
    ],
)
def test_wrong_columns_are_refused(source: Source, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reader(source, text=["a"], number=[1], numbers=[[1]])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([[1, 0], [1, 0]], r"row 1 of .* has 1 tokens; marks must have a number for each"),
        ([[1, 0], None], "row 1 of"),
        ([[1, None], [1]], "row 0 of"),
        ([[1, 300], [1]], "column marks of .* cannot be stored as int8"),
        (["1", "0"], "expected a list of numbers"),
        ([["1", "0"], ["1"]], "expected a list of numbers"),
    ],
)
def test_extras_that_do_not_fit_their_tokens_are_refused(extra: list[Any], message: str) -> None:
    source = Source(path="a/b", tokens="words")
    with pytest.raises(InputError, match=message):
        read(reader(source, ("marks",), words=[["a", "b"], ["c"]], marks=extra), [0, 1])

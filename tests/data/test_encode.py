from pathlib import Path
from typing import Any

import datasets
import numpy as np

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import TokenDataset
from attnlight.data.documents import DocumentReader
from attnlight.data.encode import write_split
from attnlight.data.parts import Part
from attnlight.data.sources import Source
from attnlight.data.tokenization import TextRules, make_tokenizer

TEXTS = ["Good film", "", "bad <br />film 2", "!!!", "film"]


def write(
    folder: Path,
    rules: TextRules,
    source: Source,
    extras: tuple[str, ...] = (),
    **columns: list[Any],
) -> tuple[TokenDataset, datasets.Dataset, int]:
    reader = DocumentReader(datasets.Dataset.from_dict(columns), source, extras)
    labels = np.arange(len(reader.rows)) % 2
    tokenizer = make_tokenizer(rules, ["film", "good", "qqq"])
    kept = np.arange(len(reader.rows))[1:] if len(reader.rows) > 1 else np.arange(1)
    part = Part("train", kept, reader=reader, labels=labels)
    counts = write_split(folder / "train", part, tokenizer)
    assert list(counts) == ["empty"]
    rows = datasets.load_from_disk(str(folder / "train"))
    return TokenDataset(folder / "train"), rows, counts["empty"]


def test_columns_of_a_split(tmp_path: Path) -> None:
    rules = TextRules(splitting="words", digits="qqq", markup=True)
    dataset, rows, empty = write(tmp_path, rules, Source(text="text"), text=TEXTS)
    assert [p.name for p in tmp_path.iterdir()] == ["train"]
    assert rows["text"][:] == TEXTS[1:]
    assert rows["tokens"][:] == [
        [BOS, UNK, EOS],
        [BOS, UNK, 4, 6, EOS],
        [BOS, UNK, EOS],
        [BOS, 4, EOS],
    ]
    assert empty == 2
    assert dataset.index.tolist() == [1, 2, 3, 4]
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [1, 0, 1, 0]
    assert dataset.lengths.tolist() == [3, 5, 3, 3]
    types = {name: str(rows.features.arrow_schema.field(name).type) for name in rows.column_names}
    assert types == {
        "index": "int64",
        "label": "int64",
        "length": "int32",
        "tokens": "list<item: int32>",
        "text": "string",
    }


def test_extras_follow_splitting_dropping_and_cutting(tmp_path: Path) -> None:
    words = [["skipped"], ["It's", "a", "-", "Good", "film"], ["!"], ["film", "2x4", "--", "good"]]
    marks = [[9], [1, 2, 3, 4, 5], [7], [1, 0, 5, 6]]
    share = [[0.0], [0.1, 0.2, 0.3, 0.4, 0.5], [0.7], [0.1, 0.2, 0.3, 0.4]]
    rules = TextRules(splitting="words", digits="qqq", truncate=4)
    source = Source(tokens="words")
    dataset, rows, _ = write(
        tmp_path, rules, source, ("marks", "share"), words=words, marks=marks, share=share
    )
    assert rows["words"][:] == words[1:]
    assert rows["tokens"][:] == [
        [BOS, UNK, UNK, UNK, 5, EOS],  # it s a good, cut before film
        [BOS, UNK, EOS],
        [BOS, 4, 6, 5, EOS],
    ]
    assert rows["marks"][:] == [[0, 1, 1, 2, 4, 0], [0, 0, 0], [0, 1, 0, 6, 0]]
    expected = [[0, 0.1, 0.1, 0.2, 0.4, 0], [0, 0, 0], [0, 0.1, 0.2, 0.4, 0]]
    for found, wanted in zip(rows["share"][:], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    batch = dataset[[0, 2]]
    assert batch.extras["marks"].tolist() == [[0, 1, 1, 2, 4, 0], [0, 1, 0, 6, 0, 0]]
    assert str(rows.features.arrow_schema.field("marks").type) == "list<item: int8>"

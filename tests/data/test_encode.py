"""Per-token columns in a split on disk."""

from pathlib import Path

import datasets
import numpy as np

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import TokenDataset
from attnlight.data.documents import DocumentReader
from attnlight.data.encode import write_split
from attnlight.data.parts import Part
from attnlight.data.sources import Source
from attnlight.data.tokenization import TextRules, make_tokenizer


def test_extras_follow_splitting_dropping_and_cutting(tmp_path: Path) -> None:
    words = [["skipped"], ["It's", "a", "-", "Good", "film"], ["!"], ["film", "2x4", "--", "good"]]
    marks = [[9], [1, 2, 3, 4, 5], [7], [1, 0, 5, 6]]
    share = [[0.0], [0.1, 0.2, 0.3, 0.4, 0.5], [0.7], [0.1, 0.2, 0.3, 0.4]]
    columns = datasets.Dataset.from_dict({"words": words, "marks": marks, "share": share})
    reader = DocumentReader(columns, Source(tokens="words"), ("marks", "share"))
    part = Part("train", np.arange(1, 4), reader=reader, labels=np.arange(4) % 2)
    rules = TextRules(splitting="words", digits="qqq", truncate=4)
    tokenizer = make_tokenizer(rules, ["film", "good", "qqq"])
    assert write_split(tmp_path / "train", part, tokenizer) == {"empty": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["train"]
    rows = datasets.load_from_disk(str(tmp_path / "train"))
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
    batch = TokenDataset(tmp_path / "train")[[0, 2]]
    assert batch.extras["marks"].tolist() == [[0, 1, 1, 2, 4, 0], [0, 1, 0, 6, 0, 0]]
    types = {name: str(rows.features.arrow_schema.field(name).type) for name in rows.column_names}
    lists = {"tokens": "int32", "marks": "int8", "share": "float", "words": "string"}
    assert types == {"index": "int64", "label": "int64", "length": "int32"} | {
        name: f"list<item: {kind}>" for name, kind in lists.items()
    }

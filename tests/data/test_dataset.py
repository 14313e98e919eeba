"""Splits on disk: what is written, and batches of texts, sentences and pairs against columns."""

import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import TokenDataset
from attnlight.data.documents import DocumentReader
from attnlight.data.encode import write_split
from attnlight.data.parts import Part
from attnlight.data.sources import Source
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.errors import InputError

ROWS = 257
Columns = dict[str, list[Any]]
KINDS = {"index": "int64", "label": "int64", "length": "int32"}
LISTS = {"tokens": "int32", "evidence": "int8", "score": "float32", "sentences": "int32"}
LISTS |= {"query": "int32", "allowed": "int16"}


def random_columns(kind: str, seed: int = 0) -> Columns:
    """Texts; with sentences of at most 4 ids; or with queries and allowed classes."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, ROWS).tolist()
    columns: Columns = {
        "index": (np.arange(ROWS) * 3 + 1).tolist(),
        "label": rng.integers(0, 3, ROWS).tolist(),
        "length": lengths,
        "tokens": [rng.integers(1, 500, n).tolist() for n in lengths],
        "evidence": [rng.integers(-1, 2, n).tolist() for n in lengths],
        "score": [rng.standard_normal(n).astype(np.float32).tolist() for n in lengths],
    }
    if kind == "nested":
        columns["sentences"] = [[4] * (n // 4) + [n % 4] * (n % 4 > 0) for n in lengths]
    if kind == "pairs":
        columns["query"] = [rng.integers(1, 500, n).tolist() for n in rng.integers(1, 9, ROWS)]
        columns["allowed"] = [[x, *rng.integers(0, 3, x).tolist()] for x in columns["label"]]
    return columns


def write(folder: Path, columns: Columns, **options: int) -> None:
    features = {name: datasets.Value(kind) for name, kind in KINDS.items() if name in columns}
    lists = {name: datasets.Value(kind) for name, kind in LISTS.items() if name in columns}
    features |= {name: datasets.List(value) for name, value in lists.items()}
    rows = datasets.Dataset.from_dict(columns, datasets.Features(features))
    rows.save_to_disk(str(folder), **options)


@pytest.fixture(params=["flat", "nested", "pairs"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TokenDataset, Columns]:
    columns = random_columns(request.param)
    write(tmp_path / "train", columns, num_shards=3)
    (tmp_path / "corpus.json").write_text('{"classes": ["a", "b", "c", "d"]}')
    (tmp_path / "tokenizer.json").write_text("{}")
    return TokenDataset(tmp_path / "train", nested=request.param == "nested"), columns


Stored = tuple[TokenDataset, Columns]


def parts(columns: Columns, name: str, row: int) -> list[list[Any]]:
    """A column of a text, by sentences where it has them."""
    stops = np.cumsum(columns["sentences"][row])[:-1] if "sentences" in columns else []
    return [part.tolist() for part in np.split(np.array(columns[name][row]), stops)]


def test_columns_are_compact_arrays(stored: Stored) -> None:
    dataset, columns = stored
    assert len(dataset) == ROWS
    assert dataset.extras == ["evidence", "score"]
    assert dataset.labels is not None
    assert [a.dtype for a in (dataset.index, dataset.labels)] == [np.int64, np.int64]
    assert dataset.lengths.dtype == dataset.shapes.dtype == np.int32
    for name, values in (("index", dataset.index), ("length", dataset.lengths)):
        assert values.tolist() == columns[name]
    assert dataset.labels.tolist() == columns["label"]
    shapes = columns["length"]
    if "sentences" in columns:
        shapes = [[len(sizes), max(sizes)] for sizes in columns["sentences"]]
        assert TokenDataset(dataset.folder).shapes.tolist() == columns["length"]
    if "query" in columns:
        shapes = [[n, len(query)] for n, query in zip(shapes, columns["query"], strict=True)]
    assert dataset.shapes.tolist() == shapes


@pytest.mark.parametrize("size", [1, 2, 32, ROWS])
def test_a_batch_contains_the_requested_rows(stored: Stored, size: int) -> None:
    dataset, columns = stored
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000  # no rows
    positions = np.random.default_rng(size).permutation(ROWS)[:size].tolist()
    batch: Any = pickle.loads(pickled)[positions]
    assert batch.index.tolist() == [columns["index"][p] for p in positions]
    assert batch.labels.tolist() == [columns["label"][p] for p in positions]
    nested, dimensions = "sentences" in columns, batch.tokens.ndim
    assert dimensions == 2 + nested
    sizes = [list(map(len, parts(columns, "tokens", p))) for p in positions]
    most = (max(map(len, sizes)),) if nested else ()
    assert batch.tokens.shape == batch.mask.shape == (size, *most, max(map(max, sizes)))
    for name, values in ({"tokens": batch.tokens} | batch.extras).items():
        for row, position in enumerate(positions):
            found, mask = values[row], batch.mask[row]
            pairs = zip(found, mask, strict=True) if nested else [(found, mask)]
            lists = [v[m].tolist() for v, m in pairs if m.any()]
            assert lists == parts(columns, name, position)
            assert mask.sum(-1)[mask.any(-1)].flatten().tolist() == sizes[row]
            assert not found[~mask].any()
    types = [values.dtype for values in (batch.tokens, *batch.extras.values())]
    assert types == [torch.int64, torch.int8, torch.float32]
    for row, position in enumerate(positions if "query" in columns else ()):
        ids, allowed = columns["query"][position], columns["allowed"][position]
        assert batch.query[row].tolist() == ids + [0] * (batch.query.shape[1] - len(ids))
        assert batch.query_mask[row].tolist() == [n < len(ids) for n in range(batch.query.shape[1])]
        assert batch.allowed_classes[row].tolist() == [n in allowed for n in range(4)]


def test_a_negative_position_repeats_a_row_without_its_index(stored: Stored) -> None:
    dataset, columns = stored
    batch = dataset[[4, -1 - 4, -1]]  # -1 - p repeats row p to fill a rank's batches
    assert batch.index.tolist() == [columns["index"][4], -1, -1]
    assert torch.equal(batch.tokens[0], batch.tokens[1])
    # `Trainer(overfit_batches=...)` replaces the sampler by one that yields single positions.
    assert torch.equal(dataset[7].tokens, dataset[[7]].tokens)


def test_labels_may_be_absent_and_sentences_may_not(tmp_path: Path) -> None:
    columns = random_columns("flat")
    del columns["label"]
    write(tmp_path / "test", columns)
    dataset = TokenDataset(tmp_path / "test")
    assert dataset.labels is None
    assert dataset[[0, 1]].labels is None
    with pytest.raises(InputError, match="was prepared without sentences"):
        TokenDataset(tmp_path / "test", nested=True)


def test_counts_of_tokens_over_all_shards(tmp_path: Path) -> None:
    """Also where the largest token differs from shard to shard."""
    columns = random_columns("flat")
    columns["tokens"][0][0] = 550
    write(tmp_path / "train", columns, num_shards=3)
    (tmp_path / "corpus.json").write_text('{"classes": ["a", "b", "c"]}')
    flat = [token for tokens in columns["tokens"] for token in tokens]
    counts = TokenDataset(tmp_path / "train").token_counts(600)
    assert counts.tolist() == [flat.count(token) for token in range(600)]


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

import pickle
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.dataset import TokenDataset
from attnlight.errors import InputError

ROWS = 257
WORDS = ["a", "good", "film", "plot"]


def write(
    folder: Path, columns: dict[str, list], features: datasets.Features, **options: int
) -> None:
    datasets.Dataset.from_dict(columns, features).save_to_disk(str(folder), **options)


def random_columns(seed: int = 0) -> tuple[dict[str, list], datasets.Features]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, ROWS).tolist()
    columns = {
        "index": (np.arange(ROWS) * 3 + 1).tolist(),
        "label": rng.integers(0, 3, ROWS).tolist(),
        "length": lengths,
        "tokens": [rng.integers(1, 500, n).tolist() for n in lengths],
        "evidence": [rng.integers(-1, 2, n).tolist() for n in lengths],
        "score": [rng.standard_normal(n).astype(np.float32).tolist() for n in lengths],
    }
    lists = {"tokens": "int32", "evidence": "int8", "score": "float32"}
    numbers = {"index": "int64", "label": "int64", "length": "int32"}
    features = {name: datasets.Value(kind) for name, kind in numbers.items()}
    features |= {name: datasets.List(datasets.Value(kind)) for name, kind in lists.items()}
    return columns, datasets.Features(features)


@pytest.fixture(params=[1, 3], ids=["one file", "three files"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TokenDataset, dict[str, list]]:
    columns, features = random_columns()
    write(tmp_path / "train", columns, features, num_shards=request.param)
    return TokenDataset(tmp_path / "train"), columns


Stored = tuple[TokenDataset, dict[str, list]]


def test_columns_are_compact_arrays(stored: Stored) -> None:
    dataset, columns = stored
    assert len(dataset) == ROWS
    assert dataset.extras == ["evidence", "score"]
    assert dataset.labels is not None
    assert (dataset.index.dtype, dataset.lengths.dtype) == (np.int64, np.int32)
    assert dataset.labels.dtype == np.int64
    assert dataset.index.tolist() == columns["index"]
    assert dataset.lengths.tolist() == columns["length"]
    assert dataset.labels.tolist() == columns["label"]


@pytest.mark.parametrize("size", [1, 2, 32, ROWS])
def test_a_batch_contains_the_requested_rows(stored: Stored, size: int) -> None:
    dataset, columns = stored
    positions = np.random.default_rng(size).permutation(ROWS)[:size].tolist()
    batch = dataset[positions]
    assert batch.index.tolist() == [columns["index"][p] for p in positions]
    assert batch.labels is not None
    assert batch.labels.tolist() == [columns["label"][p] for p in positions]
    for row, position in enumerate(positions):
        n = columns["length"][position]
        assert batch.mask[row].tolist() == [t < n for t in range(batch.mask.shape[1])]
        assert batch.tokens[row, :n].tolist() == columns["tokens"][position]
        for name in ("evidence", "score"):
            assert batch.extras[name][row, :n].tolist() == columns[name][position]
            assert not batch.extras[name][row, n:].any()
    assert batch.tokens.shape[1] == max(columns["length"][p] for p in positions)
    assert batch.tokens.dtype == torch.int64
    assert batch.extras["evidence"].dtype == torch.int8
    assert batch.extras["score"].dtype == torch.float32


def test_a_negative_position_repeats_a_row_without_its_index(stored: Stored) -> None:
    dataset, columns = stored
    batch = dataset[[4, -1 - 4, -1]]  # -1 - p repeats row p to fill a rank's batches
    assert batch.index.tolist() == [columns["index"][4], -1, -1]
    assert torch.equal(batch.tokens[0], batch.tokens[1])
    assert batch.tokens[2, : columns["length"][0]].tolist() == columns["tokens"][0]


def test_one_position_is_a_batch_of_one(stored: Stored) -> None:
    # `Trainer(overfit_batches=...)` replaces the sampler by one that yields single positions.
    dataset, columns = stored
    assert dataset[7].tokens.tolist() == [columns["tokens"][7]]


def test_batches_are_writable_copies(stored: Stored) -> None:
    dataset, columns = stored
    batch = dataset[[0, 1]]
    batch.apply(lambda tensor: tensor.zero_())
    assert dataset[[0]].tokens.tolist() == [columns["tokens"][0]]
    assert dataset[[0]].index.tolist() == [columns["index"][0]]


def test_a_pickled_dataset_contains_no_rows(stored: Stored) -> None:
    dataset, columns = stored
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    assert pickle.loads(pickled)[[3]].tokens.tolist() == [columns["tokens"][3]]


def test_labels_may_be_absent(tmp_path: Path) -> None:
    columns, features = random_columns()
    del columns["label"], features["label"]
    write(tmp_path / "test", columns, features)
    dataset = TokenDataset(tmp_path / "test")
    assert dataset.labels is None
    assert dataset[[0, 1]].labels is None


def write_tokenizer(folder: Path, boundaries: bool = True) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate([*SPECIAL_TOKENS, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if boundaries:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("source", ["text", "words", None])
def test_words_are_those_of_the_source_if_it_is_stored(tmp_path: Path, source: str | None) -> None:
    texts = ["A  Good FILM indeed", ""]
    columns: dict[str, list] = {
        "index": [0, 1],
        "length": [6, 3],
        "tokens": [[2, 4, 5, 6, 1, 3], [2, 1, 3]],
    }
    if source is not None:
        columns[source] = texts if source == "text" else [text.split() for text in texts]
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "test"))
    write_tokenizer(tmp_path)
    dataset = TokenDataset(tmp_path / "test")
    expected = ["A", "Good", "FILM", "indeed"] if source else ["a", "good", "film", "[UNK]"]
    assert dataset.words(0) == ["[BOS]", *expected, "[EOS]"]
    assert dataset.words(1) == ["[BOS]", "[UNK]", "[EOS]"]


def with_sentences(columns: dict[str, list], features: datasets.Features) -> datasets.Features:
    """Divide each text into sentences of at most 4 ids; return the features with their column."""
    columns["sentences"] = [[4] * (n // 4) + [n % 4] * (n % 4 > 0) for n in columns["length"]]
    return datasets.Features(features | {"sentences": datasets.List(datasets.Value("int32"))})


@pytest.fixture(params=[1, 3], ids=["one file", "three files"])
def nested_stored(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[TokenDataset, dict[str, list]]:
    columns, features = random_columns()
    features = with_sentences(columns, features)
    write(tmp_path / "train", columns, features, num_shards=request.param)
    return TokenDataset(tmp_path / "train", nested=True), columns


@pytest.mark.parametrize("size", [1, 2, 32, ROWS])
def test_a_nested_batch_keeps_sentences_apart(nested_stored: Stored, size: int) -> None:
    dataset, columns = nested_stored
    assert dataset.extras == ["evidence", "score"]
    positions = np.random.default_rng(size).permutation(ROWS)[:size].tolist()
    batch = dataset[positions]
    sizes = [columns["sentences"][p] for p in positions]
    shape = (size, max(map(len, sizes)), max(map(max, sizes)))
    assert batch.tokens.shape == batch.mask.shape == shape
    assert batch.labels is not None
    assert batch.labels.tolist() == [columns["label"][p] for p in positions]
    columns_of = {"evidence": batch.extras["evidence"], "score": batch.extras["score"]}
    for row, position in enumerate(positions):
        start = 0
        for k in range(shape[1]):
            n = sizes[row][k] if k < len(sizes[row]) else 0
            assert batch.mask[row, k].tolist() == [t < n for t in range(shape[2])]
            for name, values in ({"tokens": batch.tokens} | columns_of).items():
                expected = columns[name][position][start : start + n]
                assert values[row, k, :n].tolist() == expected
                assert not values[row, k, n:].any()
            start += n
        assert start == columns["length"][position]


def test_sentences_may_be_read_as_one_text(nested_stored: Stored) -> None:
    nested, columns = nested_stored
    flat = TokenDataset(nested.folder)
    assert flat.extras == nested.extras
    batch = flat[[3, 5]]
    assert batch.tokens[0][batch.mask[0]].tolist() == columns["tokens"][3]
    assert batch.extras["score"].shape == batch.tokens.shape == (2, max(flat.lengths[[3, 5]]))
    assert flat.shapes is flat.lengths


def test_shapes_are_the_number_of_sentences_and_the_longest(nested_stored: Stored) -> None:
    dataset, columns = nested_stored
    expected = [[len(sizes), max(sizes)] for sizes in columns["sentences"]]
    assert dataset.shapes.tolist() == expected
    assert dataset.shapes.dtype == np.int32


def test_a_pickled_nested_dataset_stays_nested(nested_stored: Stored) -> None:
    dataset, _ = nested_stored
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    restored = pickle.loads(pickled)
    assert torch.equal(restored[[3, -1 - 8]].tokens, dataset[[3, -1 - 8]].tokens)
    assert restored[[-1 - 8]].index.tolist() == [-1]


def test_spawned_workers_load_the_same_batches(tmp_path: Path) -> None:
    columns, features = random_columns()
    write(tmp_path / "train", columns, with_sentences(columns, features))
    dataset = TokenDataset(tmp_path / "train", nested=True)
    batches = [[0, 5], [9, -1 - 9]]
    loader = DataLoader(
        dataset, sampler=batches, batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )  # type: ignore[arg-type]
    for batch, positions in zip(loader, batches, strict=True):
        assert torch.equal(batch.tokens, dataset[positions].tokens)
        assert torch.equal(batch.mask, dataset[positions].mask)


def test_a_corpus_without_sentences_cannot_be_nested(tmp_path: Path) -> None:
    columns, features = random_columns()
    write(tmp_path / "train", columns, features)
    with pytest.raises(InputError, match="train was prepared without sentences"):
        TokenDataset(tmp_path / "train", nested=True)


@pytest.mark.parametrize("nested", [False, True])
def test_words_of_sentences_are_those_of_the_source(tmp_path: Path, nested: bool) -> None:
    columns: dict[str, list] = {
        "index": [0, 1],
        "length": [5, 1],
        # The second sentence was truncated to two tokens.
        "tokens": [[4, 5, 6, 5, 1], [1]],
        "sentences": [[3, 2], [1]],
        "text": [["A  Good FILM ", "good Indeed FILM"], [" "]],
    }
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "test"))
    write_tokenizer(tmp_path, boundaries=False)
    dataset = TokenDataset(tmp_path / "test", nested)
    assert dataset.words(0) == ["A", "Good", "FILM", "good", "Indeed"]
    assert dataset.words(1) == ["[UNK]"]

import numpy as np
import pytest
import torch

from attnlight.data.collate import collate, pad_ragged


def ragged(seed: int = 0) -> tuple[list[list[int]], list[list[float]]]:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(1, 99, n).tolist() for n in (3, 1, 7, 4)]
    return tokens, [rng.standard_normal(len(row)).astype(np.float32).tolist() for row in tokens]


def padded(rows: list[list[int]] | list[list[float]]) -> list[list[float]]:
    longest = max(len(row) for row in rows)
    return [list(row) + [0] * (longest - len(row)) for row in rows]


def test_collate_pads_every_column_to_the_longest_text() -> None:
    tokens, scores = ragged()
    batch = collate(
        index=np.array([5, 0, 9, 2]),
        lengths=np.array([len(row) for row in tokens], np.int32),
        tokens=np.concatenate(tokens).astype(np.int32),
        labels=np.array([1, 0, 1, 1]),
        extras={"score": np.concatenate(scores).astype(np.float32)},
    )
    assert batch.index.tolist() == [5, 0, 9, 2]
    assert batch.tokens.tolist() == padded(tokens)
    assert batch.mask.tolist() == [[t < len(row) for t in range(7)] for row in tokens]
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 0, 1, 1]
    assert batch.extras["score"].tolist() == padded(scores)
    assert (batch.tokens.dtype, batch.mask.dtype) == (torch.int64, torch.bool)
    assert (batch.labels.dtype, batch.extras["score"].dtype) == (torch.int64, torch.float32)


def test_collate_without_labels_and_extras() -> None:
    batch = collate(np.array([0]), np.array([2]), np.array([7, 8]))
    assert batch.labels is None
    assert batch.extras == {}


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32])
def test_padding_keeps_the_type(dtype: type[np.generic]) -> None:
    flat = np.arange(1, 7).astype(dtype)
    rows = pad_ragged(flat, np.array([1, 2, 3]))
    assert rows.numpy().dtype == dtype
    assert rows.tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 6]]

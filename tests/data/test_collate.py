import numpy as np
import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.data.collate import collate, collate_ids


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


Document = list[list[int]]


def documents(seed: int, texts: int = 6) -> list[Document]:
    """Texts of 1 to 4 sentences of 1 to 5 ids."""
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(1, 99, rng.integers(1, 6)).tolist() for _ in range(rng.integers(1, 5))]
        for _ in range(texts)
    ]


def joined(text: Document) -> list[int]:
    return [token for sentence in text for token in sentence]


def nested(texts: list[Document], index: list[int] | None = None) -> TextBatch:
    """The batch of texts whose extra is each token's id, negated."""
    most = max(map(len, texts))
    sizes = [[len(s) for s in text] + [0] * (most - len(text)) for text in texts]
    flat = np.concatenate([joined(text) for text in texts]).astype(np.int32)
    return collate(
        np.array(index or range(len(texts))),
        np.array(sizes, np.int32),
        flat,
        extras={"minus": (-flat).astype(np.int8)},
    )


@pytest.mark.parametrize("seed", range(5))
def test_nested_texts_are_padded_as_a_loop_pads_them(seed: int) -> None:
    texts = documents(seed)
    batch = nested(texts)
    most = max(len(text) for text in texts)
    longest = max(len(sentence) for text in texts for sentence in text)
    assert batch.tokens.shape == batch.mask.shape == (6, most, longest)
    assert (batch.tokens.dtype, batch.mask.dtype) == (torch.int64, torch.bool)
    assert batch.extras["minus"].dtype == torch.int8
    for b, text in enumerate(texts):
        for s in range(most):
            for n in range(longest):
                real = s < len(text) and n < len(text[s])
                assert batch.mask[b, s, n] == real
                assert batch.tokens[b, s, n] == (text[s][n] if real else 0)
                assert batch.extras["minus"][b, s, n] == (-text[s][n] if real else 0)


def test_texts_of_no_corpus() -> None:
    texts = documents(1)
    flat = [joined(text) for text in texts]
    apart = collate_ids(flat, [[len(sentence) for sentence in text] for text in texts])
    assert torch.equal(apart.tokens, nested(texts).tokens)
    assert torch.equal(apart.mask, nested(texts).mask)
    together = collate_ids(flat)
    assert together.tokens.tolist() == padded(flat)
    assert together.index.tolist() == list(range(6))
    assert together.labels is None
    assert len(collate_ids([])) == 0

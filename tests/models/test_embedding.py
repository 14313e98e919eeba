from functools import partial
from typing import Any

import pytest
import torch

from attnlight.models import Embedding, WordVectors
from attnlight.models.embedding import CharacterCNN

VECTORS = WordVectors(
    torch.tensor([[1.0, 1.0], [0.0, 0.0], [2.0, 3.0], [0.0, 0.0]]),
    torch.tensor([True, False, True, False]),
)


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_random_start(scale: float) -> None:
    torch.manual_seed(0)
    weight = Embedding(5000, 20, scale).weight
    assert (weight[0] == 0).all()
    assert weight[1:].std().item() == pytest.approx(scale, rel=0.02)
    assert weight[1:].mean().item() == pytest.approx(0, abs=0.02 * scale)


@pytest.mark.parametrize("unknown", ["random", "zero"])
def test_found_words_start_from_their_vectors(unknown: Any) -> None:
    embedding = Embedding(4, 2)
    start = embedding.weight.detach().clone()
    embedding.start_from(VECTORS, unknown=unknown)
    assert embedding.weight[2].tolist() == [2, 3]
    others = start[1::2] if unknown == "random" else torch.zeros(2, 2)
    assert torch.equal(embedding.weight[1::2], others)
    assert embedding.weight[0].tolist() == [0, 0]
    assert embedding.weight.requires_grad


def test_gradients_by_row_are_the_dense_ones() -> None:
    """Also where they add up, over lookups of a batch and over batches; padding stays zero."""
    torch.manual_seed(0)
    dense, by_row = Embedding(50, 3), Embedding(50, 3)
    by_row.load_state_dict(dense.state_dict())
    by_row.sparse = True
    adam = partial(torch.optim.Adam, lr=0.1, weight_decay=1e-5, fused=True)
    optimizers = [adam(embedding.parameters()) for embedding in (dense, by_row)]
    for _ in range(4):
        tokens = torch.randint(0, 50, (3, 5, 7))
        tokens[:, 0, 3:] = 0
        scale = torch.randn(3, 5, 7, 3)
        for embedding, optimizer in zip((dense, by_row), optimizers, strict=True):
            optimizer.zero_grad()
            for batch in ([0, 1], [2]):
                sum((embedding(tokens[n]) * scale[n]).sum() for n in batch).backward()
            embedding.densify_gradient()
            optimizer.step()
        assert not by_row.weight.grad.is_sparse
        torch.testing.assert_close(by_row.weight.grad, dense.weight.grad)
    torch.testing.assert_close(by_row.weight, dense.weight)
    assert (dense.weight[0] == 0).all()


def test_characters_by_a_naive_loop() -> None:
    torch.manual_seed(0)
    layer = CharacterCNN(256, 4, scale=1.0)
    words = [[5, 9, 2], [7] * 11, [3], [8] * 7 + [254], [255] * 8]
    packed = torch.zeros(1, len(words), 2, dtype=torch.long)
    for place, word in enumerate(words):
        for start in range(0, len(word), 8):
            number = sum(letter << (8 * n) for n, letter in enumerate(word[start : start + 8]))
            # As 64 bits with a sign hold it: a number below zero if its highest byte is large.
            packed[0, place, start // 8] = number - 2**64 * (number >= 2**63)
    found = layer(packed)[0]
    for place, word in enumerate(words):
        rows = [torch.zeros(4), *layer.embedding.weight[word], torch.zeros(4)]
        each = [
            sum(layer.convolution.weight[:, :, k] @ rows[n + k] for k in range(3))
            + layer.convolution.bias
            for n in range(len(word))
        ]
        torch.testing.assert_close(found[place], torch.stack(each).amax(0))

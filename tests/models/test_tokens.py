"""Vectors of tokens."""

import torch

from attnlight.models.embedding import CharacterCNN


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

"""Vectors of tokens."""

import torch

from attnlight.models.tokens import CharacterCNN


def test_characters_by_a_naive_loop() -> None:
    torch.manual_seed(0)
    layer = CharacterCNN(30, 4, scale=1.0)
    words = [[5, 9, 2], [7] * 11, [3]]
    packed = torch.zeros(1, 3, 2, dtype=torch.long)
    for place, word in enumerate(words):
        for number, letter in enumerate(word):
            packed[0, place, number // 8] += letter << (8 * (number % 8))
    found = layer(packed)[0]
    for place, word in enumerate(words):
        rows = [torch.zeros(4), *layer.embedding.weight[word], torch.zeros(4)]
        each = [
            sum(layer.convolution.weight[:, :, k] @ rows[n + k] for k in range(3))
            + layer.convolution.bias
            for n in range(len(word))
        ]
        torch.testing.assert_close(found[place], torch.stack(each).amax(0))


def test_the_highest_byte_is_a_character_too() -> None:
    """As 64 bits with a sign hold it, a number below zero."""
    torch.manual_seed(0)
    layer = CharacterCNN(256, 2, scale=1.0)
    words = torch.tensor([(letter << 56) - 2**64 for letter in (254, 255)])
    found = layer(words.view(1, 2, 1))[0]
    middle = layer.convolution.weight[:, :, 1]
    for place, letter in enumerate((254, 255)):
        expected = middle @ layer.embedding.weight[letter] + layer.convolution.bias
        torch.testing.assert_close(found[place], expected)

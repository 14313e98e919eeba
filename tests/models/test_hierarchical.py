import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from attnlight.batch import BOS, EOS, UNK, TextBatch
from attnlight.errors import InputError
from attnlight.models import ATTENTIONS, ENCODERS, HierarchicalClassifier
from tests.models.oracles import (
    VOCABULARY,
    Array,
    attended,
    class_logits,
    encoded,
    far_from_start,
    parameters,
    part,
    words_of,
)
from tests.models.test_classifier import close

COMBINATIONS = [
    *itertools.product(ENCODERS, ["additive"]),
    *itertools.product(["bigru"], [name for name in ATTENTIONS if name != "additive"]),
]
Text = Sequence[Sequence[int]]


def collate(texts: Sequence[Text], sentences: int = 0, words: int = 0) -> TextBatch:
    """A batch with so many more sentences and words of padding than it needs."""
    shape = (
        len(texts),
        max(map(len, texts)) + sentences,
        max(len(sentence) for text in texts for sentence in text) + words,
    )
    tokens = torch.zeros(shape, dtype=torch.long)
    for b, text in enumerate(texts):
        for s, sentence in enumerate(text):
            tokens[b, s, : len(sentence)] = torch.tensor(sentence)
    return TextBatch(index=torch.arange(len(texts)) + 100, tokens=tokens, mask=tokens != 0)


def corpus() -> list[list[list[int]]]:
    """Texts of 1 to 6 sentences of 1 to 30 words, between boundary tokens."""
    random = torch.Generator().manual_seed(0)
    sizes = [1, 2, 6, *torch.randint(1, 6, (6,), generator=random).tolist()]
    words = [torch.randint(1, 12, (size,), generator=random).tolist() for size in sizes]
    words[0], words[2][3] = [1], 30
    texts = [
        [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n in lengths]
        for lengths in words
    ]
    texts[1][0] = [UNK, UNK]
    return [[[BOS, *sentence, EOS] for sentence in text] for text in texts]


def model(
    encoder: str = "bigru",
    attention: str = "additive",
    classes: int = 3,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> HierarchicalClassifier:
    sizes = {"encoder": encoder, "attention": attention, "embedding_scale": 1.0}
    parts = ("word_attention", "sentence_attention")
    return far_from_start(HierarchicalClassifier, classes, dtype, parts, **sizes | options)


def naive(
    made: HierarchicalClassifier, text: Text, encoder: str
) -> tuple[Array, Array, list[Array]]:
    """Logits, sentence weights and word weights of one text, sentence by sentence, unpadded."""
    values = parameters(made)
    vectors, words = [], []
    for sentence in map(list, text):
        embeddings = values["embedding.weight"][sentence]
        states = encoded(encoder, part(values, "word_encoder"), embeddings)
        vector, weights = attended(made.word_attention, states, words_of(sentence))
        vectors.append(vector)
        words.append(weights)
    states = encoded(encoder, part(values, "sentence_encoder"), np.stack(vectors))
    context, weights = attended(made.sentence_attention, states, list(range(len(text))))
    logits = class_logits(values["decoder.weight"] @ context + values["decoder.bias"])
    return logits, weights, words


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
@torch.no_grad()
def test_equals_a_naive_loop_over_texts_and_sentences(
    encoder: str, attention: str, classes: int
) -> None:
    made, texts = model(encoder, attention, classes), corpus()
    output = made(collate(texts))
    assert output.logits.shape == (len(texts), classes)
    for row, text in enumerate(texts):
        logits, *shares = naive(made, text, encoder)
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(output.weights[row, 0, : len(text)], shares[0], atol=1e-10)
        for s, expected in enumerate(shares[1]):
            found = output.layers[0][row, s, : len(expected)]
            np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_sentences_with_nothing_to_attend_to_are_passed_over(encoder: str) -> None:
    made, text = model(encoder), corpus()[2]
    plain = made(collate([text]))
    holes = [[BOS, EOS], text[0], [], text[1], [BOS, EOS], *text[2:], []]
    output = made(collate([holes]))
    places = [n for n, sentence in enumerate(holes) if len(sentence) > 2]
    assert output.mask[0].nonzero()[:, 0].tolist() == places
    close(output.logits, plain.logits, torch.float64, logits=True)
    close(output.weights[..., places], plain.weights, torch.float64)
    close(output.item_logits[:, :, places], plain.item_logits, torch.float64, logits=True)
    assert (output.layers[0][~output.mask] == 0).all()
    vectors, counted, *_ = made._items(collate([holes]))
    assert counted.sum() == len(places)
    assert (vectors[~counted] == 0).all()


def test_a_batch_without_sentences_is_refused() -> None:
    tokens = torch.ones(2, 5, dtype=torch.long)
    flat = TextBatch(index=torch.arange(2), tokens=tokens, mask=tokens != 0)
    with pytest.raises(InputError, match="set `sentences: true` in `data`"):
        model()(flat)

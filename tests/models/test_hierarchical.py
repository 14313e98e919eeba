import itertools
from collections.abc import Sequence

import pytest
import torch

from attnlight.batch import BOS, EOS, UNK, TextBatch
from attnlight.models import ATTENTIONS, ENCODERS, HierarchicalClassifier
from tests.models.oracles import VOCABULARY, close, far_from_start

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


def corpus(longest: int = 30) -> list[list[list[int]]]:
    """Texts of 1 to 6 sentences of 1 to `longest` words, between boundary tokens."""
    random = torch.Generator().manual_seed(0)
    sizes = [1, 2, 6, *torch.randint(1, 6, (6,), generator=random).tolist()]
    words = [torch.randint(1, 12, (size,), generator=random).tolist() for size in sizes]
    words[0], words[2][3] = [1], longest
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


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_sentences_with_nothing_to_attend_to_are_passed_over(encoder: str) -> None:
    made, text = model(encoder), corpus()[2]
    plain = made(collate([text]))
    holes = [[BOS, EOS], text[0], [], text[1], [BOS, EOS], *text[2:], []]
    output = made(collate([holes]))
    places = [n for n, sentence in enumerate(holes) if len(sentence) > 2]
    assert output.mask[0].nonzero()[:, 0].tolist() == places
    close(output.logits, plain.logits, logits=True)
    close(output.weights[..., places], plain.weights)
    close(output.item_logits[:, :, places], plain.item_logits, logits=True)
    assert (output.layers[0][~output.mask] == 0).all()
    vectors, counted, *_ = made._items(collate([holes]))
    assert counted.sum() == len(places)
    assert (vectors[~counted] == 0).all()

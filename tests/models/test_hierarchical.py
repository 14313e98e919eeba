import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, UNK, TextBatch
from attnlight.errors import InputError
from attnlight.models import ATTENTIONS, ENCODERS, HierarchicalClassifier
from tests.models.test_classifier import close

VOCABULARY = 60
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
    """A model far from its start, where attention is peaked and logits are large."""
    torch.manual_seed(1)
    made = HierarchicalClassifier(
        VOCABULARY,
        classes,
        encoder=encoder,
        attention=attention,
        embedding_size=12,
        hidden_size=16,
        embedding_scale=1.0,
        **options,
    )
    with torch.no_grad():
        made.decoder.weight.mul_(8)
        for part in (made.word_attention, made.sentence_attention):
            for parameter in part.parameters():
                parameter.mul_(2)
    return made.to(dtype).eval()


def attended(attention: nn.Module, states: Tensor, items: list[int]) -> tuple[Tensor, Tensor]:
    """Mean state and weights of items, a state and a number at a time."""
    parameters = dict(attention.named_parameters())
    scores = []
    for n in items:
        match type(attention).__name__:
            case "AdditiveAttention":
                hidden = parameters["key.weight"] @ states[n] + parameters["key.bias"]
                scores.append((parameters["value.weight"] @ hidden.tanh())[0])
            case "DotAttention":
                scores.append((parameters["key.weight"] @ states[n])[0])
            case "ScaledDotAttention":
                scores.append((parameters["key.weight"] @ states[n])[0] / states.shape[1] ** 0.5)
            case _:
                scores.append(torch.zeros((), dtype=torch.float64))
    exponents = torch.stack(scores).exp()
    weights = torch.zeros(len(states), dtype=torch.float64)
    weights[items] = exponents / exponents.sum()
    mean = torch.zeros(states.shape[1], dtype=torch.float64)
    for n in items:
        mean = mean + weights[n] * states[n]
    return mean, weights


def naive(made: HierarchicalClassifier, text: Text) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Logits, sentence weights and word weights of one text, sentence by sentence, unpadded."""
    vectors, words = [], []
    for sentence in text:
        embeddings = made.embedding.weight[torch.tensor(sentence)]
        every = torch.ones(1, len(sentence), dtype=torch.bool)
        states = made.word_encoder(embeddings[None], every)[0]
        items = [n for n, token in enumerate(sentence) if token not in (BOS, EOS)]
        vector, weights = attended(made.word_attention, states, items)
        vectors.append(vector)
        words.append(weights)
    every = torch.ones(1, len(text), dtype=torch.bool)
    states = made.sentence_encoder(torch.stack(vectors)[None], every)[0]
    context, weights = attended(made.sentence_attention, states, list(range(len(text))))
    logits = made.decoder.weight @ context + made.decoder.bias
    return torch.cat([torch.zeros(1), logits]) if len(logits) == 1 else logits, weights, words


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
        logits, weights, words = naive(made, text)
        close(output.logits[row], logits, torch.float64, logits=True)
        close(output.weights[row, 0, : len(text)], weights, torch.float64)
        for s, expected in enumerate(words):
            close(output.layers[0][row, s, : len(expected)], expected, torch.float64)


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


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_text_without_items_has_the_logits_of_an_empty_context(encoder: str) -> None:
    made = model(encoder)
    for texts in ([[[BOS, EOS], [BOS, EOS]]], [[[]], [[]]]):
        beside = made(collate([*texts, corpus()[2]]))
        for output in (made(collate(texts, words=1)), beside):
            assert (output.weights[0] == 0).all()
            assert torch.equal(output.logits[0], output.bias)
            assert output.item_logits.isfinite().all()
        made.zero_grad()
        beside.logits.square().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in made.parameters())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_gradients_do_not_depend_on_padding(encoder: str) -> None:
    made, found = model(encoder), []
    for sentences, words in ((0, 0), (3, 5)):
        made.zero_grad()
        made(collate(corpus(), sentences, words)).logits.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in made.parameters()])
    for tight, wide in zip(*found, strict=True):
        assert wide.isfinite().all()
        torch.testing.assert_close(wide, tight, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("padding", [0, 40])
@torch.no_grad()
def test_words_are_read_of_real_sentences_and_with_little_padding(padding: int) -> None:
    made, batch = model(), collate(corpus(), sentences=padding, words=padding)
    seen: list[Tensor] = []
    made.word_encoder.register_forward_pre_hook(lambda module, given: seen.append(given[1]))
    made(batch)
    assert all(mask.any(-1).all() for mask in seen)
    assert sum(len(mask) for mask in seen) == batch.mask.any(-1).sum()
    assert sum(mask.numel() for mask in seen) < 2 * batch.mask.sum()


def test_parts_and_the_sizes_of_serrano_and_smith() -> None:
    made = HierarchicalClassifier(
        50, 10, encoder="bigru", embedding_size=200, hidden_size=50, attention_size=100
    )
    parts = {name: part for name, part in made.named_children() if list(part.parameters())}
    words, sentences = ["word_encoder", "word_attention"], ["sentence_encoder"]
    assert list(parts) == ["embedding", *words, *sentences, "sentence_attention", "decoder"]
    shapes = {name: tuple(parameter.shape) for name, parameter in made.named_parameters()}
    assert shapes["embedding.weight"] == (50, 200)
    assert shapes["word_encoder.forwards.weight_ih_l0"] == (150, 200)
    assert shapes["word_attention.key.weight"] == (100, 100)
    assert shapes["sentence_encoder.backwards.weight_ih_l0"] == (150, 100)
    assert shapes["sentence_attention.value.weight"] == (1, 100)
    assert shapes["decoder.weight"] == (10, 100)


def test_without_encoders_contexts_have_the_size_of_embeddings() -> None:
    made = HierarchicalClassifier(50, 10, encoder="none", embedding_size=200, attention_size=200)
    assert made.word_attention.size == made.sentence_attention.size == 200
    assert made.decoder.in_features == 200


def test_a_batch_without_sentences_is_refused() -> None:
    tokens = torch.ones(2, 5, dtype=torch.long)
    flat = TextBatch(index=torch.arange(2), tokens=tokens, mask=tokens != 0)
    with pytest.raises(InputError, match="set `sentences: true` in `data`"):
        model()(flat)

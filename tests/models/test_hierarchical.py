import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, UNK, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import read
from attnlight.models import ATTENTIONS, ENCODERS, HierarchicalClassifier
from tests.models.precision import require_bfloat16
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


def compare(row: AttentionOutput, output: AttentionOutput, which: int, dtype: torch.dtype) -> None:
    """The only row of one output against a row of another, on what that text's sentences are."""
    sentences, words = row.layers[0].shape[1:]
    assert torch.equal(row.mask[0], output.mask[which, :sentences])
    assert not output.mask[which, sentences:].any()
    close(row.logits[0], output.logits[which], dtype, logits=True)
    close(row.probabilities[0], output.probabilities[which], dtype)
    close(row.weights[0], output.weights[which, :, :sentences], dtype)
    close(row.layers[0][0], output.layers[0][which, :sentences, :words], dtype)
    items = row.mask[0]
    own, other = row.item_logits[0], output.item_logits[which, :, :sentences]
    close(own[:, items], other[:, items], dtype, logits=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
@torch.no_grad()
def test_padding_batch_size_and_order_change_nothing(
    encoder: str, attention: str, dtype: torch.dtype
) -> None:
    made, texts = model(encoder, attention, dtype=dtype), corpus()
    together = made(collate(texts))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = made(collate([texts[n] for n in order], sentences=4, words=9))
    for place, n in enumerate(order):
        alone = made(collate([texts[n]]))
        compare(alone, together, n, dtype)
        compare(alone, shuffled, place, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_logits_are_weights_times_item_logits(
    encoder: str, classes: int, dtype: torch.dtype
) -> None:
    made, batch = model(encoder, classes=classes, dtype=dtype), collate(corpus(), sentences=3)
    output = made(batch)
    assert output.item_logits.shape == (len(batch), 1, batch.tokens.shape[1], classes)
    assert output.item_logits.isfinite().all()
    close(read(output.weights, output.item_logits), output.logits, dtype, logits=True)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_output(classes: int) -> None:
    made, batch = model(classes=classes), collate(corpus(), sentences=2, words=2)
    output = made(batch)
    assert isinstance(made, AttentionModel)
    assert torch.equal(output.rows, torch.stack([batch.index, 0 * batch.index], 1))
    assert torch.equal(output.mask, batch.mask.any(-1))
    assert output.states.shape == (*batch.tokens.shape[:2], 32)
    assert output.bias.shape == (classes,)
    (words,) = output.layers
    assert words.shape == batch.tokens.shape
    for weights, mask in ((output.weights[:, 0], output.mask), (words, batch.attendable())):
        assert (weights[~mask] == 0).all()
        assert (weights[mask] > 0).all()
        sums = weights.sum(-1)
        torch.testing.assert_close(sums, mask.any(-1).to(sums.dtype))


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
    vectors, _, _ = made.sentence_vectors(collate([holes]))
    assert (vectors[~output.mask] == 0).all()


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


@torch.no_grad()
def test_given_weights_replace_the_model_s_own() -> None:
    made, batch = model(), collate(corpus())
    own = made(batch)
    weights = own.weights.flip(0).where(own.mask[:, None], torch.zeros(()).double())
    output = made(batch, weights=weights)
    assert torch.equal(output.weights, weights)
    assert torch.equal(output.layers[0], own.layers[0])
    context = torch.einsum("bhn,bnd->bd", weights, own.states)
    expected = context @ made.decoder.weight.T + made.decoder.bias
    torch.testing.assert_close(output.logits, expected)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_readout_of_candidates_equals_replacing_the_weights(classes: int) -> None:
    made, batch = model(classes=classes), collate(corpus())
    output = made(batch)
    candidates = torch.rand(len(batch), 1, 5, batch.tokens.shape[1], dtype=torch.float64)
    logits = made.readout(output, candidates)
    assert logits.shape == (len(batch), 5, classes)
    for k in range(5):
        given = made(batch, weights=candidates[:, :, k])
        torch.testing.assert_close(logits[:, k], given.logits)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_given_embeddings_replace_the_model_s_own_and_have_gradients(encoder: str) -> None:
    made, batch = model(encoder), collate(corpus(), sentences=2, words=3)
    embeddings = made.embed(batch).detach().requires_grad_()
    assert embeddings.shape == (*batch.tokens.shape, 12)
    assert (embeddings[~batch.mask] == 0).all()
    output = made(batch, embeddings=embeddings)
    torch.testing.assert_close(output.logits, made(batch).logits, rtol=1e-12, atol=1e-12)
    output.probabilities[:, 1].sum().backward()
    assert embeddings.grad.isfinite().all()
    assert (embeddings.grad[~batch.mask] == 0).all()
    assert (embeddings.grad[batch.attendable()].abs().sum(-1) > 0).all()
    assert not torch.equal(made(batch, embeddings=embeddings * 2).logits, output.logits)


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


@torch.no_grad()
def test_attention_over_words_is_that_of_the_layer_below() -> None:
    made, batch = model(), collate(corpus())
    vectors, words, mask = made.sentence_vectors(batch)
    output = made(batch)
    assert vectors.shape == (*mask.shape, 32)
    assert torch.equal(mask, output.mask)
    assert torch.equal(words, output.layers[0])


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


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_output_is_in_full_precision_under_autocast(encoder: str) -> None:
    require_bfloat16(encoder)
    made, batch = model(encoder, dtype=torch.float32), collate(corpus())
    full = made(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = made(batch)
    tensors = (output.logits, output.weights, output.item_logits, output.states, *output.layers)
    for values in tensors:
        assert values.dtype == torch.float32
    logits = read(output.weights, output.item_logits)
    torch.testing.assert_close(logits, full.logits, rtol=0.05, atol=0.5)


def test_item_logits_are_not_made_in_training() -> None:
    made, batch = model(), collate(corpus())
    assert made.train()(batch).item_logits is None
    assert made.eval()(batch).item_logits is not None


@pytest.mark.parametrize("place", ["embedding_dropout", "sentence_dropout", "dropout"])
def test_dropouts_act_in_training_only(place: str) -> None:
    """One word in one sentence: what is dropped of its embedding is missing from the logits."""
    made = model("none", "uniform", classes=12, **{place: 0.5})
    nn.init.eye_(made.decoder.weight)
    nn.init.zeros_(made.decoder.bias)
    batch = collate([[[token]] for token in range(4, 24)])
    whole = made(batch).logits
    torch.testing.assert_close(whole, made.embedding.weight[4:24])
    torch.manual_seed(0)
    kept = made.train()(batch).logits
    assert 0.3 < (kept != 0).double().mean() < 0.7
    torch.testing.assert_close(kept[kept != 0], 2 * whole[kept != 0])


@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
def test_the_loss_reaches_every_parameter(encoder: str, attention: str) -> None:
    made, batch = model(encoder, attention).train(), collate(corpus(), sentences=2)
    made(batch).logits[:, 1].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert (made.embedding.weight.grad[0] == 0).all()


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


class TestMistakes:
    def test_a_batch_without_sentences(self) -> None:
        tokens = torch.ones(2, 5, dtype=torch.long)
        flat = TextBatch(index=torch.arange(2), tokens=tokens, mask=tokens != 0)
        with pytest.raises(InputError, match="set `sentences: true` in `data`"):
            model()(flat)

    @pytest.mark.parametrize("name", ["embedding_dropout", "sentence_dropout", "dropout"])
    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_a_dropout_out_of_range(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"^{name} is {value}"):
            model(**{name: value})

    def test_one_class(self) -> None:
        with pytest.raises(InputError, match="num_classes is 1"):
            HierarchicalClassifier(50, 1)

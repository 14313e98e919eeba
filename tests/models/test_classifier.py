import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, UNK, TextBatch
from attnlight.errors import InputError
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier

VOCABULARY = 60
COMBINATIONS = list(itertools.product(ENCODERS, ATTENTIONS))


def collate(texts: Sequence[Sequence[int]], padding: int = 0) -> TextBatch:
    size = max(map(len, texts)) + padding
    tokens = torch.tensor([[*text, *[0] * (size - len(text))] for text in texts])
    return TextBatch(index=torch.arange(len(texts)) + 100, tokens=tokens, mask=tokens != 0)


def corpus(boundaries: bool = True) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    lengths = [1, 2, 30, *torch.randint(1, 25, (9,), generator=random).tolist()]
    texts = [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n in lengths]
    texts[1] = [UNK, UNK]
    return [[BOS, *text, EOS] for text in texts] if boundaries else texts


def model(
    encoder: str = "bilstm",
    attention: str = "additive",
    classes: int = 2,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> FlatClassifier:
    """A model far from its start, where attention is peaked and logits are large."""
    torch.manual_seed(1)
    made = FlatClassifier(
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
        for parameter in made.attention.parameters():
            parameter.mul_(2)
    return made.to(dtype).eval()


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype, logits: bool = False) -> None:
    """Within the tolerances of design.md, section 10."""
    scale = expected.abs().clamp(min=1) if logits else torch.ones_like(expected)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5 if logits else 2e-6
    assert ((actual - expected).abs() / scale).max().item() <= tolerance


def naive_text(made: FlatClassifier, text: list[int]) -> tuple[Tensor, Tensor]:
    """Logits and weights of one text, a state and a number at a time."""
    tokens = torch.tensor([text])
    embeddings = made.embedding.weight[tokens[0]]
    states = made.encoder(embeddings[None], torch.ones_like(tokens, dtype=torch.bool))[0]
    items = [n for n, token in enumerate(text) if token not in (BOS, EOS)]
    scores = []
    for n in items:
        parameters = dict(made.attention.named_parameters())
        match type(made.attention).__name__:
            case "AdditiveAttention":
                key = parameters["key.weight"] @ states[n] + parameters["key.bias"]
                scores.append((parameters["value.weight"] @ torch.tanh(key))[0])
            case "DotAttention":
                scores.append((parameters["key.weight"] @ states[n])[0])
            case "ScaledDotAttention":
                dot = (parameters["key.weight"] @ states[n])[0]
                scores.append(dot / states.shape[1] ** 0.5)
            case _:
                scores.append(torch.zeros((), dtype=torch.float64))
    exponents = torch.stack(scores).exp()
    weights = torch.zeros(len(text), dtype=torch.float64)
    weights[items] = exponents / exponents.sum()
    context = sum(weights[n] * states[n] for n in items)
    logits = made.decoder.weight @ context + made.decoder.bias
    return torch.cat([torch.zeros(1), logits]) if len(logits) == 1 else logits, weights


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
@torch.no_grad()
def test_equals_a_naive_loop_over_texts(encoder: str, attention: str, classes: int) -> None:
    made, texts = model(encoder, attention, classes), corpus()
    output = made(collate(texts))
    assert output.logits.shape == (len(texts), classes)
    for row, text in enumerate(texts):
        logits, weights = naive_text(made, text)
        close(output.logits[row], logits, torch.float64, logits=True)
        close(output.weights[row, 0, : len(text)], weights, torch.float64)


@torch.no_grad()
def test_two_classes_have_one_logit() -> None:
    output = model(classes=2)(collate(corpus()))
    assert output.item_logits is not None
    for logits in (output.logits, output.item_logits, output.bias):
        assert (logits[..., 0] == 0).all()
        assert (logits[..., 1] != 0).all()


@torch.no_grad()
def test_boundary_tokens_are_read_but_not_attended_to() -> None:
    made = model()
    text = corpus(boundaries=False)[2]
    with_boundaries, without = made(collate([[BOS, *text, EOS]])), made(collate([text]))
    assert with_boundaries.weights[0, 0, [0, -1]].tolist() == [0, 0]
    assert (with_boundaries.states[:, 1:-1] - without.states).abs().max() > 1e-3


@torch.no_grad()
def test_one_token_takes_all_attention() -> None:
    made = model()
    output = made(collate([[7]]))
    assert output.weights.tolist() == [[[1.0]]]
    torch.testing.assert_close(output.logits, output.item_logits[:, 0, 0])


@torch.no_grad()
def test_a_text_without_items_has_the_logits_of_an_empty_context() -> None:
    output = model(classes=3)(collate([[BOS, EOS], [BOS, 7, 9, EOS]]))
    assert (output.weights[0] == 0).all()
    torch.testing.assert_close(output.logits[0], output.bias)


def test_dropout_acts_on_the_context_in_training_only() -> None:
    made, batch = model("none", classes=12, dropout=0.5), collate(corpus())
    nn.init.eye_(made.decoder.weight)
    nn.init.zeros_(made.decoder.bias)
    context = made(batch).logits
    torch.manual_seed(0)
    output = made.train()(batch)
    assert torch.equal(output.weights, made.eval()(batch).weights)
    kept = output.logits != 0
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(output.logits[kept], 2 * context[kept])


def test_dropout_on_the_logits_acts_in_training_only() -> None:
    made = model("none", classes=12, dropout=0.5, dropout_on="logits")
    batch = collate(corpus())
    whole = made(batch)
    assert torch.equal(whole.logits, model("none", classes=12)(batch).logits)
    torch.manual_seed(0)
    output = made.train()(batch)
    assert torch.equal(output.weights, whole.weights)
    kept = output.logits != 0
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(output.logits[kept], 2 * whole.logits[kept])


def test_dropout_on_the_logits_leaves_the_first_of_two_classes_at_zero() -> None:
    made, batch = model(classes=2, dropout=0.5, dropout_on="logits"), collate(corpus())
    whole = made(batch).logits
    torch.manual_seed(0)
    logits = made.train()(batch).logits
    assert (logits[:, 0] == 0).all()
    kept = logits[:, 1] != 0
    assert 0 < kept.sum() < len(batch)
    torch.testing.assert_close(logits[kept], 2 * whole[kept])


def test_parts_and_their_sizes() -> None:
    made = FlatClassifier(50, 2)
    parts = {name: part for name, part in made.named_children() if list(part.parameters())}
    assert list(parts) == ["embedding", "encoder", "attention", "decoder"]
    assert tuple(made.embedding.weight.shape) == (50, 300)
    assert made.embedding.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert isinstance(made.decoder, nn.Linear)
    assert (made.decoder.in_features, made.decoder.out_features) == (256, 1)


def test_attention_size_and_initialization_reach_their_parts() -> None:
    made = FlatClassifier(50, 3, attention_size=7, initialization="xavier")
    assert made.attention.key.out_features == 7
    assert (made.decoder.bias == 0).all()
    assert (FlatClassifier(50, 3).decoder.bias != 0).all()


def test_a_batch_of_sentences_is_refused() -> None:
    tokens = torch.ones(2, 3, 5, dtype=torch.long)
    batch = TextBatch(index=torch.arange(2), tokens=tokens, mask=tokens != 0)
    with pytest.raises(InputError, match="set `sentences: false` in `data`"):
        model()(batch)

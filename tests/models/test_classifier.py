import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, UNK, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import read
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier
from tests.models.precision import require_bfloat16

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


def compare(row: AttentionOutput, output: AttentionOutput, which: int, dtype: torch.dtype) -> None:
    """Row 0 of one output against a row of another, on what that text's items are."""
    size = min(row.mask.shape[1], output.mask.shape[1])
    assert torch.equal(row.mask[0, :size], output.mask[which, :size])
    close(row.logits[0], output.logits[which], dtype, logits=True)
    close(row.probabilities[0], output.probabilities[which], dtype)
    close(row.weights[0, :, :size], output.weights[which, :, :size], dtype)
    assert row.item_logits is not None
    assert output.item_logits is not None
    items = row.mask[0, :size]
    own, other = row.item_logits[0, :, :size], output.item_logits[which, :, :size]
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
    shuffled = made(collate([texts[n] for n in order], padding=9))
    for place, n in enumerate(order):
        alone = made(collate([texts[n]]))
        compare(alone, together, n, dtype)
        compare(alone, shuffled, place, dtype)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
@torch.no_grad()
def test_logits_are_weights_times_item_logits(
    encoder: str, attention: str, classes: int, dtype: torch.dtype
) -> None:
    made = model(encoder, attention, classes, dtype)
    batch = collate(corpus(), padding=3)
    output = made(batch)
    assert output.item_logits is not None
    assert output.item_logits.shape == (len(batch), 1, batch.tokens.shape[1], classes)
    assert output.item_logits.isfinite().all()
    close(read(output.weights, output.item_logits), output.logits, dtype, logits=True)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_output(classes: int) -> None:
    made, batch = model(classes=classes), collate(corpus(), padding=2)
    output = made(batch)
    assert isinstance(made, AttentionModel)
    assert torch.equal(output.rows, torch.stack([batch.index, 0 * batch.index], 1))
    assert torch.equal(output.mask, batch.attendable())
    assert output.states.shape == (*batch.tokens.shape, 32)
    assert output.bias.shape == (classes,)
    torch.testing.assert_close(
        output.bias, made.readout(output, 0 * output.weights[:, :, None])[0, 0]
    )
    assert (output.weights[~output.mask[:, None]] == 0).all()
    assert (output.weights[output.mask[:, None]] > 0).all()
    sums = output.weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


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


@torch.no_grad()
def test_given_weights_replace_the_model_s_own() -> None:
    made, batch = model(classes=3), collate(corpus())
    own = made(batch)
    weights = own.weights.flip(0).where(own.mask[:, None], torch.zeros(()).double())
    output = made(batch, weights=weights)
    assert torch.equal(output.weights, weights)
    context = torch.einsum("bhn,bnd->bd", weights, own.states)
    expected = context @ made.decoder.weight.T + made.decoder.bias
    torch.testing.assert_close(output.logits, expected)
    assert torch.equal(made(batch, weights=own.weights).logits, own.logits)


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
    made, batch = model(encoder), collate(corpus())
    embeddings = made.embed(batch).detach().requires_grad_()
    assert (embeddings[~batch.mask] == 0).all()
    output = made(batch, embeddings=embeddings)
    assert torch.equal(output.logits, made(batch).logits)
    output.probabilities[:, 1].sum().backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[~batch.mask] == 0).all()
    assert (embeddings.grad[output.mask].abs().sum(-1) > 0).all()
    assert not torch.equal(made(batch, embeddings=embeddings * 2).logits, output.logits)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_output_is_in_full_precision_under_autocast(encoder: str) -> None:
    require_bfloat16(encoder)
    made, batch = model(encoder, dtype=torch.float32), collate(corpus())
    full = made(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = made(batch)
    assert output.item_logits is not None
    for values in (output.logits, output.weights, output.item_logits, output.states, output.bias):
        assert values.dtype == torch.float32
    logits = read(output.weights, output.item_logits)
    torch.testing.assert_close(logits, full.logits, rtol=0.05, atol=0.5)
    torch.testing.assert_close(
        made.readout(output, output.weights[:, :, None])[:, 0], logits, rtol=0.05, atol=0.2
    )


def test_item_logits_are_not_made_in_training() -> None:
    made, batch = model(), collate(corpus())
    assert made.train()(batch).item_logits is None
    assert made.eval()(batch).item_logits is not None


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


def test_embedding_dropout_acts_before_the_encoder_in_training_only() -> None:
    made = model("none", "uniform", classes=12, embedding_dropout=0.5)
    batch = collate([[token] for token in range(4, 24)])
    embeddings = made.embedding.weight[4:24]
    assert torch.equal(made(batch).states[:, 0], embeddings)
    torch.manual_seed(0)
    kept = made.train()(batch).states[:, 0]
    assert 0.3 < (kept != 0).double().mean() < 0.7
    torch.testing.assert_close(kept[kept != 0], 2 * embeddings[kept != 0])


@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
def test_the_loss_reaches_every_parameter(encoder: str, attention: str) -> None:
    made, batch = model(encoder, attention).train(), collate(corpus())
    made(batch).logits[:, 1].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert (made.embedding.weight.grad[0] == 0).all()


def test_frozen_embeddings_have_no_gradient() -> None:
    torch.manual_seed(0)
    made = FlatClassifier(VOCABULARY, 2, embedding_size=8, hidden_size=4, freeze_embeddings=True)
    made(collate(corpus())).logits.sum().backward()
    assert made.embedding.weight.grad is None
    assert all(p.grad is not None for p in made.parameters() if p is not made.embedding.weight)


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


@pytest.mark.parametrize("name", ["embedding_dropout", "dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_a_dropout_out_of_range_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{name} is {value}"):
        model(**{name: value})


def test_one_class_is_refused() -> None:
    with pytest.raises(InputError, match="num_classes is 1"):
        FlatClassifier(50, 1)

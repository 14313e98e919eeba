"""What flat and hierarchical classifiers have in common, of either."""

from __future__ import annotations

from dataclasses import asdict
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import read
from attnlight.models import ENCODERS
from attnlight.models.options import ClassifierNet
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models.precision import require_bfloat16
from tests.models.test_classifier import close

KINDS = {"flat": flat, "hierarchical": hierarchical}
COMBINATIONS = [(kind, *names) for kind in KINDS for names in KINDS[kind].COMBINATIONS]
ENCODED = [(kind, encoder) for kind in KINDS for encoder in ENCODERS]
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ModuleType:
    """The tests of one of them, with its models and batches."""
    return KINDS[request.param]


def items(batch: TextBatch) -> torch.Tensor:
    """What attention reaches: words, or sentences with words."""
    return batch.attendable() if batch.tokens.ndim == 2 else batch.attendable().any(-1)


def compare(row: AttentionOutput, output: AttentionOutput, which: int, dtype: torch.dtype) -> None:
    """The only row of one output against a row of another, on what that text's items are."""
    size = row.mask.shape[1]
    mask = row.mask[0]
    assert torch.equal(mask, output.mask[which, :size])
    assert not output.mask[which, size:].any()
    close(row.logits[0], output.logits[which], dtype, logits=True)
    close(row.probabilities[0], output.probabilities[which], dtype)
    close(row.weights[0], output.weights[which, :, :size], dtype)
    for own, other in zip(row.layers or (), output.layers or (), strict=True):
        close(own[0], other[which, :size, : own.shape[2]], dtype)
    assert row.item_logits is not None
    assert output.item_logits is not None
    own, other = row.item_logits[0], output.item_logits[which, :, :size]
    close(own[:, mask], other[:, mask], dtype, logits=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "encoder", "attention"), COMBINATIONS, indirect=["kind"])
@torch.no_grad()
def test_padding_batch_size_and_order_change_nothing(
    kind: Any, encoder: str, attention: str, dtype: torch.dtype
) -> None:
    made, texts = kind.model(encoder, attention, dtype=dtype), kind.corpus()
    together = made(kind.collate(texts))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = made(kind.collate([texts[n] for n in order], *([9] if kind is flat else [4, 9])))
    for place, n in enumerate(order):
        alone = made(kind.collate([texts[n]]))
        compare(alone, together, n, dtype)
        compare(alone, shuffled, place, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("kind", "encoder", "attention"), COMBINATIONS, indirect=["kind"])
@torch.no_grad()
def test_logits_are_weights_times_item_logits(
    kind: Any, encoder: str, attention: str, classes: int, dtype: torch.dtype
) -> None:
    made = kind.model(encoder, attention, classes, dtype)
    batch = kind.collate(kind.corpus(), 3)
    output = made(batch)
    assert output.item_logits.shape == (len(batch), 1, batch.tokens.shape[1], classes)
    assert output.item_logits.isfinite().all()
    close(read(output.weights, output.item_logits), output.logits, dtype, logits=True)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_output(kind: Any, classes: int) -> None:
    made = kind.model(classes=classes)
    batch = kind.collate(kind.corpus(), *([2] if kind is flat else [2, 2]))
    output = made(batch)
    assert isinstance(made, AttentionModel)
    assert torch.equal(output.rows, torch.stack([batch.index, 0 * batch.index], 1))
    assert torch.equal(output.mask, items(batch))
    assert output.states.shape == (*output.mask.shape, 32)
    assert output.bias.shape == (classes,)
    empty = made.readout(output, 0 * output.weights[:, :, None])[0, 0]
    torch.testing.assert_close(output.bias, empty)
    layers = [(words, batch.attendable()) for words in output.layers or ()]
    assert [words.shape for words, _ in layers] == [batch.tokens.shape] * (kind is hierarchical)
    for weights, mask in ((output.weights[:, 0], output.mask), *layers):
        assert (weights[~mask] == 0).all()
        assert (weights[mask] > 0).all()
        sums = weights.sum(-1)
        torch.testing.assert_close(sums, mask.any(-1).to(sums.dtype))


@torch.no_grad()
def test_given_weights_replace_the_model_s_own(kind: Any) -> None:
    made, batch = kind.model(classes=3), kind.collate(kind.corpus())
    own = made(batch)
    weights = own.weights.flip(0).where(own.mask[:, None], torch.zeros(()).double())
    output = made(batch, weights=weights)
    assert torch.equal(output.weights, weights)
    for below, before in zip(output.layers or (), own.layers or (), strict=True):
        assert torch.equal(below, before)
    context = torch.einsum("bhn,bnd->bd", weights, own.states)
    expected = context @ made.decoder.weight.T + made.decoder.bias
    torch.testing.assert_close(output.logits, expected)
    assert torch.equal(made(batch, weights=own.weights).logits, own.logits)


@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_readout_of_candidates_equals_replacing_the_weights(kind: Any, classes: int) -> None:
    made, batch = kind.model(classes=classes), kind.collate(kind.corpus())
    output = made(batch)
    candidates = torch.rand(len(batch), 1, 5, batch.tokens.shape[1], dtype=torch.float64)
    logits = made.readout(output, candidates)
    assert logits.shape == (len(batch), 5, classes)
    for k in range(5):
        given = made(batch, weights=candidates[:, :, k])
        torch.testing.assert_close(logits[:, k], given.logits)


@pytest.mark.parametrize(("kind", "encoder"), ENCODED, indirect=["kind"])
def test_given_embeddings_replace_the_model_s_own_and_have_gradients(
    kind: Any, encoder: str
) -> None:
    made = kind.model(encoder)
    batch = kind.collate(kind.corpus(), *([] if kind is flat else [2, 3]))
    embeddings = made.embed(batch).detach().requires_grad_()
    assert embeddings.shape == (*batch.tokens.shape, 12)
    assert (embeddings[~batch.mask] == 0).all()
    output = made(batch, embeddings=embeddings)
    tolerance = 0.0 if kind is flat else 1e-12
    torch.testing.assert_close(output.logits, made(batch).logits, rtol=tolerance, atol=tolerance)
    output.probabilities[:, 1].sum().backward()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    assert (embeddings.grad[~batch.mask] == 0).all()
    assert (embeddings.grad[batch.attendable()].abs().sum(-1) > 0).all()
    assert not torch.equal(made(batch, embeddings=embeddings * 2).logits, output.logits)


@pytest.mark.parametrize(("kind", "encoder"), ENCODED, indirect=["kind"])
@torch.no_grad()
def test_output_is_in_full_precision_under_autocast(kind: Any, encoder: str) -> None:
    require_bfloat16(encoder)
    made, batch = kind.model(encoder, dtype=torch.float32), kind.collate(kind.corpus())
    full = made(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = made(batch)
    tensors = (output.logits, output.weights, output.item_logits, output.states, output.bias)
    for values in (*tensors, *(output.layers or ())):
        assert values.dtype == torch.float32
    logits = read(output.weights, output.item_logits)
    torch.testing.assert_close(logits, full.logits, rtol=0.05, atol=0.5)
    given = made.readout(output, output.weights[:, :, None])[:, 0]
    torch.testing.assert_close(given, logits, rtol=0.05, atol=0.2)


def test_item_logits_are_not_made_in_training(kind: Any) -> None:
    made, batch = kind.model(), kind.collate(kind.corpus())
    assert made.train()(batch).item_logits is None
    assert made.eval()(batch).item_logits is not None


@pytest.mark.parametrize(("kind", "encoder", "attention"), COMBINATIONS, indirect=["kind"])
def test_the_loss_reaches_every_parameter(kind: Any, encoder: str, attention: str) -> None:
    made = kind.model(encoder, attention).train()
    made(kind.collate(kind.corpus(), 2)).logits[:, 1].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert (made.embedding.weight.grad[0] == 0).all()


DROPOUTS = [
    ("flat", "embedding_dropout"),
    ("flat", "dropout"),
    ("hierarchical", "embedding_dropout"),
    ("hierarchical", "sentence_dropout"),
    ("hierarchical", "dropout"),
]


@pytest.mark.parametrize(("kind", "place"), DROPOUTS, indirect=["kind"])
def test_dropouts_act_in_training_only(kind: Any, place: str) -> None:
    """One word in one sentence: what is dropped of its embedding is missing from the logits."""
    made = kind.model("none", "uniform", classes=12, **{place: 0.5})
    nn.init.eye_(made.decoder.weight)
    nn.init.zeros_(made.decoder.bias)
    words = [[token] for token in range(4, 24)]
    batch = kind.collate(words if kind is flat else [[word] for word in words])
    whole = made(batch).logits
    torch.testing.assert_close(whole, made.embedding.weight[4:24])
    torch.manual_seed(0)
    kept = made.train()(batch).logits
    assert 0.3 < (kept != 0).double().mean() < 0.7
    torch.testing.assert_close(kept[kept != 0], 2 * whole[kept != 0])


@pytest.mark.parametrize(("kind", "name"), DROPOUTS, indirect=["kind"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_a_dropout_out_of_range_is_refused(kind: Any, name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{name} is {value}"):
        kind.model(**{name: value})


def test_one_class_is_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="num_classes is 1"):
        kind.model(classes=1)


def test_options_are_those_of_the_group_and_no_others(kind: Any) -> None:
    options = asdict(ClassifierNet(embedding_size=6, hidden_size=4))
    made = type(kind.model())(20, 3, **options)
    assert made.embedding.weight.shape == (20, 6)
    with pytest.raises(InputError, match=r"no option .embeding_size.*embedding_size"):
        kind.model(embeding_size=6)


def test_a_flat_classifier_has_no_sentences_to_drop() -> None:
    with pytest.raises(InputError, match=r"sentence_dropout is 0\.2, but .* no sentences"):
        flat.model(sentence_dropout=0.2)

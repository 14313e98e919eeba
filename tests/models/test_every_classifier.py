"""What flat and hierarchical classifiers and those of pairs have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnlight.batch import BOS, EOS, NOT_ALLOWED, AttentionModel, TextBatch
from attnlight.functional import read
from attnlight.models import ATTENTIONS, ENCODERS
from attnlight.models.attention import NORMALIZERS
from tests.models import oracles
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.models.oracles import close, compare
from tests.models.precision import require_bfloat16
from tests.turns import by_turns

DTYPES = [torch.float32, torch.float64]


@dataclass(frozen=True)
class Kind:
    """A classifier's models, batches and encoders with attentions, and its pass in NumPy."""

    model: Callable[..., Any]
    texts: Callable[[int], list[Any]]
    collate: Callable[..., TextBatch]
    combinations: list[tuple[str, str]]
    naive: Callable[..., Any]
    empty: Any

    def batch(self, wide: bool = False, classes: int = 3) -> TextBatch:
        return self.collate(self.texts(classes), wide, classes)


def of_pairs(decoder: str, share: bool) -> Kind:
    attended = [("cnn", name) for name in ATTENTIONS if name != "additive"]
    return Kind(
        partial(pair.model, decoder=decoder, share=share),
        lambda classes: pair.corpus(classes=classes),
        lambda texts, wide=False, classes=3: pair.collate(texts, (9 * wide, 4 * wide), classes),
        [*((name, "additive") for name in ENCODERS), *attended],
        oracles.text_with_query,
        ([BOS, EOS], [7], [0, 1]),
    )


KINDS = {
    "flat": Kind(
        flat.model,
        lambda _: flat.corpus(),
        lambda texts, wide=False, _=3: flat.collate(texts, 9 * wide),
        flat.COMBINATIONS,
        oracles.flat_text,
        [BOS, EOS],
    ),
    "hierarchical": Kind(
        hierarchical.model,
        lambda _: hierarchical.corpus(),
        lambda texts, wide=False, _=3: hierarchical.collate(texts, 4 * wide, 9 * wide),
        hierarchical.COMBINATIONS,
        oracles.text_in_sentences,
        [[BOS, EOS], []],
    ),
    "tanh": of_pairs("tanh", share=False),
    "affine": of_pairs("affine", share=True),
}
SINGLE = ("flat", "hierarchical")
AFFINE = (*SINGLE, "affine")
each = pytest.mark.parametrize("kind", KINDS, indirect=True)
encoded = pytest.mark.parametrize(
    ("kind", "encoder"), [(kind, name) for kind in KINDS for name in ENCODERS], indirect=["kind"]
)


def combined(*kinds: str, **further: Sequence[Any]) -> Any:
    """Each combination of each kind, with one of the values of further arguments by turns."""
    every: list[Any] = [(kind, *names) for kind in kinds for names in KINDS[kind].combinations]
    for values in further.values():
        every = by_turns(every, values)
    names = ("kind", "encoder", "attention", *further)
    return pytest.mark.parametrize(names, every, indirect=["kind"])


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


LOOPS: list[tuple[str, dict[str, Any]]] = [
    (name, {"encoder": encoder, "attention": attention, "classes": 2 + 2 * (turn % 2)} | shared)
    for name, kind in KINDS.items()
    for turn, (encoder, attention) in enumerate(kind.combinations)
    for shared in [{} if name in SINGLE else {"share": (turn % 4 in (1, 2)) == (name == "tanh")}]
]
JOINED = {"attend_to": "states_and_embeddings", "classes": 2}
LOOPS += [(name, {"encoder": x} | JOINED) for name in KINDS for x in ("lstm", "cnn", "none")]
LOOPS += [
    (name, {"encoder": "cnn", "normalizer": x, "classes": 2})
    for name in KINDS
    for x in oracles.SPARSE.values()
]
UNLIKE = {"encoder": "average", "query_encoder": "bilstm", "hidden_size": 8, "classes": 4}


@pytest.mark.parametrize(("kind", "options"), [*LOOPS, ("tanh", UNLIKE)], indirect=["kind"])
@torch.no_grad()
def test_equals_a_loop_over_texts(kind: Kind, options: dict[str, Any]) -> None:
    made, classes = kind.model(**options), options["classes"]
    texts = kind.texts(classes)
    output = made(kind.collate(texts, True, classes))
    assert output.logits.shape == (len(texts), classes)
    encoders = [options[name] for name in ("encoder", "query_encoder") if name in options]
    for row, text in enumerate(texts):
        logits, weights, *below = kind.naive(made, text, *encoders)
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(output.weights[row, 0, : len(weights)], weights, atol=1e-10)
        assert (output.weights[row, 0, len(weights) :] == 0).all()
        for sentence, expected in enumerate(itertools.chain(*below)):
            found = output.layers[0][row, sentence, : len(expected)]
            np.testing.assert_allclose(found, expected, atol=1e-10)
    assert output.logits[output.logits != NOT_ALLOWED].std() > 0.05


@combined(*KINDS, dtype=DTYPES)
@torch.no_grad()
def test_padding_batch_size_and_order_change_nothing(
    kind: Kind, encoder: str, attention: str, dtype: torch.dtype
) -> None:
    made, texts = kind.model(encoder, attention, classes=3, dtype=dtype), kind.texts(3)
    together = made(kind.collate(texts))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = made(kind.collate([texts[n] for n in order], True))
    for place, n in enumerate(order):
        alone = made(kind.collate([texts[n]]))
        compare(alone, together, n, slice(n, n + 1))
        compare(alone, shuffled, place, slice(place, place + 1))


@combined(*AFFINE, classes=(2, 3), dtype=(*DTYPES, *DTYPES[::-1]))
@torch.no_grad()
def test_logits_are_weights_times_item_logits(
    kind: Kind, encoder: str, attention: str, classes: int, dtype: torch.dtype
) -> None:
    made = kind.model(encoder, attention, classes=classes, dtype=dtype)
    batch = kind.batch(True, classes)
    output = made(batch)
    assert output.item_logits.shape == (len(batch), 1, batch.tokens.shape[1], classes)
    assert output.item_logits.isfinite().all()
    close(read(output.weights, output.item_logits), output.logits, logits=True)
    if batch.allowed_classes is not None:
        for values in (output.logits, output.bias, *output.item_logits[:, 0].unbind(1)):
            assert (values[~batch.allowed_classes] == NOT_ALLOWED).all()


@each
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@torch.no_grad()
def test_output(kind: Kind, normalizer: str, classes: int) -> None:
    made = kind.model("bigru", classes=classes, normalizer=normalizer)
    batch = kind.batch(True, classes)
    output = made(batch)
    assert isinstance(made, AttentionModel)
    assert torch.equal(output.rows, torch.stack([batch.index, 0 * batch.index], 1))
    items = batch.attendable()
    assert torch.equal(output.mask, items if items.ndim == 2 else items.any(-1))
    assert output.states.shape == (*output.mask.shape, 32)
    assert output.bias.shape[-1] == classes
    empty = made.readout(output, 0 * output.weights[:, :, None])[:, 0]
    torch.testing.assert_close(output.bias.expand_as(empty), empty)
    layers = [(words, items) for words in output.layers or ()]
    assert [words.shape for words, _ in layers] == [batch.tokens.shape] * (items.ndim == 3)
    positive: list[bool] = []
    for weights, mask in ((output.weights[:, 0], output.mask), *layers):
        assert (weights[~mask] == 0).all()
        positive.append(bool((weights[mask] > 0).all()))
        torch.testing.assert_close(weights.sum(-1), mask.any(-1).to(weights.dtype))
    assert all(positive) == (normalizer == "softmax")
    assert made.train()(batch).item_logits is None


@each
@pytest.mark.parametrize("classes", [2, 3])
@torch.no_grad()
def test_given_weights_are_read_as_candidates_are(kind: Kind, classes: int) -> None:
    made, batch = kind.model(classes=classes), kind.batch(True, classes)
    output = made(batch)
    candidates = torch.rand(len(batch), 1, 20, batch.tokens.shape[1], dtype=torch.float64) * 2
    candidates[:, :, 0] = 0
    logits = made.readout(output, candidates)
    assert logits.shape == (len(batch), 20, classes)
    for k in range(20):
        given = made(batch, weights=candidates[:, :, k])
        assert torch.equal(given.weights, candidates[:, :, k])
        for below, before in zip(given.layers or (), output.layers or (), strict=True):
            assert torch.equal(below, before)
        torch.testing.assert_close(logits[:, k], given.logits)
        if classes == 3 and batch.query is None:
            context = torch.einsum("bhn,bnd->bd", candidates[:, :, k], output.states)
            expected = context @ made.decoder.weight.T + made.decoder.bias
            torch.testing.assert_close(given.logits, expected)
    torch.testing.assert_close(logits[:, 0], output.bias.expand_as(logits[:, 0]))
    assert torch.equal(made(batch, weights=output.weights).logits, output.logits)
    rows = torch.tensor([4, 1, 2])
    some = made.readout(output.select(rows, rows), candidates[rows])
    torch.testing.assert_close(some, logits[rows])


@encoded
def test_given_embeddings_replace_the_model_s_and_have_gradients(kind: Kind, encoder: str) -> None:
    made = kind.model(encoder, classes=3)
    batch = replace(kind.batch(True), allowed_classes=None)
    embeddings = made.embed(batch).detach().requires_grad_()
    assert embeddings.shape == (*batch.tokens.shape, 12)
    assert (embeddings[~batch.mask] == 0).all()
    output = made(batch, embeddings=embeddings)
    noise = torch.where(batch.mask.unsqueeze(-1), embeddings, 3.0)  # padding may hold anything
    for other in (made(batch), made(batch, embeddings=noise)):
        torch.testing.assert_close(output.logits, other.logits, rtol=1e-12, atol=1e-12)
    output.probabilities[:, 1].sum().backward()
    assert embeddings.grad.isfinite().all()
    assert (embeddings.grad[~batch.mask] == 0).all()
    assert (embeddings.grad[batch.attendable()].abs().sum(-1) > 0).all()
    assert not torch.equal(made(batch, embeddings=embeddings * 2).logits, output.logits)


@encoded
def test_gradients_do_not_depend_on_padding(kind: Kind, encoder: str) -> None:
    made, found = kind.model(encoder, classes=3), []
    for wide in (False, True):
        made.zero_grad()
        batch = replace(kind.batch(wide), allowed_classes=None)
        made(batch).logits.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in made.parameters()])
    for tight, wider in zip(*found, strict=True):
        assert wider.isfinite().all()
        torch.testing.assert_close(wider, tight, rtol=1e-10, atol=1e-9)


@encoded
@torch.no_grad()
def test_output_is_in_full_precision_under_autocast(kind: Kind, encoder: str) -> None:
    require_bfloat16(encoder)
    made, batch = kind.model(encoder, classes=3, dtype=torch.float32), kind.batch()
    full = made(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = made(batch)
    tensors = [output.logits, output.weights, output.item_logits, output.states, output.bias]
    for values in (*tensors, *(output.layers or ()), *output.memory.values()):
        assert values is None or values.dtype in (torch.float32, torch.bool)
    torch.testing.assert_close(output.logits, full.logits, rtol=0.05, atol=0.6)
    given = made.readout(output, output.weights[:, :, None])[:, 0]
    torch.testing.assert_close(given, output.logits, rtol=0.05, atol=0.3)
    if output.item_logits is not None:
        torch.testing.assert_close(
            read(output.weights, output.item_logits), output.logits, rtol=0.05, atol=0.3
        )


@combined(*KINDS)
def test_the_loss_reaches_every_parameter(kind: Kind, encoder: str, attention: str) -> None:
    made = kind.model(encoder, attention, classes=3).train()
    batch = replace(kind.batch(True), allowed_classes=None)
    made(batch).logits[:, 1:].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad.abs().max() > 0, name
    assert (made.embedding.weight.grad[0] == 0).all()


@encoded
def test_a_text_without_items_has_the_logits_of_an_empty_context(kind: Kind, encoder: str) -> None:
    made = kind.model(encoder, classes=3)
    for texts in ([kind.empty], [kind.empty, *kind.texts(3)[1:3]]):
        output = made(kind.collate(texts, True))
        assert (output.weights[0] == 0).all()
        torch.testing.assert_close(output.logits[0], output.bias.expand_as(output.logits)[0])
        assert output.item_logits is None or output.item_logits.isfinite().all()
    output.logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in made.parameters())


DROPOUTS = [
    *((kind, name) for kind in SINGLE for name in ("embedding_dropout", "dropout")),
    ("hierarchical", "sentence_dropout"),
]


@pytest.mark.parametrize(("kind", "place"), DROPOUTS, indirect=["kind"])
def test_dropouts_act_in_training_only(kind: Kind, place: str) -> None:
    """One word in one sentence: what is dropped of its embedding is missing from the logits."""
    made = kind.model("none", "uniform", classes=12, **{place: 0.5})
    nn.init.eye_(made.decoder.weight)
    nn.init.zeros_(made.decoder.bias)
    words = [[token] for token in range(4, 24)]
    batch = kind.collate(words if kind is KINDS["flat"] else [[word] for word in words])
    whole = made(batch).logits
    torch.testing.assert_close(whole, made.embedding.weight[4:24])
    torch.manual_seed(0)
    kept = made.train()(batch).logits
    assert 0.3 < (kept != 0).double().mean() < 0.7
    torch.testing.assert_close(kept[kept != 0], 2 * whole[kept != 0])


@pytest.mark.parametrize("kind", ["tanh", "affine"], indirect=True)
@pytest.mark.parametrize("name", ["dropout", "embedding_dropout"])
def test_dropouts_of_pairs_act_in_training_only(kind: Kind, name: str) -> None:
    made, batch = kind.model(classes=3, **{name: 0.5}), kind.batch()
    expected = kind.model(classes=3)(batch).logits
    assert torch.equal(made(batch).logits, expected)
    assert not torch.equal(made.train()(batch).logits, expected)

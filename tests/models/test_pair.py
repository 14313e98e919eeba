"""Classifiers of pairs against a forward pass in NumPy, a text and a state at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.batch import BOS, EOS, NOT_ALLOWED, AttentionModel, TextBatch
from attnlight.errors import InputError
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier, PairClassifier
from attnlight.models import SelfAttentionTagger as Tagger
from attnlight.models.build import changed_net, plain_net
from attnlight.models.options import PairNet
from attnlight.models.readout import readout_of
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from tests.models.oracles import (
    VOCABULARY,
    Array,
    attended,
    class_logits,
    encoded,
    far_from_start,
    padded,
    parameters,
    part,
    words_of,
)

Pair = tuple[list[int], list[int], list[int]]  # ids of passage and query, and allowed classes
CLASSES = 4
DECODERS = ("tanh", "affine")


def corpus(boundaries: bool = True, classes: int = CLASSES) -> list[Pair]:
    """Passages of 1 to 30 words and queries of 1 to 8, each with its allowed classes."""
    random = torch.Generator().manual_seed(0)
    pairs = []
    for number, length in enumerate([1, 2, 30, 5, 17, 9, 12]):
        sizes = (length, 1 + (3 * number) % 8)
        ids = [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n in sizes]
        ids = [[BOS, *words, EOS] for words in ids] if boundaries else ids
        allowed = [c for c in range(classes) if number % 3 == 0 or c in (1, number % classes)]
        pairs.append((ids[0], ids[1], [number % classes] if number == 4 else allowed))
    return pairs


def collate(
    pairs: list[Pair], padding: tuple[int, int] = (0, 0), classes: int = CLASSES
) -> TextBatch:
    tokens, query = (padded([pair[n] for pair in pairs], padding[n]) for n in (0, 1))
    allowed = torch.tensor([[c in pair[2] for c in range(classes)] for pair in pairs])
    index = torch.arange(len(pairs)) + 100
    pair_columns = {"query": query, "query_mask": query != 0, "allowed_classes": allowed}
    return TextBatch(index, tokens, tokens != 0, **pair_columns)


def model(
    encoder: str = "bilstm",
    attention: str = "additive",
    decoder: str = "tanh",
    classes: int = CLASSES,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> PairClassifier:
    kinds = {"encoder": encoder, "attention": attention, "decoder": decoder}
    parts = ("encoder", "query_encoder", "attention")
    return far_from_start(PairClassifier, classes, dtype, parts, **kinds | options)


def naive(made: PairClassifier, pair: Pair, kind: str, query_kind: str) -> tuple[Array, Array]:
    """Logits (C,) and weights (N,) of one text, from the parameters alone."""
    values = parameters(made)
    passage, query, allowed = pair
    own = "query_embedding.weight" in values
    embedding = values["embedding.weight"]
    asked = values["query_embedding.weight"] if own else embedding
    states = encoded(kind, part(values, "encoder"), embedding[passage])
    query_part = part(values, "query_encoder" if own else "encoder")
    query_states = encoded(query_kind, query_part, asked[query])
    words = words_of(query)
    if query_kind in ("bilstm", "bigru"):
        half = query_states.shape[1] // 2
        q = np.concatenate([query_states[-1, :half], query_states[0, half:]])
    elif query_kind in ("cnn", "conv"):
        q = query_states[words].max(0)
    else:
        q = query_states[words].mean(0)
    context, weights = attended(made.attention, states, words_of(passage), q)
    logits = values["decoder.weight"] @ context + values["decoder.bias"]
    logits = logits + values["query_decoder.weight"] @ q + values.get("query_decoder.bias", 0)
    if "output.weight" in values:
        logits = values["output.weight"] @ np.tanh(logits) + values["output.bias"]
    logits = class_logits(logits)
    return np.where(np.isin(np.arange(len(logits)), allowed), logits, -1e4), weights


LOOPS: list[dict[str, Any]] = [
    *(
        {"encoder": encoder, "decoder": decoder, "share": share, "classes": classes}
        for encoder, decoder in itertools.product(ENCODERS, DECODERS)
        for share, classes in itertools.product((False, True), (2, CLASSES))
    ),
    *(
        {"encoder": "cnn", "attention": attention, "decoder": decoder}
        for attention, decoder in itertools.product(ATTENTIONS, DECODERS)
    ),
    {"encoder": "average", "query_encoder": "bilstm", "hidden_size": 8},
]


@pytest.mark.parametrize("options", LOOPS)
@torch.no_grad()
def test_equals_a_loop_over_texts(options: dict[str, Any]) -> None:
    made, classes = model(**options), options.get("classes", CLASSES)
    pairs, kind = corpus(classes=classes), options["encoder"]
    output = made(collate(pairs, (2, 1), classes))
    assert isinstance(made, AttentionModel)
    assert output.logits.shape == (7, classes)
    assert output.logits[output.logits != NOT_ALLOWED].std() > 0.2
    for row, pair in enumerate(pairs):
        logits, weights = naive(made, pair, kind, options.get("query_encoder", kind))
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(output.weights[row, 0, : len(pair[0])], weights, atol=1e-10)
        assert (output.weights[row, 0, len(pair[0]) :] == 0).all()


@torch.no_grad()
def test_a_candidate_of_tanh_reads_the_projected_states_alone() -> None:
    made, batch = model(), collate(corpus())
    output = made(batch)
    weights = output.weights.unsqueeze(2)
    expected = made.readout(output, weights)
    assert output.memory["projected"].shape == (*batch.tokens.shape, made.decoder.out_features)
    blind = replace(output, states=torch.full_like(output.states, torch.nan))
    assert torch.equal(made.readout(blind, weights), expected)
    trained = made.train()(batch)
    assert "projected" not in trained.memory
    assert trained.item_logits is None
    torch.testing.assert_close(made.readout(trained, weights), expected)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("classes", [2, CLASSES])
def test_one_allowed_class_is_certain_and_nothing_is_nan(decoder: str, classes: int) -> None:
    made = model(decoder=decoder, classes=classes)
    batch = collate([(p, q, [1]) for p, q, _ in corpus(classes=classes)], (2, 2), classes)
    output = made(batch)
    assert (output.probabilities[:, 1] == 1).all()
    real = output.mask & (output.mask.sum(-1, keepdim=True) > 1)
    with torch.no_grad():
        assert (leave_one_out(made, batch, output)[real] == 0).all()
        readout = readout_of(batch, output, made)
        assert (readout.erase()[output.mask].argmax(-1) == 1).all()
        assert (
            readout.first_flips(output.mask.byte().argsort(-1, descending=True)[:, None]) == -1
        ).all()
    assert input_gradient(made, batch, output).isfinite().all()
    assert readout.gradient().isfinite().all()
    embeddings = made.embed(batch).detach().requires_grad_()
    made(batch, embeddings=embeddings).logits.softmax(-1).square().sum().backward()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_an_empty_query_is_a_vector_of_zeros(encoder: str) -> None:
    made, pairs = model(encoder), corpus(boundaries=False)
    batch = collate(pairs)
    assert batch.query is not None
    assert batch.query_mask is not None
    batch.query[1], batch.query_mask[1] = 0, False
    output = made(batch)
    assert (output.memory["query"][1] == 0).all()
    assert output.logits.isfinite().all()
    assert (output.weights.sum(-1) - 1).abs().max() < 1e-12
    nothing = replace(batch, query=batch.query[:, :1], query_mask=batch.query_mask[:, :1] & False)
    assert (made(nothing).memory["query"] == 0).all()


def test_shared_embeddings_have_the_same_gradient_if_it_is_sparse() -> None:
    """A sparse gradient is the sum of the passage's and the query's."""
    gradients = []
    for sparse in (False, True):
        made = model("average", share=True).train()
        made.embedding.sparse = sparse
        for _ in range(2):
            made.zero_grad()
            made(collate(corpus())).logits.softmax(-1).square().sum().backward()
            made.embedding.densify_gradient()
        gradients.append(made.embedding.weight.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"encoder": "cnn", "query_encoder": "bilstm", "share": True},
            "bilstm: leave query_encoder",
        ),
        (
            {"encoder": "cnn", "attention": "scaled_dot", "query_encoder": "bilstm"},
            r"states of size 16 needs queries .* query_size is 32",
        ),
    ],
)
def test_encoders_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        model(**options)


def test_other_corpora_and_options() -> None:
    batch = collate(corpus())
    with pytest.raises(InputError, match=r"pairs of a passage and a query, but .* single texts"):
        model()(TextBatch(batch.index, batch.tokens, batch.mask))
    for single in (FlatClassifier(VOCABULARY, 2, hidden_size=4), Tagger(VOCABULARY, 2)):
        with pytest.raises(InputError, match="single texts, but the corpus gives pairs"):
            single(batch)
    uniform = changed_net("pairs", plain_net("pairs", PairNet()), "uniform_net", head=None)
    assert uniform == plain_net("pairs", PairNet(attention="uniform"))
    with pytest.raises(InputError, match="head is 1"):
        changed_net("pairs", plain_net("pairs", PairNet()), "uniform_net", head=1)
    with pytest.raises(InputError, match="options of PairNet, which classification does not take"):
        plain_net("classification", PairNet())

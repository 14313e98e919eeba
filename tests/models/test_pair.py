"""Classifiers of pairs against a forward pass in NumPy, a text and a state at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import BOS, EOS, NOT_ALLOWED, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import read
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier, PairClassifier
from attnlight.models import SelfAttentionTagger as Tagger
from attnlight.models.build import build_model, changed_net, plain_net
from attnlight.models.options import PairNet
from attnlight.models.readout import readout_of
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out, left_out_logits, reencode
from tests.models.precision import require_bfloat16

Array = NDArray[np.float64]
Pair = tuple[list[int], list[int], list[int]]  # ids of passage and query, and allowed classes
VOCABULARY, CLASSES = 60, 4
DECODERS = ("tanh", "affine")
ENCODED = list(itertools.product(ENCODERS, DECODERS))
ATTENDED = list(itertools.product(ATTENTIONS, DECODERS))
DTYPES = {torch.float64: 1e-10, torch.float32: 2e-6}


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


def padded(rows: list[list[int]], padding: int) -> Tensor:
    size = max(map(len, rows)) + padding
    return torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])


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
    """A model far from its start, where attention is peaked and logits are large."""
    torch.manual_seed(1)
    sizes = {"embedding_size": 12, "hidden_size": 16} | options
    kinds = {"encoder": encoder, "attention": attention, "decoder": decoder}
    made = PairClassifier(VOCABULARY, classes, **kinds, **sizes)
    with torch.no_grad():
        for part in (made.encoder, made.query_encoder or made.encoder, made.attention):
            for parameter in part.parameters():
                parameter.mul_(2)
        made.decoder.weight.mul_(8)
        if made.output is not None:
            made.output.weight.mul_(8)
    return made.to(dtype).eval()


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def recurrent(part: dict[str, Array], words: Array) -> Array:
    """States (N, H) of one direction of an LSTM, or of a GRU, by its definition."""
    weights = [part[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    into, own, bias, own_bias = weights
    hidden, cell, states = np.zeros(own.shape[1]), np.zeros(own.shape[1]), []
    for word in words:
        given, kept = into @ word + bias, own @ hidden + own_bias
        if len(own) == 4 * len(hidden):
            i, f, g, o = np.split(given + kept, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
        else:
            (r, z, n), (kept_r, kept_z, kept_n) = np.split(given, 3), np.split(kept, 3)
            reset, update = sigmoid(r + kept_r), sigmoid(z + kept_z)
            hidden = (1 - update) * np.tanh(n + reset * kept_n) + update * hidden
        states.append(hidden)
    return np.stack(states)


def encoded(kind: str, part: dict[str, Array], words: Array) -> Array:
    """States (N, D) of a text's embeddings (N, E)."""
    if kind == "none":
        return words
    if kind == "average":
        return np.tanh(words @ part["projection.weight"].T + part["projection.bias"])
    if kind in ("bilstm", "bigru"):
        one, other = (
            {k.removeprefix(f"{name}."): v for k, v in part.items() if k.startswith(name)}
            for name in ("forwards", "backwards")
        )
        return np.concatenate([recurrent(one, words), recurrent(other, words[::-1])[::-1]], axis=1)
    states = []
    for number in range(len(part) // 2):
        kernel, bias = (part[f"convolutions.{number}.{name}"] for name in ("weight", "bias"))
        half = kernel.shape[2] // 2
        padding = np.zeros((half, words.shape[1]))
        around = np.concatenate([padding, words, padding])
        windows = [around[n : n + kernel.shape[2]] for n in range(len(words))]
        states.append(np.stack([np.einsum("oek,ke->o", kernel, w) + bias for w in windows]))
    return np.maximum(np.concatenate(states, axis=1), 0)


def naive(made: PairClassifier, pair: Pair, kind: str, query_kind: str) -> tuple[Array, Array]:
    """Logits (C,) and weights (N,) of one text, from the parameters alone."""
    values = {name: value.detach().double().numpy() for name, value in made.named_parameters()}

    def part(name: str) -> dict[str, Array]:
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}

    passage, query, allowed = pair
    own = "query_embedding.weight" in values
    embedding = values["embedding.weight"]
    asked = values["query_embedding.weight"] if own else embedding
    states = encoded(kind, part("encoder"), embedding[passage])
    query_part = part("query_encoder" if own else "encoder")
    query_states = encoded(query_kind, query_part, asked[query])
    words = [n for n, token in enumerate(query) if token not in (BOS, EOS)]
    if query_kind in ("bilstm", "bigru"):
        half = query_states.shape[1] // 2
        q = np.concatenate([query_states[-1, :half], query_states[0, half:]])
    elif query_kind in ("cnn", "conv"):
        q = query_states[words].max(0)
    else:
        q = query_states[words].mean(0)

    attention = part("attention")
    items = [n for n, token in enumerate(passage) if token not in (BOS, EOS)]
    scores = np.zeros(len(items))
    for place, n in enumerate(items):
        match type(made.attention).__name__:
            case "AdditiveAttention":
                key = attention["key.weight"] @ states[n] + attention["key.bias"]
                key += attention["query.weight"] @ q + attention["query.bias"]
                scores[place] = (attention["value.weight"] @ np.tanh(key))[0]
            case "DotAttention":
                scores[place] = states[n] @ q
            case "ScaledDotAttention":
                scores[place] = states[n] @ q / np.sqrt(len(q))
    weights = np.zeros(len(passage))
    weights[items] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    context = sum(weights[n] * states[n] for n in items)
    logits = values["decoder.weight"] @ context + values["decoder.bias"]
    logits = logits + values["query_decoder.weight"] @ q + values.get("query_decoder.bias", 0)
    if "output.weight" in values:
        logits = values["output.weight"] @ np.tanh(logits) + values["output.bias"]
    logits = np.concatenate([[0.0], logits]) if len(logits) == 1 else logits
    return np.where(np.isin(np.arange(len(logits)), allowed), logits, -1e4), weights


def check(made: PairClassifier, pairs: list[Pair], kind: str, query_kind: str, classes: int) -> Any:
    output = made(collate(pairs, (2, 1), classes))
    for row, pair in enumerate(pairs):
        logits, weights = naive(made, pair, kind, query_kind)
        np.testing.assert_allclose(output.logits[row], logits, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(output.weights[row, 0, : len(pair[0])], weights, atol=1e-10)
        assert (output.weights[row, 0, len(pair[0]) :] == 0).all()
    return output


@pytest.mark.parametrize("classes", [2, CLASSES])
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(("encoder", "decoder"), ENCODED)
@torch.no_grad()
def test_equals_a_loop_over_texts(encoder: str, decoder: str, share: bool, classes: int) -> None:
    made = model(encoder, decoder=decoder, classes=classes, share=share)
    output = check(made, corpus(classes=classes), encoder, encoder, classes)
    assert isinstance(made, AttentionModel)
    assert output.logits.shape == (7, classes)
    assert output.logits[output.logits != NOT_ALLOWED].std() > 0.3


@pytest.mark.parametrize(("attention", "decoder"), ATTENDED)
@torch.no_grad()
def test_each_attention_equals_a_loop_over_texts(attention: str, decoder: str) -> None:
    check(model("cnn", attention, decoder), corpus(), "cnn", "cnn", CLASSES)


@torch.no_grad()
def test_the_query_may_have_another_encoder() -> None:
    made = model("average", query_encoder="bilstm", hidden_size=8)
    check(made, corpus(), "average", "bilstm", CLASSES)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", ["bilstm", "cnn", "average"])
@torch.no_grad()
def test_another_query_and_other_answers_change_what_a_loop_says(
    encoder: str, decoder: str
) -> None:
    made, pairs = model(encoder, decoder=decoder), corpus()
    queries = [pair[1] for pair in pairs]
    others = [(p, q, a) for (p, _, a), q in zip(pairs, [*queries[1:], queries[0]], strict=True)]
    first, second = (check(made, those, encoder, encoder, CLASSES) for those in (pairs, others))
    several = torch.tensor([len(passage) > 3 for passage, _, _ in pairs])
    assert ((first.weights - second.weights).abs().amax((1, 2))[several] > 1e-3).all()
    freed = [(p, q, list(range(CLASSES))) for p, q, _ in pairs]
    third = check(made, freed, encoder, encoder, CLASSES)
    assert torch.equal(first.weights, third.weights)
    allowed = first.logits != NOT_ALLOWED
    assert torch.equal(first.logits[allowed], third.logits[allowed])
    assert not allowed.all()
    free = replace(collate(pairs), allowed_classes=None)
    torch.testing.assert_close(made(free).logits, third.logits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("encoder", "decoder"), ENCODED)
@torch.no_grad()
def test_padding_batch_size_and_order_change_nothing(
    encoder: str, decoder: str, dtype: torch.dtype
) -> None:
    made, pairs = model(encoder, decoder=decoder, dtype=dtype), corpus()
    together, tolerance = made(collate(pairs)), DTYPES[dtype]
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = made(collate([pairs[n] for n in order], (9, 4)))
    for place, n in enumerate(order):
        size = len(pairs[n][0])
        alone = made(collate([pairs[n]]))
        for other, row in ((together, n), (shuffled, place)):
            for found, expected in (
                (other.probabilities[row], alone.probabilities[0]),
                (other.weights[row, :, :size], alone.weights[0]),
                (other.memory["query"][row], alone.memory["query"][0]),
            ):
                torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
            bias = other.bias[row].softmax(-1)
            torch.testing.assert_close(bias, alone.bias[0].softmax(-1), rtol=0, atol=tolerance)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_affine_logits_are_weights_times_item_logits(encoder: str, attention: str) -> None:
    made = model(encoder, attention, "affine", dtype=torch.float32)
    batch = collate(corpus())
    output = made(batch)
    assert output.item_logits.shape == (7, 1, batch.tokens.shape[1], CLASSES)
    assert output.item_logits.isfinite().all()
    assert output.bias.shape == (7, CLASSES)
    found, allowed = read(output.weights, output.item_logits), batch.allowed_classes
    scale = output.logits.abs().clamp(min=1)
    assert ((found - output.logits).abs() / scale)[allowed].max() <= 1e-6
    for values in (output.logits, output.bias):
        assert (values[~allowed] == NOT_ALLOWED).all()
    assert (output.item_logits[:, 0].mT[~allowed] == NOT_ALLOWED).all()


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("classes", [2, CLASSES])
@torch.no_grad()
def test_readout_of_100_candidates_equals_replacing_the_weights(decoder: str, classes: int) -> None:
    made, batch = (
        model(decoder=decoder, classes=classes),
        collate(corpus(classes=classes), (1, 1), classes),
    )
    output = made(batch)
    candidates = torch.rand(len(batch), 1, 100, batch.tokens.shape[1]).double() * 2
    candidates[:, :, 0] = 0
    logits = made.readout(output, candidates)
    assert logits.shape == (len(batch), 100, classes)
    for k in range(100):
        given = made(batch, weights=candidates[:, :, k])
        assert torch.equal(given.weights, candidates[:, :, k])
        torch.testing.assert_close(logits[:, k], given.logits, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(logits[:, 0], output.bias)
    assert (output.item_logits is None) == (decoder == "tanh")
    rows = torch.tensor([4, 1, 2])
    some = made.readout(output.select(rows, rows), candidates[rows])
    torch.testing.assert_close(some, logits[rows])


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


@torch.no_grad()
def deleted(made: PairClassifier, pairs: list[Pair], size: int) -> Tensor:
    """Logits (B, N, C) without each word of each passage, one forward pass each."""
    logits = torch.full((len(pairs), size, CLASSES), torch.nan, dtype=torch.float64)
    for row, (passage, query, allowed) in enumerate(pairs):
        words = [n for n, token in enumerate(passage) if token not in (BOS, EOS)]
        for n in words if len(words) > 1 else []:
            shortened = (passage[:n] + passage[n + 1 :], query, allowed)
            logits[row, n] = made(collate([shortened])).logits[0]
    return logits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("boundaries", [True, False])
@pytest.mark.parametrize(("encoder", "decoder"), ENCODED)
@torch.no_grad()
def test_leave_one_out_equals_shortened_passages_with_the_same_query(
    encoder: str, decoder: str, boundaries: bool, dtype: torch.dtype
) -> None:
    made, pairs = model(encoder, decoder=decoder, dtype=dtype), corpus(boundaries)
    batch = collate(pairs, (3, 2))
    output = made(batch)
    expected = deleted(made, pairs, batch.tokens.shape[1])
    for found in (
        left_out_logits(made, batch, output, budget=40),
        reencode(made, batch, output, budget=90),
    ):
        assert torch.equal(found.isnan().all(-1), found.isnan().any(-1))
        probabilities = found.double().softmax(-1)
        torch.testing.assert_close(
            probabilities, expected.softmax(-1), rtol=0, atol=DTYPES[dtype], equal_nan=True
        )
    moved = leave_one_out(made, batch, output)[output.mask].nan_to_num()
    assert moved.max() > 0.05


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_leave_one_out_of_each_attention(attention: str) -> None:
    made, pairs = model("bigru", attention, "affine"), corpus()
    batch = collate(pairs)
    found = left_out_logits(made, batch, made(batch))
    expected = deleted(made, pairs, batch.tokens.shape[1])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


@torch.no_grad()
def test_leave_one_out_encodes_each_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, batch = model(), collate(corpus())
    output, texts = made(batch), []
    encoder = made.query_encoder
    assert encoder is not None
    encoder.register_forward_hook(lambda _, arguments, __: texts.append(len(arguments[0])))
    left_out_logits(made, batch, output, budget=50)
    assert sum(texts) == len(batch)


def guidance(batch: TextBatch) -> Tensor:
    """Weights that grow from item to item."""
    items = batch.attendable()
    weights = (items.cumsum(-1) * items).double()
    return (weights / weights.sum(-1, keepdim=True)).unsqueeze(1)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("decoder", DECODERS)
@torch.no_grad()
def test_a_guide_weights_words_that_are_encoded_alone(decoder: str, share: bool) -> None:
    net = plain_net(
        "pairs", PairNet(decoder=decoder, share=share, embedding_size=12, hidden_size=8)
    )
    changes = {"guide": "base", "context": None, "query_key": False}
    net = changed_net("pairs", net, "guided_net", **changes)
    spec = {"vocab_size": VOCABULARY, "classes": list("abcd")}
    torch.manual_seed(0)
    made: Any = build_model("pairs", net, spec, guided=True).double().eval()
    made.guide = guidance
    assert net["attention"] == "uniform"
    pairs = corpus()
    batch = collate(pairs, (1, 1))
    output = made(batch)
    assert torch.equal(output.weights, guidance(batch))
    assert not any(name.startswith("attention") for name, _ in made.named_parameters())
    found = left_out_logits(made, batch, output)
    for row, (passage, query, allowed) in enumerate(pairs):
        words = [n for n, token in enumerate(passage) if token not in (BOS, EOS)]
        alone = collate([(passage, query, allowed)])
        for n in words:
            kept = guidance(alone)
            kept[..., n] = 0
            expected = made(alone, weights=kept / kept.sum()).logits[0]
            if len(words) == 1:
                expected = torch.full_like(expected, torch.nan)
            torch.testing.assert_close(found[row, n], expected, equal_nan=True)
    assert found[~output.mask].isnan().all()
    assert output.memory["query"].shape == (len(pairs), 16)  # both directions of its BiLSTM


@torch.no_grad()
def test_uniform_attention_has_no_parameters() -> None:
    net = changed_net("pairs", plain_net("pairs", PairNet()), "uniform_net", head=None)
    assert net == plain_net("pairs", PairNet(attention="uniform"))
    made = model("cnn", "uniform")
    assert not list(made.attention.parameters())
    assert made(collate(corpus())).weights[2, 0, 1:-1].unique().numel() == 1


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


@pytest.mark.parametrize("decoder", DECODERS)
@torch.no_grad()
def test_a_passage_without_items_has_the_logits_of_an_empty_context(decoder: str) -> None:
    output = model(decoder=decoder)(collate([([BOS, EOS], [7], [0, 1]), ([9, 8], [7], [0, 1, 2])]))
    assert (output.weights[0] == 0).all()
    torch.testing.assert_close(output.logits[0], output.bias[0])


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_output_is_in_full_precision_under_autocast(encoder: str, decoder: str) -> None:
    require_bfloat16(encoder)
    made, batch = model(encoder, decoder=decoder, dtype=torch.float32), collate(corpus())
    full = made(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output: AttentionOutput = made(batch)
    tensors = [output.logits, output.weights, output.states, output.bias, output.memory["query"]]
    tensors += [v for v in (output.item_logits, output.memory.get("projected")) if v is not None]
    for values in tensors:
        assert values.dtype == torch.float32
    torch.testing.assert_close(output.logits, full.logits, rtol=0.05, atol=0.6)
    given = made.readout(output, output.weights[:, :, None])[:, 0]
    torch.testing.assert_close(given, output.logits, rtol=0.05, atol=0.3)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(("attention", "decoder"), ATTENDED)
def test_the_loss_reaches_every_parameter(attention: str, decoder: str, share: bool) -> None:
    made = model("cnn", attention, decoder, share=share).train()
    batch = replace(collate(corpus(), (2, 2)), allowed_classes=None)
    made(batch).logits[:, 1:].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


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


def test_embeddings_are_of_the_passage_and_start_from_the_normal_distribution() -> None:
    made, batch = model(), collate(corpus(), (2, 2))
    embeddings = made.embed(batch).detach().requires_grad_()
    output = made(batch, embeddings=embeddings)
    assert torch.equal(output.logits, made(batch).logits)
    output.probabilities.square().sum().backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[~batch.mask] == 0).all()
    fresh = PairClassifier(4000, 2, embedding_size=50)
    assert fresh.query_embedding is not None
    for table in (fresh.embedding.weight, fresh.query_embedding.weight):
        assert (table[0] == 0).all()
        assert abs(table[1:].std().item() - 1) < 0.01
    assert not torch.equal(fresh.embedding.weight, fresh.query_embedding.weight)


@pytest.mark.parametrize("decoder", DECODERS)
def test_dropout_acts_in_training_only(decoder: str) -> None:
    batch = collate(corpus())
    for name in ("dropout", "embedding_dropout"):
        made = model(decoder=decoder, **{name: 0.5})
        expected = model(decoder=decoder)(batch).logits
        assert torch.equal(made(batch).logits, expected)
        assert not torch.equal(made.train()(batch).logits, expected)


def test_mistakes() -> None:
    batch = collate(corpus())
    with pytest.raises(InputError, match="num_classes is 1"):
        model(classes=1)
    with pytest.raises(InputError, match=r"no option .decodr.*decoder"):
        model(decodr="tanh")
    with pytest.raises(InputError, match="dropout is 1"):
        model(dropout=1)
    with pytest.raises(InputError, match=r"encoder is cnn and query_encoder bilstm: leave query_"):
        model("cnn", query_encoder="bilstm", share=True)
    with pytest.raises(InputError, match=r"states of size 16 needs queries .* query_size is 32"):
        model("cnn", "scaled_dot", query_encoder="bilstm")
    with pytest.raises(InputError, match=r"pairs of a passage and a query, but .* single texts"):
        model()(TextBatch(batch.index, batch.tokens, batch.mask))
    for single in (FlatClassifier(VOCABULARY, 2, hidden_size=4), Tagger(VOCABULARY, 2)):
        with pytest.raises(InputError, match="single texts, but the corpus gives pairs"):
            single(batch)
    with pytest.raises(InputError, match="head is 1"):
        changed_net("pairs", plain_net("pairs", PairNet()), "uniform_net", head=1)
    with pytest.raises(InputError, match="options of PairNet, which classification does not take"):
        plain_net("classification", PairNet())

"""Relevance against a recursion in NumPy, layer by layer, and its conservation."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlight.attribution import LRP
from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional.attribution.relevance_rules import RelevanceRules
from attnlight.models import ENCODERS
from attnlight.models.transformer import sinusoids
from tests.attribution.relevance_recursion import Array, Node, Parameters, Rivals, Tape, part
from tests.attribution.scenes import rows, targets
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pairs
from tests.models.oracles import parameters
from tests.models.taggers import READOUTS, sentences, tagger
from tests.turns import by_turns

EPSILONS = [0.0, 1e-2]
KINDS = [name for name in ENCODERS if name != "orthogonal_lstm"]  # whose projection has no rule
# Relevance of the tokens, (N,) or (S, N), that of biases and query, and the logits.
Expected = tuple[Array, float, Array]


def check(
    model: Any,
    batch: TextBatch,
    epsilon: float,
    recursion: Callable[[AttentionOutput, int, Rivals], Expected],
) -> None:
    """The items' relevance, what is absorbed and what leaks, each against the recursion of a row."""
    output = model(batch).apply(Tensor.detach)
    target, runner_up = targets(output)
    scores, columns = LRP(epsilon=epsilon).explain(model, batch, output, target)
    pair = (output.logits.gather(-1, each[:, None]) for each in (target, runner_up))
    difference = torch.sub(*pair)[:, 0]
    assert difference.abs().max() > 0.1
    assert scores.abs().max() > 0.01
    for row, (text, _) in enumerate(rows(batch, output)):
        known = output.logits[row] > -1e3
        if known.sum() < 2:  # no choice of classes
            assert (scores[row] == 0).all()
            assert columns["leak"][row].isnan()
            continue
        tokens, absorbed, logits = recursion(output, row, (int(target[row]), int(runner_up[row])))
        known = known[-len(logits) :].numpy()
        np.testing.assert_allclose(logits[known], output.logits[row, -len(logits) :].numpy()[known])
        ids = batch.tokens[text].numpy()
        ids = ids[tuple(slice(size) for size in tokens.shape[: ids.ndim])]
        boundary = (ids == BOS) | (ids == EOS)
        absorbed += float(tokens[boundary].sum())
        tokens[boundary] = 0.0
        items = tokens if tokens.ndim == 1 else tokens.sum(-1)
        np.testing.assert_allclose(scores[row, : len(items)], items, rtol=1e-9, atol=1e-10)
        assert (scores[row, len(items) :] == 0).all()
        leak = difference[row] - items.sum() - absorbed
        np.testing.assert_allclose(columns["absorbed"][row], absorbed, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(columns["leak"][row], leak, rtol=0, atol=1e-10)
        assert (abs(leak) < 1e-10) == (epsilon == 0)


def nodes(values: Parameters, ids: list[int]) -> list[Node]:
    """The embeddings of words."""
    return [Node(word) for word in values["embedding.weight"][ids]]


def decoded(tape: Tape, values: Parameters, context: Node) -> Node:
    return tape.affine(context, values["decoder.weight"], values["decoder.bias"])


FLAT = [*itertools.product(KINDS, ["additive"]), ("bilstm", "dot"), ("cnn", "scaled_dot")]
NESTED = [*itertools.product(["bigru", "bilstm", "cnn", "average"], ["softmax"])]
NESTED += [("cnn", "sparsemax")]


def with_epsilons(cases: list[tuple[str, ...]], *classes: int) -> list[tuple[Any, ...]]:
    """Each case without and with a stabiliser, and by turns with the numbers of classes."""
    return by_turns([(*case, epsilon) for case in cases for epsilon in EPSILONS], classes)


@pytest.mark.parametrize(("kind", "attention", "epsilon", "classes"), with_epsilons(FLAT, 2, 4))
def test_flat_classifiers(kind: str, attention: str, epsilon: float, classes: int) -> None:
    model, texts = flat.model(kind, attention, classes=classes), flat.corpus()[:6]
    values = parameters(model)

    def recursion(output: AttentionOutput, row: int, rivals: Rivals) -> Expected:
        tape, words = Tape(epsilon), nodes(values, texts[row])
        weights = output.weights[row, 0, : len(words)].numpy()
        states = tape.encoded(kind, part(values, "encoder"), words)
        return tape.explain(decoded(tape, values, tape.mean(states, weights)), rivals, words)

    check(model, flat.collate(texts, padding=2), epsilon, recursion)


@pytest.mark.parametrize(("kind", "normalizer", "epsilon", "classes"), with_epsilons(NESTED, 2, 3))
def test_hierarchical_classifiers(kind: str, normalizer: str, epsilon: float, classes: int) -> None:
    model = hierarchical.model(kind, classes=classes, normalizer=normalizer)
    texts = hierarchical.corpus()[:5]
    values = parameters(model)
    parts = [part(values, f"{level}_encoder") for level in ("word", "sentence")]

    def recursion(output: AttentionOutput, row: int, rivals: Rivals) -> Expected:
        tape, words = Tape(epsilon), [nodes(values, sentence) for sentence in texts[row]]
        vectors = [
            tape.mean(tape.encoded(kind, parts[0], each), alpha[: len(each)])
            for alpha, each in zip(output.layers[0][row].numpy(), words, strict=False)  # type: ignore[index]
        ]
        weights = output.weights[row, 0, : len(words)].numpy()
        context = tape.mean(tape.encoded(kind, parts[1], vectors), weights)
        every = list(itertools.chain(*words))
        found, *rest = tape.explain(decoded(tape, values, context), rivals, every)
        apart = np.split(found, np.cumsum([len(each) for each in words])[:-1])
        size = max(map(len, words))
        return np.stack([np.pad(each, (0, size - len(each))) for each in apart]), *rest

    check(model, hierarchical.collate(texts, sentences=1, words=2), epsilon, recursion)


@pytest.mark.parametrize(
    ("kind", "attention", "decoder", "epsilon", "classes"),
    with_epsilons(
        [
            (*names, decoder)
            for names in (("bilstm", "additive"), ("cnn", "dot"))
            for decoder in pairs.DECODERS
        ],
        2,
        pairs.CLASSES,
    ),
)
def test_pairs(kind: str, attention: str, decoder: str, epsilon: float, classes: int) -> None:
    model = pairs.model(kind, attention, decoder, classes=classes)
    corpus, values = pairs.corpus(classes=classes), parameters(model)

    def recursion(output: AttentionOutput, row: int, rivals: Rivals) -> Expected:
        tape, words = Tape(epsilon), nodes(values, corpus[row][0])
        weights = output.weights[row, 0, : len(words)].numpy()
        states = tape.encoded(kind, part(values, "encoder"), words)
        read = decoded(tape, values, tape.mean(states, weights))
        query = values["query_decoder.weight"] @ output.memory["query"][row].numpy()
        asked = tape.constant(query + values.get("query_decoder.bias", 0))
        logits = tape.add(read, asked, epsilon=0)  # a sum of two, without a stabiliser
        if decoder == "tanh":
            activations = tape.gate(logits, np.tanh(logits.array))
            logits = tape.affine(activations, values["output.weight"], values["output.bias"])
        return tape.explain(logits, rivals, words)

    check(model, pairs.collate(corpus, (2, 1), classes), epsilon, recursion)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_transformer(epsilon: float) -> None:
    model, batch = tagger("study").double(), sentences((5, 1, 3))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # which the others leave as they start
                parameter.add_(0.4 * torch.randn_like(parameter))
    values = parameters(model)

    def recursion(output: AttentionOutput, row: int, rivals: Rivals) -> Expected:
        index, place = output.rows[row].tolist()
        text = index - 10
        tape = Tape(epsilon)
        words = [Node(x) for x in model.embed(batch)[text, batch.mask[text]].detach().numpy()]
        signal = sinusoids(len(words), torch.zeros(1, 8).double()).numpy()
        weights = output.weights[row, :, : len(words)].numpy()
        logits = tape.transformer(values, words, signal, weights, place)
        return tape.explain(logits, rivals, words)

    check(model, batch, epsilon, recursion)


@pytest.mark.parametrize(
    ("readout", "encoding", "layers", "normalizer"),
    by_turns(
        itertools.product(READOUTS, ["transformer", "bilstm", "tokens"], [1, 3]),
        ["softmax", "entmax15"],
    ),
)
def test_taggers_conserve_relevance(
    readout: str, encoding: str, layers: int, normalizer: str
) -> None:
    features = {"pos": 7, "case": 5, "characters": 30}
    options = {"encoder": encoding, "layers": layers, "normalizer": normalizer}
    model = tagger(readout, features=features, **options).double()
    batch = sentences()
    output = model(batch)
    target, runner_up = targets(output)
    scores, columns = LRP(epsilon=0.0).explain(model, batch, output, target)
    logits = output.logits.detach()
    difference = logits.gather(-1, target[:, None]) - logits.gather(-1, runner_up[:, None])
    total = scores.sum(-1) + columns["absorbed"]
    torch.testing.assert_close(total, difference.squeeze(-1), rtol=1e-10, atol=1e-10)
    assert columns["leak"].abs().max() < 1e-10 * difference.abs().max()
    assert scores.abs().max() > 0.1


class Unusual(nn.Module):
    """An encoder of one layer that may have no rule."""

    def __init__(self, layer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, embeddings: Tensor, _: Tensor) -> Tensor:
        states = self.layer(embeddings)
        return states[0] if isinstance(states, tuple) else states


def test_states_that_are_projected_are_refused() -> None:
    model, batch = flat.model("orthogonal_lstm"), flat.collate(flat.corpus()[:3])
    output = model(batch)
    with pytest.raises(InputError, match=r"lrp has no rule for encoder \(OrthogonalLSTM\), which"):
        LRP()(model, batch, output, output.logits.argmax(-1))


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.Sigmoid(), "encoder.layer (Sigmoid), which computes 'sigmoid'"),
        (nn.Sequential(nn.Tanh(), nn.ELU()), "encoder.layer.1 (ELU), which computes 'elu'"),
        (nn.LSTM(12, 12, 2, batch_first=True), "encoder.layer (LSTM), which computes 'lstm'"),
        (nn.GRU(12, 6, bidirectional=True), "encoder.layer (GRU), which computes 'gru'"),
        (nn.RNN(12, 12, batch_first=True), "encoder.layer (RNN), which computes 'rnn_tanh'"),
        (lambda states: states * states, "encoder (Unusual), which computes 'mul'"),
        (lambda states: 1 / states + torch.ones(1) / states, "encoder (Unusual), which computes"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unknown_layer_is_refused_by_its_name(
    layer: Callable[[Tensor], Any], named: str
) -> None:
    model, batch = flat.model("none"), flat.collate(flat.corpus()[:3])
    model.encoder = Unusual(layer).double()  # type: ignore[assignment]
    output = model(batch)
    with pytest.raises(InputError) as error:
        LRP()(model, batch, output, output.logits.argmax(-1))
    message = str(error.value)
    assert named in message
    assert "layers that have one: Linear, Conv1d, LSTM and GRU" in message
    assert message.count(".") - named.count(".") == 1


def test_an_unknown_layer_that_no_relevance_reaches_is_no_obstacle() -> None:
    """Attention is held fixed, whatever computes it."""
    model, batch = hierarchical.model("none"), hierarchical.collate(hierarchical.corpus()[:3])
    output = model(batch)
    target = output.logits.argmax(-1)
    expected = LRP()(model, batch, output, target)
    score = model.word_attention.score
    model.word_attention.score = lambda states, query: (  # type: ignore[method-assign]
        score(states, query).exp().log()
    )
    torch.testing.assert_close(LRP()(model, batch, output, target), expected)


@pytest.mark.parametrize("layer", [nn.GELU(), nn.SiLU(), nn.ReLU(inplace=True), nn.Tanh()])
def test_a_nonlinearity_passes_relevance_through(layer: nn.Module) -> None:
    """Of a state f(w) of a word w, in proportion to w (f(w) / w); at 0 by the slope there."""
    model, batch = flat.model("none", "uniform"), flat.collate([[4, 5], [6, 7]])
    model.encoder = Unusual(layer)  # type: ignore[assignment]
    with torch.no_grad():
        model.embedding.weight[5] = 0.0
    output = model(batch)
    found = LRP(epsilon=0.0)(model, batch, output, torch.tensor([1, 1]))
    states = layer(model.embed(batch).detach().clone())
    expected = (states * model.decoder.weight[0]).sum(-1).detach() / 2
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert found[0, 1] == 0


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks_of_any_options(
    kind: type[nn.LSTM | nn.GRU], bias: bool, batch_first: bool
) -> None:
    """A given state is that of words before, read by a plain network with the same parameters."""
    torch.manual_seed(0)
    network = kind(5, 4, bias=bias, batch_first=batch_first).double().requires_grad_(False)
    plain = kind(5, 4, batch_first=True).double().requires_grad_(False)
    zeros = {name: torch.zeros_like(values) for name, values in plain.state_dict().items()}
    plain.load_state_dict(zeros | network.state_dict())
    before = torch.randn(3, 2, 5).double()
    start = plain(before)[1]

    def joined(states: Tensor, last: Any) -> Tensor:
        ends = last if kind is nn.LSTM else [last]
        return torch.cat([part.flatten() for part in (states, *ends)])

    def whole(words: Tensor) -> Tensor:
        states, last = network(words if batch_first else words.transpose(0, 1), start)
        return joined(states if batch_first else states.transpose(0, 1), last)

    words = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    rules = RelevanceRules(0.0, ValueError)
    with rules:
        found = whole(words)
    with RelevanceRules(0.0, ValueError):
        states, last = plain(torch.cat([before, words], 1))
        expected = joined(states[:, 2:], last)
    torch.testing.assert_close(found, whole(words), rtol=1e-10, atol=1e-10)
    seeds = torch.randn_like(found)
    gradients = [
        torch.autograd.grad((values * seeds).sum(), words)[0] for values in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
    assert gradients[0].abs().max() > 0.1
    # Another pass computes the same linear model.
    other = torch.randn_like(words).detach()
    rules.replay()
    with torch.no_grad(), rules:
        moved = whole(other)
    change = (gradients[0] * (other - words)).sum()
    torch.testing.assert_close((moved * seeds).sum(), (found * seeds).sum() + change)


def test_packed_sequences_are_refused() -> None:
    network = nn.LSTM(5, 4).requires_grad_(False)
    words = torch.randn(6, 3, 5, requires_grad=True)
    with RelevanceRules(0.0, ValueError):
        packed = nn.utils.rnn.pack_padded_sequence(words, torch.tensor([6, 4, 2]))
        states, _ = network(packed)
    with pytest.raises(ValueError, match="lstm"):
        states.data.sum().backward()

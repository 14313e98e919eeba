"""Relevance through models of transformers: a recursion in NumPy, conservation, padding and words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import Tensor

from attnlight.attribution import LRP
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from tests.attribution.relevance_recursion import Array, Node, Parameters, Tape, part
from tests.attribution.scenes import targets
from tests.bases import one_text
from tests.models.oracles import parameters

pytest.importorskip("transformers")

from attnlight.huggingface import HuggingFaceClassifier, HuggingFaceTagger
from tests.huggingface.models import CONFIGURATIONS, build
from tests.huggingface.test_classifier import pooled_classifier, texts
from tests.huggingface.test_words import words

FIVE = (
    "bert",
    "distilbert",
    "roberta",
    "gpt2",
    "llama",
)  # and others, where conservation is tested
# Of the RMS norms of Llama, which are in single precision whatever the model is in.
NEAR = {"rtol": 1e-5, "atol": 1e-5}


def built(name: str, **options: Any) -> Any:
    """A small random model in double precision, with norms and biases far from their start."""
    net = build(name, "AutoModelForSequenceClassification", num_labels=3, **options).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return net


def classifier(name: str, **options: Any) -> Any:
    return HuggingFaceClassifier(built(name), **{"special_tokens": "attended", **options}).eval()


def linear(values: Parameters, name: str) -> tuple[Array, Array | None]:
    return values[f"{name}.weight"], values.get(f"{name}.bias")


def gelu(node: Node, tanh: bool = False) -> Array:
    z = node.array
    inner = np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)) if tanh else erf(z / np.sqrt(2))
    return z * (1 + inner) / 2


def bert(tape: Tape, values: Parameters, words: list[Node], weights: list[Array]) -> Node:
    table, rest = part(values, "bert.embeddings"), part(values, "bert.encoder.layer")
    types = table["token_type_embeddings.weight"][0]
    places = table["position_embeddings.weight"] + types
    summed = [tape.add(w, tape.constant(p), epsilon=0) for w, p in zip(words, places, strict=False)]
    states = [tape.norm(node, part(table, "LayerNorm"), 1e-12) for node in summed]
    for number, attention in enumerate(weights):
        own = part(rest, str(number))
        maps = linear(own, "attention.self.value"), linear(own, "attention.output.dense")
        added = tape.attended(states, attention, *maps)
        for name, norm in (("", "attention.output"), ("intermediate", "output")):
            if name:  # the feed-forward part
                inner = [tape.affine(node, *linear(own, f"{name}.dense")) for node in states]
                inner = [tape.gate(node, gelu(node)) for node in inner]
                added = [tape.affine(node, *linear(own, "output.dense")) for node in inner]
            sums = [tape.add(*pair, epsilon=0) for pair in zip(added, states, strict=True)]
            states = [tape.norm(node, part(own, f"{norm}.LayerNorm"), 1e-12) for node in sums]
    pooled = tape.affine(states[0], *linear(values, "bert.pooler.dense"))
    return tape.affine(tape.gate(pooled, np.tanh(pooled.array)), *linear(values, "classifier"))


def gpt2(tape: Tape, values: Parameters, words: list[Node], weights: list[Array]) -> Node:
    places, rest = values["transformer.wpe.weight"], part(values, "transformer.h")
    states = [tape.add(w, tape.constant(p), epsilon=0) for w, p in zip(words, places, strict=False)]
    for number, attention in enumerate(weights):
        own = part(rest, str(number))
        normal = [tape.norm(node, part(own, "ln_1")) for node in states]
        weight, bias = linear(own, "attn.c_attn")  # of queries, keys and values
        value = np.split(weight, 3, axis=1)[2].T, np.split(bias, 3)[2]  # type: ignore[arg-type]
        weight, bias = linear(own, "attn.c_proj")
        added = tape.attended(normal, attention, value, (weight.T, bias))
        states = [tape.add(*pair, epsilon=0) for pair in zip(states, added, strict=True)]
        inner = [tape.norm(node, part(own, "ln_2")) for node in states]
        for name in ("mlp.c_fc", "mlp.c_proj"):
            weight, bias = linear(own, name)
            inner = [tape.affine(node, weight.T, bias) for node in inner]
            if name == "mlp.c_fc":
                inner = [tape.gate(node, gelu(node, tanh=True)) for node in inner]
        states = [tape.add(*pair, epsilon=0) for pair in zip(states, inner, strict=True)]
    last = tape.norm(states[-1], part(values, "transformer.ln_f"))
    return tape.affine(last, values["score.weight"])


def llama(tape: Tape, values: Parameters, words: list[Node], weights: list[Array]) -> Node:
    rest, states, eps = part(values, "model.layers"), words, 1e-6
    for number, attention in enumerate(weights):
        own = part(rest, str(number))
        normal = [tape.rms_norm(node, own["input_layernorm.weight"], eps) for node in states]
        grouped = own["self_attn.v_proj.weight"]
        shared = grouped.reshape(-1, 8, grouped.shape[1])  # heads of size 8, each for two queries
        value = np.repeat(shared, len(attention) // len(shared), axis=0).reshape(-1, len(grouped.T))
        output = own["self_attn.o_proj.weight"], None
        added = tape.attended(normal, attention, (value, None), output)
        states = [tape.add(*pair, epsilon=0) for pair in zip(states, added, strict=True)]
        fed = []
        for node in states:
            inner = tape.rms_norm(node, own["post_attention_layernorm.weight"], eps)
            gate = tape.affine(inner, own["mlp.gate_proj.weight"])
            gate = tape.gate(gate, gate.array / (1 + np.exp(-gate.array)))
            both = tape.product(gate, tape.affine(inner, own["mlp.up_proj.weight"]))
            fed.append(tape.affine(both, own["mlp.down_proj.weight"]))
        states = [tape.add(*pair, epsilon=0) for pair in zip(states, fed, strict=True)]
    last = tape.rms_norm(states[-1], values["model.norm.weight"], eps)
    return tape.affine(last, values["score.weight"])


Recursion = Callable[[Tape, Parameters, list[Node], list[Array]], Node]


@pytest.mark.parametrize("epsilon", [0.0, 1e-2])
@pytest.mark.parametrize("recursion", [bert, gpt2, llama], ids=lambda value: value.__name__)
def test_relevance_is_that_of_a_recursion(recursion: Recursion, epsilon: float) -> None:
    name = recursion.__name__
    model, batch, values = classifier(name), texts(), parameters(built(name))
    eager = built(name, attn_implementation="eager")
    output = model(batch).apply(Tensor.detach)
    target, runner_up = targets(output)
    scores, columns = LRP(epsilon=epsilon).explain(model, batch, output, target)
    assert scores.abs().max() > 0.1
    for row, length in enumerate(batch.mask.sum(-1).tolist()):
        tape, ids = Tape(epsilon), batch.tokens[row, None, :length]
        with torch.no_grad():
            weights = [x[0].numpy() for x in eager(ids, output_attentions=True).attentions]
        tokens = [Node(x) for x in model.embed(batch)[row, :length].detach().numpy()]
        pair = int(target[row]), int(runner_up[row])
        logits = recursion(tape, values, tokens, weights)
        found, absorbed, logits_by_hand = tape.explain(logits, pair, tokens)
        np.testing.assert_allclose(logits_by_hand, output.logits[row].numpy(), **NEAR)
        np.testing.assert_allclose(scores[row, :length].numpy(), found, **NEAR)
        np.testing.assert_allclose(columns["absorbed"][row], absorbed, **NEAR)
        leak = logits_by_hand[pair[0]] - logits_by_hand[pair[1]] - found.sum() - absorbed
        np.testing.assert_allclose(columns["leak"][row], leak, **NEAR)
        assert epsilon == 0 or abs(leak) > 1e-4


def conserved(model: Any, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """Scores and output masks, after a check that relevance sums to the difference of logits."""
    output = model(batch).apply(Tensor.detach)
    target, runner_up = targets(output)
    scores, columns = LRP(epsilon=0.0).explain(model, batch, output, target)
    pair = (output.logits.gather(-1, each[:, None])[:, 0] for each in (target, runner_up))
    total = scores.sum(-1) + columns["absorbed"]
    torch.testing.assert_close(total, torch.sub(*pair), rtol=1e-6, atol=1e-6)
    assert columns["leak"].abs().max() < 1e-6
    assert scores.abs().max() > 0.1
    return scores, output.mask


@pytest.mark.parametrize("name", [*FIVE, *sorted({*CONFIGURATIONS} - {*FIVE})])
def test_relevance_is_conserved(name: str) -> None:
    conserved(classifier(name), texts())
    conserved(classifier(name, items="words", special_tokens="fixed"), words())


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_relevance_is_conserved_by_other_readings(name: str) -> None:
    conserved(pooled_classifier(name).double(), texts())
    net = build(name, "AutoModelForTokenClassification", num_labels=3).double()
    conserved(HuggingFaceTagger(net).eval(), texts())


@pytest.mark.parametrize("name", FIVE)
def test_padding_and_batches_change_nothing(name: str) -> None:
    model, batch, left = classifier(name), texts(), texts("left")
    left.tokens[left.mask] = batch.tokens[batch.mask]
    whole, mask = conserved(model, batch)
    other, other_mask = conserved(model, left)
    torch.testing.assert_close(other[other_mask], whole[mask], **NEAR)
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        output = model(batch).apply(Tensor.detach)
        alone = one_text(batch, text).trim(length)
        target = targets(output)[0][text, None]
        found = LRP(epsilon=0.0)(model, alone, model(alone).apply(Tensor.detach), target)
        torch.testing.assert_close(found[0], whole[text, :length], **NEAR)


def test_an_activation_without_a_rule_is_refused() -> None:
    net = build("gpt2", "AutoModelForSequenceClassification", activation_function="mish")
    model, batch = HuggingFaceClassifier(net).eval(), texts()
    output = model(batch)
    with pytest.raises(
        InputError, match=r"h\.1\.mlp\.act \(MishActivation\), which computes 'mish'"
    ):
        LRP()(model, batch, output, output.logits.argmax(-1))

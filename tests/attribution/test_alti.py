"""ALTI against loops over tokens and heads, from a full pass and a model's own weights."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import ALTI
from attnlight.attribution.alti import AttentionBlock, attention_block
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.probing.layers import layer_calls
from tests.attribution.test_lrp_transformers import built as far_from_start
from tests.bases import one_text
from tests.models.taggers import sentences, tagger

pytest.importorskip("transformers")

from attnlight.huggingface import HuggingFaceClassifier, HuggingFaceTagger
from tests.huggingface.models import GROUPED, HEADS, build
from tests.huggingface.test_classifier import pooled_classifier, texts
from tests.huggingface.test_words import words

PLACES = {  # of layers, and in them of the attention block's output
    "bert": ("bert.encoder.layer", "attention"),
    "roberta": ("roberta.encoder.layer", "attention"),
    "distilbert": ("distilbert.transformer.layer", "sa_layer_norm"),
    "gpt2": ("transformer.h", "ln_2"),
    "llama": ("model.layers", "post_attention_layernorm"),
}
POST_NORM = ("bert", "roberta", "distilbert")
EXACT = {"atol": 1e-10, "rtol": 1e-9}
# Of the RMS norms of Llama, which are in single precision whatever the model is in.
NEAR = {"atol": 1e-5, "rtol": 1e-5}


def built(name: str, **options: Any) -> Any:
    """`far_from_start` with the deviations of a post-norm model's norms far from their variance."""
    if name in ("bert", "roberta"):
        options["layer_norm_eps"] = 0.1
    return far_from_start(name, **options)


def classifier(name: str, **options: Any) -> Any:
    return HuggingFaceClassifier(built(name), special_tokens="attended", **options).eval()


def projections(name: str, layer: Any, states: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Of one text (N, D): values (N, D'), the output map (D, D') and its bias, and the norm that follows."""
    if name in ("bert", "roberta"):
        own, out = layer.attention.self, layer.attention.output
        return own.value(states), out.dense.weight, out.dense.bias, out.LayerNorm
    if name == "distilbert":
        own = layer.attention
        return own.v_lin(states), own.out_lin.weight, own.out_lin.bias, layer.sa_layer_norm
    if name == "gpt2":
        values = layer.attn.c_attn(layer.ln_1(states)).chunk(3, dim=-1)[2]
        return values, layer.attn.c_proj.weight.T, layer.attn.c_proj.bias, None
    normal = layer.input_layernorm(states)
    size = GROUPED["head_dim"]
    each = layer.self_attn.v_proj(normal).split(size, dim=-1)
    repeated = [each[head * len(each) // HEADS] for head in range(HEADS)]
    weight = layer.self_attn.o_proj.weight
    return torch.cat(repeated, dim=-1), weight, torch.zeros(len(weight)).double(), None


@torch.no_grad()
def blocks_by_hand(name: str, net: Any, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Transformed vectors (N, N, D) of each layer and the outputs of its attention block (N, D)."""
    seen: list[Tensor] = []
    places, block = PLACES[name]
    layers = net.get_submodule(places)
    hooks = []
    for layer in layers:
        module = layer.get_submodule(block)
        if (
            name in POST_NORM
        ):  # the module's output; of the others the input of the norm that reads it
            hooks.append(
                module.register_forward_hook(
                    lambda *call: seen.append(
                        call[-1][0] if isinstance(call[-1], tuple) else call[-1]
                    )
                )
            )
        else:
            hooks.append(module.register_forward_pre_hook(lambda _, args: seen.append(args[0])))
    found = net(ids[None], output_hidden_states=True, output_attentions=True)
    for hook in hooks:
        hook.remove()
    for number, layer in enumerate(layers):
        states, weights = found.hidden_states[number][0], found.attentions[number][0]
        values, output_map, bias, norm = projections(name, layer, states)
        size, length = values.shape[1] // HEADS, len(ids)
        vectors = torch.zeros(length, length, states.shape[1], dtype=torch.float64)
        for query in range(length):
            for item in range(length):
                for head in range(HEADS):
                    part = slice(head * size, (head + 1) * size)
                    added = output_map[:, part] @ values[item, part]
                    vectors[query, item] += weights[head, query, item] * added
            vectors[query, query] += states[query]
        output = seen[number][0] if seen[number].ndim == 3 else seen[number]
        total = vectors.sum(1) + bias
        if norm is None:
            torch.testing.assert_close(total, output, **NEAR)
        else:
            deviation = (total.var(-1, correction=0) + norm.eps).sqrt()
            centre = torch.eye(len(bias)).double() - 1 / len(bias)
            linear = torch.diag(norm.weight) @ centre
            vectors = vectors @ linear.T / deviation[:, None, None]
            rest = bias @ linear.T / deviation[:, None] + norm.bias
            # All vectors and the biases sum to what the model computes.
            torch.testing.assert_close(vectors.sum(1) + rest, output, **EXACT)
        yield vectors, output


def rollout_by_hand(name: str, net: Any, ids: Tensor) -> Tensor:
    product = torch.eye(len(ids), dtype=torch.float64)
    for vectors, output in blocks_by_hand(name, net, ids):
        shares = torch.zeros_like(product)
        for query, whole in enumerate(output):
            for item in range(len(ids)):
                distance = (whole - vectors[query, item]).abs().sum()
                shares[query, item] = max(0.0, float(whole.abs().sum() - distance))
            shares[query] /= shares[query].sum()
        product = shares @ product
    return product


def explained(model: Any, batch: TextBatch) -> Tensor:
    output = model(batch)
    return ALTI()(model, batch, output, output.logits.argmax(-1))


@pytest.mark.parametrize("name", PLACES)
def test_shares_are_those_of_loops(name: str) -> None:
    model, batch, eager = classifier(name), texts(), built(name, attn_implementation="eager")
    found = explained(model, batch)
    near = NEAR if name == "llama" else EXACT
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        expected = rollout_by_hand(name, eager, batch.tokens[text, :length])
        read = 0 if name in POST_NORM else length - 1
        torch.testing.assert_close(found[text, :length], expected[read], **near)
        assert not found[text, length:].any()
    assert found.std() > 0.01
    assert ((found > 0).sum(-1) > 2).all()


@pytest.mark.parametrize("name", PLACES)
def test_transformed_vectors_and_biases_are_the_blocks_output(name: str) -> None:
    """Of post-norm models all is times the deviation of the norm's input."""
    model, batch, eager = classifier(name), texts(), built(name, attn_implementation="eager")
    alone = one_text(batch, 2)
    by_hand = list(blocks_by_hand(name, eager, alone.tokens[0]))
    calls = layer_calls(model, alone, "alti")
    assert len(calls) == len(by_hand)
    for call, (vectors, output) in zip(calls, by_hand, strict=True):
        block = attention_block(call)
        found = block.transformed(torch.arange(len(output)))[0].transpose(0, 1)
        scale = torch.ones(len(output), 1).double()
        if name in POST_NORM:
            scale = block.output[0].std(-1, keepdim=True) / output.std(-1, keepdim=True)
        near = NEAR if name == "llama" else EXACT
        torch.testing.assert_close(found / scale.unsqueeze(-1), vectors, **near)
        torch.testing.assert_close(block.output[0] / scale, output, **near)
        rest = (
            output - found.sum(1) / scale
        )  # the biases, of pre-norm models the same of all tokens
        if name not in POST_NORM:
            torch.testing.assert_close(rest, rest[:1].expand_as(rest), **near)


@pytest.mark.parametrize("name", PLACES)
def test_padding_and_batches_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, left = classifier(name), texts(), texts("left")
    left.tokens[left.mask] = batch.tokens[batch.mask]
    whole, near = explained(model, batch), NEAR if name == "llama" else EXACT
    torch.testing.assert_close(explained(model, left)[left.mask], whole[batch.mask], **near)
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        found = explained(model, one_text(batch, text))
        torch.testing.assert_close(found[0], whole[text, :length], **near)
    monkeypatch.setattr("attnlight.attribution.alti._PAIRS", 2 * 81)  # two texts at once
    monkeypatch.setattr(
        "attnlight.attribution.alti._ELEMENTS", 4 * 2 * 9 * 32
    )  # four of their tokens
    torch.testing.assert_close(explained(model, batch), whole, **near)


def test_blocks_of_words_may_differ_in_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier("bert", items="words")
    whole = explained(model, words())
    monkeypatch.setattr("attnlight.attribution.alti._PAIRS", 1)  # a text at once
    torch.testing.assert_close(explained(model, words()), whole, **EXACT)


def test_contributions_by_hand() -> None:
    """A part that is opposed to the output has none, nor has rounding of tokens without weight."""
    block = AttentionBlock(
        weights=torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]).double(),
        values=torch.tensor([[[[2.0, 0.0]], [[-4.0, 1.0]], [[1.0, 1.0]]]]).double(),
        states=torch.tensor([[[1.0, 1.0], [4.0, 0.0], [0.1, 0.1]]]).double(),
        output=torch.tensor([[[3.0, 1.5], [3.0, 0.5], [0.0, 1.0]]]).double(),
    )
    # Of the second token the parts are (1, 0) and (2, 0.5); of the third (0.4, 0), (-1.2, 0.3), (0.6, 0.6).
    expected = [[4.0, 0.0, 0.0], [1.0, 2.5, 0.0], [0.0, 0.0, 0.0]]
    found = block.contributions()[0]
    torch.testing.assert_close(found, torch.tensor(expected).double())
    opposed = dataclasses.replace(block, output=-block.output).contributions()
    assert not opposed.any()


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_taggers_read_the_row_of_each_token(name: str) -> None:
    net = build(name, "AutoModelForTokenClassification", num_labels=3).double()
    eager = build(
        name, "AutoModelForSequenceClassification", attn_implementation="eager", num_labels=3
    ).double()
    eager.base_model.load_state_dict(net.base_model.state_dict(), strict=False)
    model, batch = HuggingFaceTagger(net, special_tokens="attended").eval(), texts()
    output = model(batch)
    found = ALTI()(model, batch, output, output.logits.argmax(-1))
    for row, (index, place) in enumerate(output.rows.tolist()):
        text = index - 3
        length = int(batch.mask[text].sum())
        expected = rollout_by_hand(name, eager, batch.tokens[text, :length])[place]
        expected = expected * output.mask[row, :length]
        torch.testing.assert_close(found[row, :length], expected, **NEAR)


def test_attention_above_the_states_reads_all_rows() -> None:
    model, batch = pooled_classifier("bert").double(), texts()
    eager = build(
        "bert", "AutoModelForSequenceClassification", attn_implementation="eager"
    ).double()
    eager.bert.load_state_dict(model.encoder.model.state_dict(), strict=False)
    eager.bert.set_input_embeddings(torch.nn.Embedding.from_pretrained(model.embedding.weight))
    output, found = model(batch), explained(model, batch)
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        product = rollout_by_hand("bert", eager, batch.tokens[text, :length])
        expected = output.weights[text, 0, :length].detach() @ product
        expected = expected * output.mask[text, :length]
        torch.testing.assert_close(found[text, :length], expected, **NEAR)


def test_layers_that_add_otherwise_are_refused() -> None:
    for name in ("gemma3", "gpt_neox"):
        model, batch = HuggingFaceClassifier(built(name)).eval(), texts()
        with pytest.raises(InputError, match=r"alti needs layers that add .* layer 0 \(G"):
            explained(model, batch)
    model, batch = tagger(layers=2).double(), sentences()
    with pytest.raises(InputError, match=r"layer 1 \(SelfAttention\) does otherwise"):
        explained(model, batch)

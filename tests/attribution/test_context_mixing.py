"""Methods that read all layers of a transformer, each against its formula restated with full passes."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.attribution import AttentionFlow, Attribution, GradientRollout, Rollout, ValueZeroing
from attnlight.attribution.attention_flow import flows
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional import log_odds
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.probing.interception import intercept
from attnlight.probing.replay import layer_modules
from tests.models import test_classifier as flat
from tests.models.taggers import sentences, tagger

networkx = pytest.importorskip("networkx")
NAMES = ("bert", "roberta", "gpt2", "llama")
METHODS = (AttentionFlow, GradientRollout, ValueZeroing)


def scene(name: str) -> tuple[Any, TextBatch]:
    if name == "tagger":
        return tagger(layers=2).double(), sentences()
    pytest.importorskip("transformers")
    from attnlight.huggingface import HuggingFaceClassifier, HuggingFacePooledClassifier
    from tests.huggingface.models import build
    from tests.huggingface.test_classifier import texts

    if name == "pooled":
        return HuggingFacePooledClassifier(build("bert"), 3).double().eval(), texts()
    net = build(name, "AutoModelForSequenceClassification", num_labels=3).double()
    return HuggingFaceClassifier(net, special_tokens="attended").eval(), texts()


def read(model: Any, batch: TextBatch, output: Any) -> list[Tensor]:
    """What each row reads of the last states: its own, the head's token, or all by attention."""
    found = []
    for row, text in enumerate(texts_of_rows(output.rows).tolist()):
        share = torch.zeros(batch.mask.shape[1], dtype=torch.float64)
        if hasattr(model, "read_tokens"):
            share[model.read_tokens(batch)[text]] = 1
        elif len(output.rows) > len(batch):
            share[output.rows[row, 1]] = 1
        else:
            share = output.weights[row].double().mean(0)
        found.append(share.detach())
    return found


def attentions(model: Any, batch: TextBatch) -> list[Tensor]:
    with torch.no_grad(), intercept(record="all") as found:
        model(batch)
    return [found[layer].weights.double() for layer in sorted(found)]


def whole_pass(model: Any, batch: TextBatch) -> None:
    """A pass through all layers: that of the head's own reading ends before the last layer does."""
    if hasattr(model, "transformer"):
        model.transformer(batch.tokens, attention_mask=batch.mask.long())
    else:
        model(batch)


def scores(method: Attribution, model: Any, batch: TextBatch) -> tuple[Any, Tensor]:
    output = model(batch)
    return output, method(model, batch, output, output.logits.argmax(-1))


@pytest.mark.parametrize("name", [*NAMES, "tagger", "pooled"])
def test_value_zeroing(name: str) -> None:
    model, batch = scene(name)
    output, found = scores(ValueZeroing(), model, batch)
    modules, text_of = layer_modules(model), texts_of_rows(output.rows).tolist()
    changes = []
    for layer, module in enumerate(modules):
        states: list[Tensor] = []
        hook = module.register_forward_hook(
            lambda *call, states=states: states.append(
                call[-1][0] if isinstance(call[-1], tuple) else call[-1]
            )
        )
        run = partial(whole_pass, model, batch)
        with torch.no_grad():
            with intercept(record="all"):
                run()
            for token in range(batch.mask.shape[1]):

                def zeroed(weights: Tensor, _: Tensor, token: int = token) -> Tensor:
                    changed = weights.clone()
                    changed[..., token] = 0
                    return changed

                with intercept(patch={layer: zeroed}):
                    run()
        hook.remove()
        normal, *others = (part for part in states if part.shape[1] == batch.mask.shape[1])
        distance = [1 - torch.cosine_similarity(o, normal, dim=-1) for o in others]
        changes.append(torch.stack(distance[: batch.mask.shape[1]], dim=-1).double())
    for row, share in enumerate(read(model, batch, output)):
        for matrix in reversed(changes):
            own_rows = matrix[text_of[row]]
            total = own_rows.sum(-1, keepdim=True)
            share = share @ torch.where(total > 0, own_rows / total, torch.eye(len(share)).double())
        kept = output.mask[row]
        torch.testing.assert_close(found[row][kept], share[kept], atol=1e-6, rtol=1e-5)
    assert found.std() > 1e-3


@pytest.mark.parametrize("name", [*NAMES, "tagger", "pooled"])
def test_gradient_rollout(name: str) -> None:
    model, batch = scene(name)
    output, found = scores(GradientRollout(), model, batch)
    target, text_of = output.logits.argmax(-1), texts_of_rows(output.rows).tolist()
    for row, share in enumerate(read(model, batch, output)):
        with intercept(record="all") as layers:
            odds = log_odds(model(batch).logits, target)[row]
        weights = [layers[layer].weights for layer in sorted(layers)]
        gradients = torch.autograd.grad(odds, weights)
        product = torch.eye(len(share), dtype=torch.float64)
        for weight, gradient in zip(weights, gradients, strict=True):
            mean = torch.stack(
                [
                    (w * g).clamp(min=0)
                    for w, g in zip(weight[text_of[row]], gradient[text_of[row]], strict=True)
                ]
            ).mean(0)
            product = product + mean.double() @ product
        kept = output.mask[row]
        torch.testing.assert_close(
            found[row][kept], (share @ product)[kept].detach(), atol=1e-8, rtol=1e-6
        )
    assert found.std() > 1e-6


@pytest.mark.parametrize("name", ["bert", "gpt2", "pooled"])
def test_attention_flow(name: str) -> None:
    model, batch = scene(name)
    output, found = scores(AttentionFlow(), model, batch)
    layers = attentions(model, batch)
    for row, share in enumerate(read(model, batch, output)[:3]):
        graph = networkx.DiGraph()
        places = batch.mask[row].nonzero().flatten().tolist()
        for token in places:
            graph.add_edge("read", (len(layers), token), capacity=float(share[token]))
        for number, weights in enumerate(layers):
            matrix = weights[row].mean(0)
            for query in places:
                for item in places:
                    capacity = float(matrix[query, item] + (query == item)) / 2
                    graph.add_edge((number + 1, query), (number, item), capacity=capacity)
        for token in output.mask[row].nonzero().flatten().tolist():
            expected = networkx.maximum_flow_value(graph, "read", (0, token))
            assert float(found[row, token]) == pytest.approx(expected, abs=1e-6)


def test_flow_of_one_layer_is_its_attention() -> None:
    matrix = np.array([[0.2, 0.8], [0.5, 0.5]])
    found = flows([matrix], np.array([1.0, 0.0]))
    assert found == pytest.approx([0.6, 0.4], abs=1e-7)


@pytest.mark.parametrize("kind", METHODS)
def test_padding_and_batches_change_nothing(kind: type[Attribution]) -> None:
    model, batch = scene("bert")
    _, whole = scores(kind(), model, batch)
    for text in range(len(batch)):
        length = int(batch.mask[text].sum())
        alone = batch.select(torch.tensor([text])).trim(length)
        _, found = scores(kind(), model, alone)
        torch.testing.assert_close(found[0], whole[text, :length], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [*METHODS, Rollout])
def test_models_without_layers_are_refused(kind: type[Attribution]) -> None:
    model = flat.model("bilstm", classes=2)
    batch = flat.collate(flat.corpus()[:2], 0)
    with pytest.raises(InputError, match="needs a model with layers of self-attention"):
        scores(kind(), model, batch)


def test_flow_refuses_long_texts() -> None:
    pytest.importorskip("transformers")
    from attnlight.huggingface import HuggingFaceClassifier
    from tests.huggingface.models import build

    net = build("bert", "AutoModelForSequenceClassification", max_position_embeddings=300)
    model = HuggingFaceClassifier(net).eval()
    tokens = torch.full((1, 280), 5)
    batch = TextBatch(torch.tensor([0]), tokens, torch.ones_like(tokens, dtype=torch.bool))
    with pytest.raises(InputError, match="text of 280 tokens"):
        scores(AttentionFlow(), model, batch)

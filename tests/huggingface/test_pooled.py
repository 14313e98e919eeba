"""`HuggingFacePooledClassifier`: a transformer below the flat classifier's attention."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

import attnlight
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional.readout.instances import empty_logits
from attnlight.huggingface import HuggingFacePooledClassifier
from attnlight.models.build import CUSTOM, build_model
from tests.huggingface.models import LENGTH, MODELS, assert_near, assert_same
from tests.huggingface.test_classifier import classifier, pooled_classifier, texts


def test_states_are_those_of_the_model(name: str) -> None:
    batch = texts()
    inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}
    expected = MODELS[name]()(**inputs).last_hidden_state[batch.mask]
    assert_near(pooled_classifier(name)(batch).states[batch.mask], expected)


@pytest.mark.parametrize("attention", ["additive", "uniform"])
def test_keeps_all_promises(name: str, attention: Any) -> None:
    model = pooled_classifier(name, attention=attention)
    assert attnlight.check(model, texts()) == []
    output = model(texts())
    assert output.item_logits is not None
    sums = (output.weights.unsqueeze(-1) * output.item_logits).sum((1, 2))
    torch.testing.assert_close(sums, output.logits)


@pytest.mark.parametrize("kind", ["PooledClassifier", "Classifier", "Tagger"])
def test_sparse_attention_is_refused(kind: str) -> None:
    net = {
        CUSTOM: f"attnlight.huggingface.HuggingFace{kind}",
        "options": {"normalizer": "sparsemax"},
    }
    with pytest.raises(InputError, match=f"HuggingFace{kind} has no option 'normalizer'"):
        build_model("classification", net, {"classes": ["a", "b"]})


def test_exact_tests_run() -> None:
    batch = replace(texts(), labels=torch.tensor([0, 1, 2, 0, 1]))
    table = attnlight.run(pooled_classifier("bert"), [batch], tests="cheap").table()
    assert table.set_index(["test", "measure"])["n"]["adversarial_attention", "worst_js"] == 5


@pytest.mark.parametrize("options", [{}, {"freeze": True}, {"encoder": "average"}])
def test_each_trained_parameter_has_a_gradient(name: str, options: Any) -> None:
    model = pooled_classifier(name, **options).train()
    model(texts()).logits.square().sum().backward()
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained == {n for n, p in model.named_parameters() if p.grad is not None}
    assert trained >= {"decoder.weight", "attention.key.weight"}
    assert any(n.startswith("encoder.model") for n in trained) is (not options)


def test_frozen_models_have_no_dropout() -> None:
    torch.manual_seed(0)
    base = MODELS["bert"](hidden_dropout_prob=0.5)
    model = HuggingFacePooledClassifier(base, 2, freeze=True).train()
    first, second = model(texts()).states, model(texts()).states
    assert_same(first, second)
    assert model.training
    assert not model.encoder.training


@pytest.mark.parametrize("pooled", [False, True])
def test_padding_beyond_the_longest_text(name: str, pooled: bool) -> None:
    """Models with a table of positions have none for it."""
    model: Any = pooled_classifier(name) if pooled else classifier(name)
    batch, beyond = texts(), (0, LENGTH)
    wide = TextBatch(batch.index, pad(batch.tokens, beyond), pad(batch.mask, beyond))
    assert attnlight.check(model, wide) == []
    expected, found = model(batch), model(wide)
    assert_near(found.logits, expected.logits)
    assert_near(empty_logits(model, found), empty_logits(model, expected))
    assert_near(found.weights[..., :9], expected.weights)
    assert float(found.weights[..., 9:].abs().max()) == 0
    assert found.states.shape[1] == wide.tokens.shape[1]

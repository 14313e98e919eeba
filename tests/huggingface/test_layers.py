"""Tests of layers on classifiers of transformers: full passes, and costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from attnlight.batch import LayeredModel
from attnlight.callbacks import AttentionSinks, Faithfulness, HeadAblation
from attnlight.huggingface.classifier import HuggingFaceClassifier
from attnlight.probing.interception import intercept
from attnlight.probing.patches import off, restrict, uniform
from attnlight.probing.replay import Replay, layer_modules
from tests.huggingface.models import CONFIGURATIONS, DECODERS, HEADS
from tests.huggingface.test_classifier import classifier, texts


@pytest.mark.parametrize("special_tokens", ["fixed", "attended"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_ablation_is_that_of_full_passes(name: str, special_tokens: Any) -> None:
    model = classifier(name, special_tokens=special_tokens)
    batch = texts("left" if name in DECODERS else "right")  # encoders read the first place
    assert isinstance(model, LayeredModel)
    test = HeadAblation(["uniform", "off"])
    columns = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    layers = len(model.attention_layers)
    inputs = {"input_ids": model.numbers[batch.tokens], "attention_mask": batch.mask.long()}
    if name in DECODERS:
        inputs["position_ids"] = (batch.mask.cumsum(-1) - 1).clamp(min=0)

    @torch.no_grad()
    def full_pass(patch: Any) -> torch.Tensor:
        with intercept(patch=patch):
            logits = model.transformer(**inputs).logits
        probabilities: torch.Tensor = logits.double().softmax(-1)
        return probabilities

    before = full_pass({})
    for kind, patch in (("uniform", uniform), ("off", off)):
        for layer in range(layers):
            for head in range(HEADS):
                after = full_pass({layer: restrict(patch, heads=[head])})
                expected = (after - before).abs().sum(-1) / 2
                found = columns[f"tvd_head_{kind}_by_head"][:, layer * HEADS + head]
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        after = full_pass(dict.fromkeys(range(layers), patch))
        expected = (after - before).abs().sum(-1) / 2
        torch.testing.assert_close(columns[f"tvd_all_{kind}"], expected, atol=1e-5, rtol=0)
        assert float(expected.max()) > 1e-3


@pytest.mark.parametrize("special_tokens", ["fixed", "attended"])
def test_sinks_with_and_without_special_tokens(special_tokens: Any) -> None:
    model, batch = classifier("bert", special_tokens=special_tokens), texts()
    output = model(batch)
    columns = AttentionSinks().measure(batch, output, model)  # type: ignore[arg-type]
    assert columns["erased_special"].isnan().all() == (special_tokens == "fixed")
    same = torch.equal(
        columns["erased_top"].nan_to_num(), columns["erased_top_without_special"].nan_to_num()
    )
    assert same == (special_tokens == "fixed")
    if special_tokens == "attended":
        words = batch.attendable()[:, None]
        kept = output.weights * words
        logits = model.readout(output, (kept / kept.sum(-1, keepdim=True)).unsqueeze(2))[:, 0]
        change = (logits.softmax(-1) - output.logits.softmax(-1)).abs().sum(-1) / 2
        torch.testing.assert_close(
            columns["erased_special"], change.detach().double(), atol=1e-6, rtol=0
        )


def test_methods_over_layers_are_scored_by_faithfulness() -> None:
    model, batch = classifier("bert"), texts()
    methods = ["rollout", {"name": "rollout", "of": "value_norm", "label": "norms"}]
    test = Faithfulness([*methods, "attention_value_norm"], shares=[0.5])
    columns = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    for label in ("rollout", "norms", "attention_value_norm"):
        assert columns[f"sufficiency_{label}"].isfinite().all()


def test_layers_computed_for_all_heads_of_six_layers() -> None:
    """6 layers of 12 heads one by one: 12 (6 + 5 + ... + 1) layers and one pass, 43 passes."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_attention_heads=12, num_hidden_layers=6
    )
    config.intermediate_size = 16
    net = transformers.BertForSequenceClassification(config).eval()
    model, batch = HuggingFaceClassifier(net), texts()
    computed = 0

    def count(module: nn.Module, args: Any, options: Any) -> None:
        nonlocal computed
        states = args[0] if args else options["hidden_states"]
        if states.shape[1] > 1:  # not the readout's, of one token each
            computed += len(states)

    for layer in layer_modules(model):
        layer.get_submodule("attention").register_forward_pre_hook(count, with_kwargs=True)
    replay = Replay(model, batch, "the test")
    replay.logits([{n: restrict(off, heads=[h])} for n in range(6) for h in range(12)])
    assert computed / len(batch) / 6 == 43

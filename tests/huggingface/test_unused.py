"""What candidate attentions of the last layer do not compute, since it is given."""

import pytest
import torch
import transformers

from attnlight.huggingface.classifier import HuggingFaceClassifier
from tests.huggingface.models import GROUPED, MODELS
from tests.huggingface.test_classifier import (
    classifier,
    full_pass,
    random_weights,
    require_full_passes,
    texts,
)


@pytest.mark.parametrize("name", list(MODELS))
def test_candidates_project_nothing_but_their_contexts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier(name)
    output = model(texts())
    called: list[int] = []
    for module in model.modules():  # projections; GPT-2's are `Conv1D`
        if type(module).__name__ in ("Linear", "Conv1D", "Embedding"):
            module.register_forward_hook(lambda *_: called.append(1))
    model.readout(output, random_weights(output, 2))
    # One or two of attention's output, two or three of the feed-forward layer, and the head's.
    head = {"bert": 2, "distilbert": 2, "roberta": 2, "electra": 2, "modernbert": 2}.get(name, 1)
    gated = name in ("llama", "qwen3", "gemma3")
    assert len(called) == 1 + 2 + gated + head


def test_a_norm_that_the_feed_forward_layer_reads_too() -> None:
    config = transformers.PhiConfig(
        **{**GROUPED, "num_hidden_layers": 2, "num_labels": 3, "num_key_value_heads": 4}
    )
    torch.manual_seed(0)
    model = HuggingFaceClassifier(transformers.PhiForSequenceClassification(config).eval()).eval()
    blanked = {name.rpartition(".")[2] for name in model.last_layer._blanks}
    assert "input_layernorm" not in blanked
    assert blanked >= {"q_proj", "k_proj", "v_proj"}
    require_full_passes(model, texts())


def test_a_text_is_read_up_to_the_attention_of_its_last_layer() -> None:
    model, batch = classifier("bert"), texts()
    sizes: list[int] = []
    last = model.transformer.bert.encoder.layer[-1]
    last.intermediate.register_forward_hook(lambda _, args, __: sizes.append(args[0].shape[1]))
    expected, _ = full_pass(model, batch)
    assert sizes == [9]
    torch.testing.assert_close(model(batch).logits, expected, atol=1e-5, rtol=1e-5)
    assert sizes == [9, 1, 1]  # for the logits and the empty context the classifying token alone

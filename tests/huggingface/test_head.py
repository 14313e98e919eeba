"""A linear head on architectures that transformers has no classifier of texts of."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import attnlight
from attnlight.data.pieces import read_tokenizer
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier, HuggingFacePooledClassifier
from attnlight.huggingface.load_model import LinearForSequenceClassification
from tests.huggingface.folders import TEXTS, write_tokenizer
from tests.huggingface.models import SMALL, assert_same
from tests.huggingface.test_classifier import LENGTHS, require_full_passes, texts

TWO = {"num_key_value_heads": 2}
MODELS: dict[str, dict[str, Any]] = {"Granite": TWO, "Cohere": TWO, "BertGeneration": {}}


def config_of(kind: str, vocabulary: int = 50) -> Any:
    options = {**SMALL, **MODELS[kind], "vocab_size": vocabulary}
    return getattr(transformers, f"{kind}Config")(**options)


def headed(kind: str) -> LinearForSequenceClassification:
    config = config_of(kind)
    config.num_labels = 3
    torch.manual_seed(0)
    model = LinearForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return model.eval()


@pytest.fixture(params=list(MODELS))
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    assert type(config_of(name)) not in transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    return name


@pytest.mark.parametrize("padding", ["right", "left"])
@torch.no_grad()
def test_logits_are_a_map_of_one_state(kind: str, padding: str) -> None:
    model, batch = headed(kind), texts(padding)
    inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}
    states = model.model(**inputs).last_hidden_state
    logits = model(**inputs).logits
    for text, length in enumerate(LENGTHS):
        start = 0 if padding == "right" else 9 - length
        read = start if kind == "BertGeneration" else start + length - 1
        expected: Tensor = states[text, read] @ model.score.weight.T + model.score.bias
        torch.testing.assert_close(logits[text], expected)


def test_last_layer_is_full_passes(kind: str) -> None:
    model, batch = HuggingFaceClassifier(headed(kind)).eval(), texts()
    assert attnlight.check(model, batch) == []
    require_full_passes(model, batch)
    parts = model.parameter_parts
    assert {"transformer.score.weight", "transformer.score.bias"} <= set(parts["head"])
    model.draw_parameters()
    assert float(model.transformer.score.weight.std()) < 0.2


class TestFolder:
    @pytest.fixture
    def folder(self, kind: str, tmp_path: Path) -> str:
        name = "bert" if kind == "BertGeneration" else "llama"
        config = config_of(kind, write_tokenizer(tmp_path, name).get_vocab_size())
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
        return str(tmp_path)

    def test_is_read_with_a_new_head(self, kind: str, folder: str) -> None:
        model = HuggingFaceClassifier(folder, num_classes=4).eval()
        assert model.new == ("score.bias", "score.weight")
        plain = transformers.AutoModel.from_pretrained(folder)
        loaded = dict(model.transformer.base_model.named_parameters())
        for name, parameter in plain.named_parameters():
            assert_same(parameter, loaded[name])
        with pytest.raises(InputError, match="has no trained head"):
            attnlight.run(model, list(TEXTS))
        pooled = HuggingFacePooledClassifier(folder, 4).eval()
        assert len(pooled.attention_layers) == 2

    def test_a_checkpoint_is_built_without_it(self, kind: str, folder: str) -> None:
        options = HuggingFaceClassifier.stored_options({"path": folder}) | {"num_classes": 4}
        size = len(read_tokenizer(folder)[1])
        trained, gone = (
            HuggingFaceClassifier(vocab_size=size, **options | {"path": path}).eval()
            for path in (folder, "gone")
        )
        assert gone.missing is not None
        gone.load_state_dict(trained.state_dict())
        batch = texts()
        batch.tokens = batch.tokens % size
        torch.testing.assert_close(gone(batch).logits, trained(batch).logits)


def test_an_encoder_with_a_decoder() -> None:
    config = transformers.BartConfig(vocab_size=50, d_model=32, encoder_layers=1, decoder_layers=1)
    with pytest.raises(InputError, match="is an encoder with a decoder: expected one of the two"):
        HuggingFaceClassifier(transformers.BartForSequenceClassification(config))


def test_attention_that_knows_only_its_own_kernel(tmp_path: Path) -> None:
    size = write_tokenizer(tmp_path, "bert").get_vocab_size()
    config = transformers.SplinterConfig(**SMALL | {"vocab_size": size})
    transformers.SplinterModel(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="cannot be intercepted: SplinterModel does not"):
        HuggingFaceClassifier(str(tmp_path), num_classes=2)

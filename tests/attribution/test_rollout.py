"""Rollout and value norms over layers against loops over texts with products of matrices."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import AttentionValueNorm, Rollout
from attnlight.batch import TextBatch
from attnlight.probing.interception import intercept
from tests.bases import one_text
from tests.models.taggers import sentences, tagger


def matrices_by_hand(model: Any, alone: TextBatch, maps: list[Tensor] | None) -> list[Tensor]:
    """Attention (n, n) of each layer for one text, mean over heads, or norms of transformed values."""
    with torch.no_grad(), intercept(record="all") as found:
        model(alone)
    matrices = []
    for layer in sorted(found):
        weights, values = found[layer].weights[0].double(), found[layer].values[0].double()
        if maps is None:
            matrices.append(weights.mean(0))
        else:  # of each query and item: the heads' weighted values one after the other
            added = (weights.unsqueeze(-1) * values.unsqueeze(1)).movedim(0, 2).flatten(2)
            matrices.append((added @ maps[layer].double().T).norm(dim=-1))
    return matrices


def rolled_by_hand(matrices: list[Tensor]) -> Tensor:
    product = torch.eye(len(matrices[0]), dtype=torch.float64)
    for matrix in matrices:
        mixed = matrix / matrix.sum(-1, keepdim=True) + torch.eye(len(matrix))
        product = mixed / mixed.sum(-1, keepdim=True) @ product
    return product


@pytest.mark.parametrize("of", ["attention", "value_norm"])
@pytest.mark.parametrize("readout", ["study", "text"])
def test_of_a_tagger(of: Any, readout: str) -> None:
    model, batch = tagger(readout, layers=3).double(), sentences(extra=2)
    output = model(batch)
    found = Rollout(of=of)(model, batch, output, output.logits.argmax(-1))
    last = model.decoder.decoder if model.decoder.after is None else model.decoder.after.output
    modules = [*(layer.get_submodule("after.output") for layer in model.layers), last]
    maps = [module.weight.detach() for module in modules]
    row = 0
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        alone = one_text(batch, text)
        matrices = matrices_by_hand(model, alone, maps if of == "value_norm" else None)
        product = rolled_by_hand(matrices)
        torch.testing.assert_close(product.sum(-1), torch.ones_like(product[0]))
        for query in range(length):
            torch.testing.assert_close(found[row, :length], product[query])
            assert not found[row, length:].any()
            row += 1
    assert row == len(found)


class TestTransformers:
    """Models of transformers, whose output maps are found in a pass."""

    MAPS = ("attention.output.dense", "attention.out_lin", "attn.Wo", "attn.c_proj")
    MAPS += ("self_attn.o_proj", "attention.dense")

    @pytest.fixture(autouse=True)
    def _needs_transformers(self) -> None:
        pytest.importorskip("transformers")

    @staticmethod
    def scene(name: str) -> tuple[Any, TextBatch]:
        from attnlight.huggingface.classifier import HuggingFaceClassifier
        from tests.huggingface.models import build
        from tests.huggingface.test_classifier import texts

        net = build(name, "AutoModelForSequenceClassification", num_labels=3)
        return HuggingFaceClassifier(net, special_tokens="attended").eval(), texts()

    NAMES = ("bert", "distilbert", "roberta", "electra", "modernbert")
    NAMES += ("gpt2", "llama", "qwen3", "gemma3", "gpt_neox")

    @pytest.mark.parametrize("name", NAMES)
    def test_rollout_and_norms(self, name: str) -> None:
        model, batch = self.scene(name)
        weights = [
            module.weight.detach() if name != "gpt2" else module.weight.detach().T
            for place, module in model.transformer.named_modules()
            if place.endswith(self.MAPS)
        ]
        assert len(weights) == len(model.attention_layers)
        output = model(batch).apply(torch.Tensor.detach)
        target = output.logits.argmax(-1)
        rolled = Rollout()(model, batch, output, target)
        norms = Rollout(of="value_norm")(model, batch, output, target)
        last = AttentionValueNorm()(model, batch, output, target)
        for text, length in enumerate(batch.mask.sum(-1).tolist()):
            alone = one_text(batch, text)
            read = length - 1 if model.last_layer.causal else 0
            attention = matrices_by_hand(model, alone, None)
            sizes = matrices_by_hand(model, alone, weights)
            items = output.mask[text]
            for found, expected in (
                (rolled, rolled_by_hand(attention)[read]),
                (norms, rolled_by_hand(sizes)[read]),
                (last, sizes[-1][read]),
            ):
                kept = items[:length].double()
                torch.testing.assert_close(
                    found[text, :length], expected * kept, atol=1e-5, rtol=1e-4
                )
                assert not found[text, length:].any()
                assert float(found[text].max()) > 0.01

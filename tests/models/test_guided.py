"""Classifiers whose attention is given, and classifiers from plain options."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models import FlatClassifier, HierarchicalClassifier
from attnlight.models.build import build_model, model_options
from attnlight.models.guided import no_guide
from attnlight.probing.removal import keep_items

SPEC: dict[str, Any] = {"vocab_size": 30, "classes": ["a", "b", "c"]}
OPTIONS: dict[str, Any] = {
    "encoder": "average",
    "attention": "uniform",
    "embedding_size": 6,
    "hidden_size": 4,
}


def texts(nested: bool) -> TextBatch:
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0], [14, 0, 0, 0, 0, 0]])
    tokens = tokens.unflatten(1, (3, 2)) if nested else tokens
    return TextBatch(torch.tensor([4, 2, 9]), tokens, tokens != 0)


def guidance(batch: TextBatch) -> Tensor:
    """Weights that grow from item to item."""
    reached = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
    weights = reached.cumsum(-1) * reached
    return (weights / weights.sum(-1, keepdim=True)).unsqueeze(1)


@pytest.fixture(params=[False, True], ids=["flat", "hierarchical"])
def guided(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    net = OPTIONS | {"hierarchical": request.param}
    model = build_model("classification", net, SPEC, guided=True).eval()
    assert model.guide is no_guide
    model.guide = guidance
    return model, texts(request.param)


def test_the_guide_is_the_attention(guided: Any) -> None:
    model, batch = guided
    output = model(batch)
    assert torch.equal(output.weights, guidance(batch))
    read = (output.weights.unsqueeze(-1) * output.item_logits).sum((1, 2))
    torch.testing.assert_close(read, output.logits)


def test_given_weights_replace_the_guide(guided: Any) -> None:
    model, batch = guided
    other = guidance(batch).flip(0)
    assert torch.equal(model(batch, weights=other).weights, other)


def test_there_is_nothing_to_learn_in_attention(guided: Any) -> None:
    model, _ = guided
    assert not any("attention" in name for name, _ in model.named_parameters())


def test_without_a_guide_there_is_no_attention(guided: Any) -> None:
    model, batch = guided
    model.guide = no_guide
    with pytest.raises(InputError, match="no raw text"):
        model(batch)


def test_leave_one_out_renormalises_what_the_guide_gave(guided: Any) -> None:
    model, batch = guided
    output = model(batch)
    found = model.leave_one_out(batch, output, budget=100)
    for text, items in enumerate(output.mask.sum(-1).tolist()):
        for item in range(output.mask.shape[1]):
            if item >= items or items == 1:
                assert found[text, item].isnan().all()
                continue
            chosen = torch.tensor([text])
            shorter, _ = keep_items(batch, chosen, torch.arange(items)[None] != item)
            weights = torch.cat(
                [output.weights[text, 0, :item], output.weights[text, 0, item + 1 : items]]
            )
            given = (weights / weights.sum()).view(1, 1, -1)
            again = model(shorter, weights=given).logits[0]
            torch.testing.assert_close(found[text, item].float(), again, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("hierarchical", "kind"), [(False, FlatClassifier), (True, HierarchicalClassifier)]
)
def test_build_from_plain_options(hierarchical: bool, kind: type) -> None:
    options = OPTIONS | {"hierarchical": hierarchical, "attention": "additive", "attention_size": 2}
    model = build_model("classification", options, SPEC)
    assert type(model) is kind
    assert [p.shape for p in model.parameters()] == [
        p.shape for p in kind(**model_options("classification", options, SPEC)).parameters()
    ]


def test_a_missing_option_has_its_default() -> None:
    model = build_model("classification", {}, SPEC)
    assert [p.shape for p in model.parameters()] == [
        p.shape for p in FlatClassifier(30, 3).parameters()
    ]

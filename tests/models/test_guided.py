"""Classifiers whose attention is given, and classifiers from plain options."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models.build import build_model, changed_net, plain_net
from attnlight.models.guided import no_guide
from attnlight.models.options import PairNet
from attnlight.probing.leave_one_out import left_out_logits
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pairs

SPEC: dict[str, Any] = {"vocab_size": 60, "classes": list("abcd")}
SMALL: dict[str, Any] = {"embedding_size": 12, "hidden_size": 8}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "flat": (flat, {}),
    "hierarchical": (hierarchical, {"hierarchical": True}),
    "tanh": (pairs, {"decoder": "tanh"}),
    "affine, shared": (pairs, {"decoder": "affine", "share": True}),
}


def guidance(batch: TextBatch) -> Tensor:
    """Weights that grow from item to item."""
    items = batch.attendable()
    items = items if items.ndim == 2 else items.any(-1)
    weights = (items.cumsum(-1) * items).double()
    return (weights / weights.sum(-1, keepdim=True)).unsqueeze(1)


@pytest.fixture(params=KINDS)
def guided(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A guided model, and the tests of its kind."""
    kind, options = KINDS[request.param]
    problem = "pairs" if kind is pairs else "classification"
    changes: dict[str, Any] = {"guide": "base", "context": None, "query_key": False}
    joined = {"attend_to": "states_and_embeddings"} | options  # which is no word alone
    net = changed_net(problem, plain_net(problem, SMALL | joined), "guided_net", **changes)
    assert (net["attention"], net["attend_to"]) == ("uniform", "states")
    torch.manual_seed(0)
    model: Any = build_model(problem, net, SPEC, guided=True).double().eval()
    assert model.guide is no_guide
    model.guide = guidance
    return model, kind


@torch.no_grad()
def test_the_guide_is_the_attention_unless_weights_are_given(guided: Any) -> None:
    model, kind = guided
    batch = kind.collate(kind.corpus())
    output = model(batch)
    assert torch.equal(output.weights, guidance(batch))
    again = model.readout(output, output.weights.unsqueeze(2)).squeeze(1)
    torch.testing.assert_close(again, output.logits)
    other = guidance(batch).flip(0)
    assert torch.equal(model(batch, weights=other).weights, other)
    assert not any(name.startswith("attention") for name, _ in model.named_parameters())
    model.guide = no_guide
    with pytest.raises(InputError, match="no raw text"):
        model(batch)


@torch.no_grad()
def test_leave_one_out_renormalises_what_the_guide_gave(guided: Any) -> None:
    model, kind = guided
    texts = kind.corpus()
    batch = kind.collate(texts)
    output = model(batch)
    found = left_out_logits(model, batch, output)
    assert found[~output.mask].isnan().all()
    for row, text in enumerate(texts):
        alone = kind.collate([text])
        items = output.mask[row].nonzero().flatten().tolist()
        for item in items:
            kept = guidance(alone)
            kept[..., item] = 0
            expected = model(alone, weights=kept / kept.sum()).logits[0]
            if len(items) == 1:
                expected = torch.full_like(expected, torch.nan)
            torch.testing.assert_close(found[row, item], expected, equal_nan=True)


def test_the_uniform_net_of_pairs() -> None:
    uniform = changed_net("pairs", plain_net("pairs", PairNet()), "uniform_net", head=None)
    assert uniform == plain_net("pairs", PairNet(attention="uniform"))

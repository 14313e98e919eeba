"""Parts of a network: every parameter in one, from the output down; copies that share the rest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlight.models import FlatClassifier
from attnlight.models.parts import part_names, with_parameters
from tests.attribution.scenes import SCENES, scene

PARTS = {
    "bilstm": ["decoder", "attention", "encoder", "embedding"],
    "han": [
        *("decoder", "sentence_attention", "sentence_encoder"),
        *("word_attention", "word_encoder", "embedding"),
    ],
    "pair": ["decoder", "attention", "encoder", "embedding"],
    "transformer": ["decoder", "attention", "layer_1", "encoder", "embedding"],
    "recurrent": ["decoder", "attention", "encoder", "embedding"],
}


class Custom(nn.Module):
    """A network that says nothing of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.shift = nn.Parameter(torch.zeros(3))
        self.quiet = nn.Tanh()
        self.out = nn.Linear(3, 2)


@pytest.mark.parametrize("name", SCENES)
def test_every_parameter_is_in_one_part(name: str) -> None:
    model, _ = scene(name)
    parts = part_names(model)
    named = [parameter for members in parts.values() for parameter in members]
    assert sorted(named) == sorted(parameter for parameter, _ in model.named_parameters())
    assert list(parts) == PARTS.get(name, list(parts))
    assert all(parts.values())


def test_parts_with_parameters_are_listed_last_first() -> None:
    bare = FlatClassifier(9, 2, attention="uniform", encoder="none", embedding_size=4)
    assert list(part_names(bare)) == ["decoder", "embedding"]
    assert part_names(Custom()) == {
        "out": ["out.weight", "out.bias"],
        "table": ["table.weight"],
        "shift": ["shift"],
    }


@pytest.mark.parametrize("name", SCENES)
def test_a_copy_has_other_parameters_and_shares_the_rest(name: str) -> None:
    model, batch = scene(name)
    before = {parameter: values.clone() for parameter, values in model.named_parameters()}
    replaced = part_names(model)["decoder"] + part_names(model)["embedding"]
    values = {parameter: torch.randn_like(before[parameter]) for parameter in replaced}
    copy = with_parameters(model, values)
    for parameter, tensor in copy.named_parameters():
        own = dict(model.named_parameters())[parameter]
        assert (tensor is own) == (parameter not in replaced)
        assert torch.equal(own, before[parameter])
        assert torch.equal(tensor, values.get(parameter, before[parameter]))
    with torch.no_grad():
        copied, trained = copy(batch).logits, model(batch).logits
        model.load_state_dict(values, strict=False)
        assert torch.equal(copied, model(batch).logits)
        assert not torch.equal(copied, trained)


def test_a_copy_asks_the_same_guide() -> None:
    class Owner:
        def guide(self, batch: object) -> Tensor:
            return torch.zeros(())

    owner, model = Owner(), Custom()
    model.guide = owner.guide  # type: ignore[assignment]
    guide = with_parameters(model, {}, [owner]).guide
    assert guide.__self__ is owner  # type: ignore[union-attr]

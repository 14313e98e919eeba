import math

import pytest
import torch
from torch import nn

from attnlight.models import FlatClassifier, HierarchicalClassifier
from attnlight.models.initialization import initialize


def network() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "affine": nn.Linear(30, 20),
            "gru": nn.GRU(10, 8),
            "lstm": nn.LSTM(10, 8),
            "convolution": nn.Conv1d(10, 6, 3),
            "embedding": nn.Embedding(9, 10),
        }
    )


def test_default_changes_nothing() -> None:
    before, after = network(), network()
    initialize(after, "default")
    for own, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(own, other)


def test_xavier_is_that_of_serrano_and_smith() -> None:
    before, after = network(), network()
    initialize(after, "xavier")
    changed = dict(after.named_parameters())
    for name, parameter in changed.items():
        kind = name.rpartition(".")[2]
        if name.startswith(("convolution", "embedding")):
            assert torch.equal(parameter, before.get_parameter(name))
        elif kind.startswith("bias"):
            assert (parameter == 0).all()
        elif kind.startswith("weight_hh"):
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(8), atol=1e-5, rtol=0)
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert 0.9 * bound < parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


@pytest.mark.parametrize("kind", [FlatClassifier, HierarchicalClassifier])
def test_a_classifier_starts_without_biases(
    kind: type[FlatClassifier] | type[HierarchicalClassifier],
) -> None:
    made = kind(50, 3, encoder="bigru", initialization="xavier")
    biases = {name: p for name, p in made.named_parameters() if ".bias" in name}
    assert len(biases) >= 6
    assert all((bias == 0).all() for bias in biases.values())

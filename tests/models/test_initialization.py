import math

import pytest
import torch

from attnlight.models import FlatClassifier


def made(how: str, **options: object) -> dict[str, torch.Tensor]:
    """Parameters of a classifier of a large decoder, from one seed, by name."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 10, "hidden_size": 16}
    model = FlatClassifier(9, 20, initialization=how, **(sizes | options))
    return dict(model.named_parameters())


def test_default_is_torch_s() -> None:
    torch.manual_seed(0)
    torch.nn.Embedding(9, 10)
    network = torch.nn.GRU(10, 16)
    found = made("default", encoder="bigru")
    for name, parameter in network.named_parameters():
        assert torch.equal(found[f"encoder.forwards.{name}"], parameter)


@pytest.mark.parametrize("encoder", ["bigru", "bilstm", "conv", "average"])
def test_xavier_is_that_of_serrano_and_smith(encoder: str) -> None:
    before, after = (made(how, encoder=encoder) for how in ("default", "xavier"))
    for name, parameter in after.items():
        kind = name.rpartition(".")[2]
        if name.startswith(("encoder.convolutions", "embedding")):
            assert torch.equal(parameter, before[name])
        elif kind.startswith("bias"):
            assert (parameter == 0).all()
        elif kind.startswith("weight_hh"):
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(16), atol=1e-5, rtol=0)
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert bound / 2 < parameter.abs().max() <= bound
            if parameter.numel() > 150:
                assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)

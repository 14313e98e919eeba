import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlight.errors import InputError
from attnlight.models import ENCODERS, Conv
from tests.models.oracles import encoded, parameters

LENGTHS = (7, 1, 4, 2)


def texts(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    # Padding is not zero here: given embeddings may hold anything there.
    return torch.randn(4, 7, 5, dtype=dtype, generator=random), mask


@pytest.mark.parametrize("name", ENCODERS)
def test_states_are_those_of_each_text_by_definition(name: str) -> None:
    torch.manual_seed(0)
    model = ENCODERS[name](5, 8).double().eval()
    embeddings, mask = texts()
    states = model(embeddings, mask).detach()
    assert states.shape == (4, 7, model.output_size)
    for row, length in enumerate(LENGTHS):
        expected = encoded(name, parameters(model), embeddings[row, :length].numpy())
        np.testing.assert_allclose(states[row, :length], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ENCODERS)
def test_states_and_gradients_do_not_depend_on_padding(name: str) -> None:
    torch.manual_seed(0)
    model = ENCODERS[name](5, 8).double().eval()
    embeddings, mask = texts()
    embeddings.requires_grad_()
    wide = nn.functional.pad(embeddings.detach(), (0, 0, 0, 6), value=3.0).requires_grad_()
    states = model(embeddings, mask)
    wide_states = model(wide, nn.functional.pad(mask, (0, 6)))
    assert wide_states.isfinite().all()
    torch.testing.assert_close(wide_states[:, :7][mask], states[mask], rtol=1e-12, atol=1e-12)
    states[mask].square().sum().backward()
    wide_states[:, :7][mask].square().sum().backward()
    assert embeddings.grad is not None
    assert wide.grad is not None
    assert (embeddings.grad[~mask] == 0).all()
    assert (embeddings.grad[mask] != 0).all()
    torch.testing.assert_close(wide.grad[:, :7], embeddings.grad, rtol=1e-12, atol=1e-12)
    assert (wide.grad[:, 7:] == 0).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_an_empty_text_beside_others(name: str) -> None:
    model = ENCODERS[name](5, 8).double().eval()
    embeddings, mask = texts()
    mask[1] = False
    states = model(embeddings, mask)
    assert states.isfinite().all()
    torch.testing.assert_close(states[2, :4], model(embeddings[2:3, :4], mask[2:3, :4])[0])


def test_conv_has_the_sizes_of_serrano_and_smith() -> None:
    model = Conv(200, 100)
    shapes = [tuple(layer.weight.shape) for layer in model.convolutions]
    assert shapes == [(50, 200, 3), (50, 200, 5)]
    assert model.output_size == 100
    assert model.dropout.p == 0.3


def test_conv_drops_input_in_training_only() -> None:
    torch.manual_seed(0)
    model = Conv(400, 2).double()
    for layer in model.convolutions:
        nn.init.zeros_(layer.bias)
        nn.init.ones_(layer.weight)  # a state is the sum of what was kept around it
    embeddings, mask = torch.ones(1, 1, 400).double(), torch.ones(1, 1, dtype=torch.bool)
    assert model.eval()(embeddings, mask).flatten().tolist() == [400.0, 400.0]
    kept = 0.7 * model.train()(embeddings, mask).flatten()
    assert kept[0] == kept[1]  # both widths read the same input
    assert 0.6 * 400 < kept[0].item() < 0.8 * 400


@pytest.mark.parametrize(
    ("name", "hidden_size"),
    [("cnn", 0), ("cnn", 3), ("cnn", 126), ("conv", 0), ("conv", 1), ("conv", 101)],
)
def test_a_size_that_cannot_be_shared_out_is_refused(name: str, hidden_size: int) -> None:
    with pytest.raises(InputError, match=f"hidden_size {hidden_size} of the {name}"):
        ENCODERS[name](5, hidden_size)

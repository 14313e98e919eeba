import pytest
import torch
from torch import nn

from attnlight.models import LSTM, Conv, OrthogonalLSTM
from attnlight.models.encoders import orthogonal_to


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


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-4, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_are_orthogonal_to_a_direction_at_any_scale(
    dtype: torch.dtype, scale: float
) -> None:
    random = torch.Generator().manual_seed(0)
    vectors, direction = (torch.randn(50, 8, generator=random).to(dtype) for _ in range(2))
    direction[0] = 0  # which changes nothing
    vectors[1:9] = direction[1:9] * (1 + 1e-4 * vectors[1:9])  # nearly the direction
    found = orthogonal_to(scale * vectors, direction)
    digits = 2e-6 if dtype == torch.float32 else 1e-14
    expected = orthogonal_to(vectors, scale * direction) * scale
    torch.testing.assert_close(found, expected, rtol=0, atol=digits * scale)
    assert torch.equal(found[0], scale * vectors[0])
    cosines = nn.functional.cosine_similarity(found.double() / scale, direction.double(), dim=-1)
    assert cosines.abs().max() < (1e-5 if dtype == torch.float32 else 1e-11)
    rest = (vectors.double() * scale - found.double())[1:] / scale
    parallel = nn.functional.cosine_similarity(rest, direction.double()[1:], dim=-1).abs()
    assert parallel[rest.norm(dim=-1) > 1e-3].min() > 1 - 1e-5


def test_gradients_of_orthogonal_vectors_are_those_of_finite_differences() -> None:
    random = torch.Generator().manual_seed(0)
    pair = [torch.randn(4, 3, generator=random).double().requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(orthogonal_to, pair)
    nothing = torch.zeros(4, 3).double().requires_grad_()
    orthogonal_to(pair[0], nothing).square().sum().backward()
    assert (nothing.grad == 0).all()


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 30.0])
@torch.no_grad()
def test_states_are_orthogonal_to_the_mean_of_those_before(scale: float) -> None:
    torch.manual_seed(0)
    encoder = OrthogonalLSTM(6, 16)
    for name, values in encoder.named_parameters():
        values.mul_(scale if "weight" in name else 0.0)
    embeddings = torch.randn(5, 40, 6)
    embeddings[0] = embeddings[0, :1]  # the same word throughout: states nearly alike
    states = encoder(embeddings, torch.ones(5, 40, dtype=torch.bool)).double()
    for place in range(1, 40):
        before = states[:, :place].mean(1)
        cosines = (states[:, place] * before).sum(-1) / states[:, place].norm(dim=-1)
        assert (cosines / before.norm(dim=-1)).abs().max() < 1e-5
    plain = LSTM(6, 16)
    plain.load_state_dict(encoder.state_dict())
    first = plain(embeddings, torch.ones(5, 40, dtype=torch.bool))[:, 0]
    torch.testing.assert_close(states[:, 0], first.double(), rtol=1e-5, atol=0)


def test_a_text_s_orthogonal_states_depend_on_it_alone() -> None:
    """Bit by bit in no batch, but up to rounding of single precision in all."""
    torch.manual_seed(0)
    encoder, embeddings = OrthogonalLSTM(6, 16), torch.randn(9, 30, 6)
    mask = torch.arange(30) < torch.tensor([30, 1, 7, 22, 30, 13, 2, 5, 28])[:, None]
    states = encoder(embeddings, mask)
    for text, real in enumerate(mask):
        alone = encoder(embeddings[[text]][:, real], torch.ones(1, int(real.sum())).bool())
        torch.testing.assert_close(alone[0], states[text][real], rtol=0, atol=2e-6)

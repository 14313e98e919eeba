import pytest
import torch
from torch import Tensor, nn

from attnlight.errors import InputError
from attnlight.models import CNN, ENCODERS, Average, BiGRU, BiLSTM, Conv, NoEncoder

LENGTHS = (7, 1, 4, 2)


def texts(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    # Padding is not zero here: given embeddings may hold anything there.
    return torch.randn(4, 7, 5, dtype=dtype, generator=random), mask


@pytest.mark.parametrize("encoder", [BiLSTM, BiGRU])
def test_recurrent_states_equal_those_of_each_text_alone(
    encoder: type[BiLSTM] | type[BiGRU],
) -> None:
    torch.manual_seed(0)
    model = encoder(5, 3).double()
    both = encoder.cell(5, 3, batch_first=True, bidirectional=True).double()
    names = dict(both.named_parameters())
    for name, parameter in model.forwards.named_parameters():
        names[name].data.copy_(parameter.data)
    for name, parameter in model.backwards.named_parameters():
        names[f"{name}_reverse"].data.copy_(parameter.data)
    embeddings, mask = texts()
    states = model(embeddings, mask)
    assert states.shape == (4, 7, 6)
    assert model.output_size == 6
    for row, length in enumerate(LENGTHS):
        alone, _ = both(embeddings[row, None, :length])
        torch.testing.assert_close(states[row, :length], alone[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("encoder", "widths"), [(CNN, (1, 3, 5, 7)), (Conv, (3, 5))])
def test_convolutions_equal_a_naive_loop(
    encoder: type[CNN] | type[Conv], widths: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = encoder(5, 8).double().eval()
    embeddings, mask = texts()
    states = model(embeddings, mask)
    assert states.shape == (4, 7, 8)
    for row, length in enumerate(LENGTHS):
        for n in range(7):
            features = []
            for layer, width in zip(model.convolutions, widths, strict=True):
                assert isinstance(layer, nn.Conv1d)
                total = layer.bias.clone()
                for k in range(width):
                    place = n + k - width // 2
                    if 0 <= place < length:
                        total = total + layer.weight[:, :, k] @ embeddings[row, place]
                features.append(total.relu())
            expected = torch.cat(features) if n < length else torch.zeros(8).double()
            torch.testing.assert_close(states[row, n], expected, rtol=1e-12, atol=1e-12)


def test_average_is_affine_and_tanh() -> None:
    model = Average(5, 3).double()
    embeddings, mask = texts()
    weight, bias = model.projection.weight, model.projection.bias
    expected = torch.tanh(torch.einsum("de,bne->bnd", weight, embeddings) + bias)
    torch.testing.assert_close(model(embeddings, mask), expected)
    assert model.output_size == 3


def test_no_encoder_gives_the_embeddings() -> None:
    embeddings, mask = texts()
    assert torch.equal(NoEncoder(5, 3)(embeddings, mask), embeddings)
    assert NoEncoder(5, 3).output_size == 5


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


@pytest.mark.parametrize("hidden_size", [0, 3, 126])
def test_cnn_refuses_a_size_it_cannot_share_out(hidden_size: int) -> None:
    with pytest.raises(InputError, match=f"hidden_size {hidden_size} of the cnn"):
        CNN(5, hidden_size)


@pytest.mark.parametrize("hidden_size", [0, 1, 101])
def test_conv_refuses_a_size_it_cannot_share_out(hidden_size: int) -> None:
    with pytest.raises(InputError, match=f"hidden_size {hidden_size} of the conv .* of 2"):
        Conv(5, hidden_size)

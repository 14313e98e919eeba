import torch
from torch import nn

from attnlight.models import Conv


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

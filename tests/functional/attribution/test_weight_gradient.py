import torch

from attnlight.functional import read, weight_gradient
from tests.functional.erasure.test_erase import Case


def test_a_sure_prediction_keeps_its_digits() -> None:
    case = Case(None, 2)
    weights, mask = case.weights, case.mask
    items = case.item_logits + torch.tensor([60.0, 0.0])
    bias = case.bias[0] + torch.tensor([60.0, 0.0])
    gradient = weight_gradient(weights, items, bias, mask)
    logits = read(weights, items)
    lost = (logits[:, 1] - logits[:, 0]).exp()  # 1 - p_y, up to a factor 1 + exp(-50)
    effects = (items - bias)[..., 0] - (items - bias)[..., 1]
    expected = (effects * lost[:, None]).masked_fill(~mask, 0.0)
    assert 0 < expected.abs().max() < 1e-20
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=0)

import pytest
import torch
from torch import Tensor

from attnlight.functional import read, weight_gradient
from attnlight.functional.attribution.weight_gradient import Target, target_class
from tests.functional.erasure.test_erase import Case


def by_autograd(weights: Tensor, items: Tensor, bias: Tensor, target: Target) -> Tensor:
    """Gradient of p_y with the bias outside the attention, one text at a time."""
    share = bias.expand(len(weights), -1) / (1 if weights.ndim == 2 else weights.shape[1])
    effects = items - share.reshape(len(weights), *(1,) * (items.ndim - 2), -1)
    leaf = weights.clone().requires_grad_()
    total = torch.zeros(())
    for row in range(len(weights)):
        logits = (leaf[row].unsqueeze(-1) * effects[row]).flatten(0, -2).sum(0)
        order = (logits + bias.expand(len(weights), -1)[row]).softmax(-1).sort(descending=True)
        chosen = order.values[0 if target is None else 1]
        if isinstance(target, int):
            chosen = order.values[order.indices.tolist().index(target)]
        total = total + chosen
    (gradient,) = torch.autograd.grad(total, leaf)
    return gradient


@pytest.mark.parametrize("target", [None, "runner_up", 1])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("heads", [None, 1, 3])
def test_equals_autograd(heads: int | None, classes: int, shared: bool, target: Target) -> None:
    case = Case(heads, classes)
    weights, items, mask = case.weights, case.item_logits, case.mask
    bias = case.bias[0] if shared else case.bias
    off = ~(mask if heads is None else mask.unsqueeze(1))
    expected = by_autograd(weights, items, bias, target).masked_fill(off, 0.0)
    found = weight_gradient(weights, items, bias, mask, target)
    assert found.dtype == torch.float64
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_of_equal_logits_the_lower_class_is_first() -> None:
    logits = torch.tensor([[2.0, 3.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 5.0, 4.0, 4.0]])
    assert target_class(logits).tolist() == [1, 0, 1]
    assert target_class(logits, "runner_up").tolist() == [2, 1, 2]
    assert target_class(logits, 3).tolist() == [3, 3, 3]


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

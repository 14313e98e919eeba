import pytest
import torch
from torch import Tensor

from attnlight.functional import masked_softmax, read, weight_gradient


def case(heads: int | None, classes: int, shared: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, item logits with the bias folded in, bias, mask."""
    random = torch.Generator().manual_seed(classes)
    shape = (20, 7) if heads is None else (20, heads, 7)
    mask = torch.arange(7) < torch.randint(1, 8, (20, 1), generator=random)
    scores = torch.randn(shape, dtype=torch.float64, generator=random)
    items = 3 * torch.randn(*shape, classes, dtype=torch.float64, generator=random)
    bias = torch.randn(classes if shared else (20, classes), dtype=torch.float64, generator=random)  # type: ignore[call-overload]
    return masked_softmax(scores, mask), items, bias, mask


def by_autograd(weights: Tensor, items: Tensor, bias: Tensor) -> Tensor:
    """Gradient of p_y with the bias outside the attention, one text at a time."""
    share = bias.expand(len(weights), -1) / (1 if weights.ndim == 2 else weights.shape[1])
    effects = items - share.reshape(len(weights), *(1,) * (items.ndim - 2), -1)
    leaf = weights.clone().requires_grad_()
    total = torch.zeros(())
    for row in range(len(weights)):
        logits = (leaf[row].unsqueeze(-1) * effects[row]).flatten(0, -2).sum(0)
        total = total + (logits + bias.expand(len(weights), -1)[row]).softmax(-1).max()
    (gradient,) = torch.autograd.grad(total, leaf)
    return gradient


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("heads", [None, 1, 3])
def test_equals_autograd(heads: int | None, classes: int, shared: bool) -> None:
    weights, items, bias, mask = case(heads, classes, shared)
    off = ~(mask if heads is None else mask.unsqueeze(1))
    expected = by_autograd(weights, items, bias).masked_fill(off, 0.0)
    found = weight_gradient(weights, items, bias, mask)
    assert found.dtype == torch.float64
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_a_sure_prediction_keeps_its_digits() -> None:
    weights, items, bias, mask = case(None, 2, True)
    items = items + torch.tensor([60.0, 0.0])
    bias = bias + torch.tensor([60.0, 0.0])
    gradient = weight_gradient(weights, items, bias, mask)
    logits = read(weights, items)
    lost = (logits[:, 1] - logits[:, 0]).exp()  # 1 - p_y, up to a factor 1 + exp(-50)
    effects = (items - bias)[..., 0] - (items - bias)[..., 1]
    expected = (effects * lost[:, None]).masked_fill(~mask, 0.0)
    assert 0 < expected.abs().max() < 1e-20
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=0)

"""Divergence from something fixed is the divergence, and so is its gradient."""

from typing import Any

import pytest
import torch

from attnlight.functional import (
    fixed,
    js_divergence,
    kl_divergence,
    masked_softmax,
    total_variation,
)
from attnlight.functional.fixed import divergence_from

VALUES: dict[str, Any] = {"kl": kl_divergence, "js": js_divergence, "tvd": total_variation}


@pytest.mark.parametrize("kind", VALUES)
def test_value_and_gradient_are_autograd_s(kind: Any) -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(7) < 1 + torch.arange(9)[:, None] % 7
    scores = (3 * torch.randn(9, 2, 7, generator=random)).double().requires_grad_()
    other = masked_softmax(3 * torch.randn(9, 2, 7, generator=random).double(), mask)
    weighed = torch.rand(9, 2, generator=random).double()
    found = divergence_from(other, masked_softmax(scores, mask), kind)
    expected = VALUES[kind](masked_softmax(scores, mask), other)
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=1e-12)
    (slope,) = torch.autograd.grad((weighed * found).sum(), scores)
    (by_autograd,) = torch.autograd.grad((weighed * expected).sum(), scores)
    torch.testing.assert_close(slope, by_autograd, atol=1e-12, rtol=1e-9)
    assert not slope.transpose(1, 2)[~mask].any()


@pytest.mark.parametrize("kind", VALUES)
def test_gradient_equals_differences(kind: Any) -> None:
    """Along directions that keep the sum."""
    p, q = (torch.tensor([v]).double() for v in ([0.5, 0.3, 0.2], [0.1, 0.6, 0.3]))
    way, step = torch.tensor([[1.0, -0.4, -0.6]]).double(), 1e-6
    given = p.clone().requires_grad_()
    (slope,) = torch.autograd.grad(divergence_from(q, given, kind).sum(), given)
    ahead, behind = (divergence_from(q, p + sign * step * way, kind) for sign in (1, -1))
    assert float((slope * way).sum()) == pytest.approx(float(ahead - behind) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("kind", VALUES)
def test_blocks_change_nothing(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = (torch.rand(2, 23, 2, 5, generator=torch.Generator().manual_seed(0))).softmax(-1)
    found = []
    for block in (1, 70, 1 << 15):
        monkeypatch.setattr(fixed, "_BLOCK", block)
        given = p.clone().requires_grad_()
        value = fixed.divergence_from(q, given, kind)
        found.append((value, *torch.autograd.grad(value.square().sum(), given)))
    for value, slope in found[1:]:
        assert torch.equal(value, found[0][0])
        assert torch.equal(slope, found[0][1])
    assert fixed.divergence_from(q[:0], p[:0], kind).shape == (0, 2)


@pytest.mark.parametrize("kind", VALUES)
def test_nothing_on_either_side_is_finite(kind: Any) -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
    other = torch.tensor([[0.5, 0.5, 0.0], [1e-38, 1.0, 0.0]])
    found = divergence_from(other, p, kind)
    (slope,) = torch.autograd.grad(found.sum(), p)
    assert found.isfinite().all()
    assert slope.isfinite().all()

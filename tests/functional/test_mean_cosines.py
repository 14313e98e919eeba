import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.functional.mean_cosines import mean_cosines
from tests.functional.test_masking import random_mask


def by_loop(states: Tensor, mask: Tensor) -> list[list[float]]:
    """Cosine of each state with the mean of its text, by NumPy, one state at a time."""
    found = []
    for vectors, items in zip(states.double().numpy(), mask.numpy(), strict=True):
        mean = np.mean([vectors[n] for n in np.flatnonzero(items)], axis=0)
        row = []
        for vector, item in zip(vectors, items, strict=True):
            lengths = np.sqrt((vector**2).sum()) * np.sqrt((mean**2).sum())
            row.append(float((vector * mean).sum() / lengths) if item and lengths else 0.0)
        found.append(row)
    return found


def drawn(seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(5, 7, 4, generator=random).to(dtype) + 0.5, random_mask(5, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_equals_a_loop_at_any_scale(scale: float, dtype: torch.dtype) -> None:
    states, mask = drawn(dtype=dtype)
    states = states * scale
    states[0, 0] = 0
    found = mean_cosines(states, mask)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(found, by_loop(states, mask), rtol=0, atol=tolerance)
    assert (found[~mask] == 0).all()
    assert found[0, 0] == 0
    assert found.min() < 0 < found.max()


def test_gradients_are_those_of_finite_differences_and_finite_at_zero() -> None:
    states, mask = drawn()
    assert torch.autograd.gradcheck(lambda x: mean_cosines(x, mask), (states.requires_grad_(),))
    opposite = torch.tensor([[[1.0, -2.0], [-1.0, 2.0]], [[0.0, 0.0], [3.0, 1.0]]])
    opposite.requires_grad_()
    found = mean_cosines(opposite, torch.ones(2, 2, dtype=torch.bool))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    found.sum().backward()
    assert opposite.grad.isfinite().all()


def test_nothing_is_zero() -> None:
    assert mean_cosines(torch.ones(1, 2, 3), torch.zeros(1, 2).bool()).tolist() == [[0, 0]]

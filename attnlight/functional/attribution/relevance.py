"""Relevance through one operation: what is held fixed, and the linear recurrence that remains.

With all gates and quotients held fixed, an LSTM or GRU is a linear recurrence: from inputs u its
cell is `c_t = carry_t c_{t-1} + drive_t u_t + feedback_t W h_{t-1}` and its state
`h_t = readout_t c_t`. Everything is (N, B, H), tokens first.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from typing_extensions import override


class Coefficients(NamedTuple):
    """Coefficients of a linear recurrence, each (N, B, H)."""

    drive: Tensor
    carry: Tensor
    feedback: Tensor
    readout: Tensor


def quotient(values: Tensor, inputs: Tensor, slope: float) -> Tensor:
    """`f(z) / z` from the values f(z) and inputs z of a nonlinearity; its slope where z is 0."""
    return torch.where(inputs == 0, slope, values / inputs)


def kept_share(sums: Tensor, epsilon: float) -> Tensor:
    """Share of the relevance of a sum z that the epsilon rule passes to its terms.

    It is `z / (z + epsilon sign(z)) = |z| / (|z| + epsilon)`, and 1 where epsilon is 0.
    """
    size = sums.abs()
    return size / (size + epsilon) if epsilon else torch.ones_like(size)


def lstm_coefficients(
    inputs: Tensor, recurrent: Tensor, cell: Tensor, epsilon: float
) -> Coefficients:
    """The linear recurrence of an LSTM.

    Args:
        inputs: Contribution of the inputs to gates and candidates, (N, B, 4 H).
        recurrent: Contribution of the state before each token, (N, B, 4 H).
        cell: The cell before the first token, (B, H).
        epsilon: The stabiliser, at least 0.
    """
    enter, forget, candidate, leave = (inputs + recurrent).chunk(4, -1)
    enter, forget, leave = enter.sigmoid(), forget.sigmoid(), leave.sigmoid()
    activation, cells = candidate.tanh(), []
    for kept, added in zip(forget, enter * activation, strict=True):
        cell = torch.addcmul(added, kept, cell)
        cells.append(cell)
    cell = torch.stack(cells)
    share = kept_share(cell, epsilon)
    drive = share * enter * quotient(activation, candidate, 1.0) * kept_share(candidate, epsilon)
    return Coefficients(drive, share * forget, drive, leave * quotient(cell.tanh(), cell, 1.0))


def gru_coefficients(
    inputs: Tensor, recurrent: Tensor, states: Tensor, epsilon: float
) -> Coefficients:
    """The linear recurrence of a GRU with states (N, B, H); see `lstm_coefficients`."""
    reset, update, _ = (inputs + recurrent).sigmoid().chunk(3, -1)
    candidate = inputs.chunk(3, -1)[2] + reset * recurrent.chunk(3, -1)[2]
    share = kept_share(states, epsilon)
    drive = share * (1 - update) * quotient(candidate.tanh(), candidate, 1.0)
    drive = drive * kept_share(candidate, epsilon)
    return Coefficients(drive, share * update, reset * drive, torch.ones_like(states))


def linear_states(
    driven: Tensor, held: Coefficients, weight: Tensor, state: Tensor, cell: Tensor
) -> Tensor:
    """States of a linear recurrence with W (H, H), from `driven`, inputs times their coefficient.

    State and cell (B, H) are those before the first token.
    """
    states = []
    for added, carry, feedback, readout in zip(driven, *held[1:], strict=True):
        cell = torch.addcmul(torch.addcmul(added, feedback, state @ weight.mT), carry, cell)
        state = readout * cell
        states.append(state)
    return torch.stack(states)


class LinearRecurrence(Function):
    """The known states of a recurrence, with the gradient of `linear_states` by its inputs."""

    @staticmethod
    @override
    def forward(ctx: Any, driven: Tensor, known: Tensor, weight: Tensor, *held: Tensor) -> Tensor:
        ctx.save_for_backward(weight, *held)
        return known.clone()

    @staticmethod
    @once_differentiable
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, _, *held = ctx.saved_tensors
        carried = through = torch.zeros_like(gradient[0])  # from the next cell, and to its sum
        gradients = []
        for outer, carry, feedback, readout in zip(
            gradient.flip(0), *(part.flip(0) for part in held), strict=True
        ):
            through = torch.addcmul(carried, torch.addmm(outer, through, weight), readout)
            gradients.append(through)
            carried, through = carry * through, feedback * through
        return torch.stack(gradients).flip(0), *[None] * (2 + 4)

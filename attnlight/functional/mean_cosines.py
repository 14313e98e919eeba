"""How alike the states of a text are."""

import torch
from torch import Tensor


def mean_cosines(states: Tensor, mask: Tensor) -> Tensor:
    """Cosine of each state with the mean of its text's states, -1 to 1.

    Their mean over the items is the conicity of Mohankumar et al. (2020), for whom each state has its
    cosine, and whose code takes absolute values. Gradients are finite.

    Args:
        states: (B, N, D).
        mask: Items that attention may reach, (B, N) bool; the mean is over these.

    Returns:
        (B, N); 0 off the mask, of a state of zeros, and where the mean is zero.

    Example:
        >>> mean_cosines(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]]), torch.tensor([[1, 1, 0]]).bool())
        tensor([[0.7071, 0.7071, 0.0000]])
    """
    states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
    total = states.sum(1)  # of the direction of the mean
    lengths = [vectors.norm(dim=-1, keepdim=True) for vectors in (states, total)]
    own, common = (torch.where(length > 0, length, 1.0) for length in lengths)
    products = states @ (total / common).unsqueeze(-1)
    return (products / own).squeeze(-1)

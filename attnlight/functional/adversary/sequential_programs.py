"""Attention of large JS with the same prediction for a differentiable readout, by local search.

Adam improves random attentions, and sequential linear programming the best of them: the readout is
linearised at an attention, so that its Jacobian takes the place of item logits, and a program
maximises the linearised JS where the linearised prediction is within epsilon and no weight moves by
more than a radius. Exceeding epsilon has a price, so that each program has a solution. A step that
improves JS less this price is taken and doubles the radius; any other divides it by 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlight.functional.adversary.exact import js_from
from attnlight.functional.adversary.gradient_search import ascend, normal_scores
from attnlight.functional.adversary.linear_programs import Instance, Vector
from attnlight.functional.divergence import total_variation
from attnlight.functional.masking import allowed_classes

# Random attentions, and steps and learning rate of Adam; standard deviation of their scores.
STARTS, _STEPS, _RATE, _SCALE = 64, 300, 0.08, 3.0
# Price in nats of exceeding epsilon by as much again: JS at twice epsilon is at most twice as large
# where it is concave in epsilon. In the first third of its steps Adam has a sixth of it.
_PRICE = 0.6
# Share of epsilon that Adam aims at. Attentions that programs start from, the least total variation
# between them, and the most programs from each.
_AIM, _BEST, _APART, _ROUNDS = 0.9, 6, 0.1, 20
# Radius at first and at last, gain in nats below which an ascent ends, weight that counts as 0.
_RADIUS, _LEAST_RADIUS, _GAIN, _MIN_WEIGHT = 0.5, 2e-3, 1e-4, 1e-9
# Shares of the original attention mixed into what exceeds epsilon by little.
_MIXTURES = (0.0, 1e-6, 1e-4, 1e-2, 0.1)


@dataclass
class LocalSearch:
    """A search for attentions of R heads over N items.

    Args:
        readout: From attentions (R, K, N) to logits (R, K, C), differentiable.
        original: The model's attention, (R, N) float64, 0 off the mask.
        mask: Items that attention may be moved to, (R, N) bool; none in heads that are left out.
        epsilon: Largest total variation distance between predictions.
        evaluate: From heads (E,) and attentions (E, N) to the distance of each prediction over
            epsilon; it is given each attention that may be an answer.
    """

    readout: Callable[[Tensor], Tensor]
    original: Tensor
    mask: Tensor
    epsilon: float
    evaluate: Callable[[Tensor, Tensor], Tensor]

    def __post_init__(self) -> None:
        with torch.no_grad():
            self._logits = self.readout(self.original.unsqueeze(1))  # (R, 1, C)

    def run(self, keys: Tensor, seed: int) -> None:
        """Search from attentions drawn by keys, dataset index and position of B texts, (B, 2)."""
        heads = len(self.original) // max(len(keys), 1)
        scores = _SCALE * normal_scores(seed, keys, heads, STARTS, self.mask)
        attentions = ascend(scores, self.mask, self._objective, _STEPS, _RATE)
        self._climb(_distinct(attentions, self._merits(attentions, self._active(STARTS))))

    def _objective(self, attentions: Tensor, step: int) -> Tensor:
        distance = total_variation(
            self.readout(attentions).softmax(-1), self._logits.softmax(-1)
        )
        price = _PRICE if 3 * step >= _STEPS else _PRICE / 6
        excess = (distance / self.epsilon - _AIM).relu()
        return (js_from(self.original.unsqueeze(1), attentions) - price * excess).sum()

    def _active(self, starts: int) -> Tensor:
        """(R, S) bool, false in heads that are left out."""
        return self.mask.any(-1, keepdim=True).repeat(1, starts)

    def _merits(self, attentions: Tensor, active: Tensor) -> Tensor:
        """JS of active attentions (R, S, N) less the price of exceeding epsilon; else -inf."""
        heads = active.nonzero()[:, 0]
        own, tried = self.original[heads], attentions[active]
        mixed = torch.cat([torch.lerp(tried, own, share) for share in _MIXTURES])
        distance = self.evaluate(heads.repeat(len(_MIXTURES)), mixed)[: len(heads)]
        merits = attentions.new_full(active.shape, -torch.inf)
        merits[active] = js_from(own, tried) - _PRICE * (distance - 1).relu()
        return merits

    def _climb(self, points: Tensor) -> None:
        """Improve attentions (R, S, N) by linear programs, until their gains are small."""
        active = self._active(points.shape[1])
        radius, merits = points.new_full(active.shape, _RADIUS), self._merits(points, active)
        for _ in range(_ROUNDS):
            if not active.any():
                return
            items, proposed = self._linearized(points), points.clone()
            for head, start in active.nonzero().tolist():
                program = points[head, start], items[head, start], float(radius[head, start])
                proposed[head, start] = self._solve(head, *program)
            gains = self._merits(proposed, active) - merits
            better = gains > 0
            points = torch.where(better.unsqueeze(-1), proposed, points)
            merits = torch.where(better, merits + gains, merits)
            radius = torch.where(better, (2 * radius).clamp(max=1.0), radius / 4)
            active &= torch.where(better, gains >= _GAIN, radius > _LEAST_RADIUS)

    def _linearized(self, points: Tensor) -> Tensor:
        """Item logits (R, S, N, C) with the value and the Jacobian of the readout at each point."""
        with torch.enable_grad():
            free = points.detach().requires_grad_()
            logits = self.readout(free)
            jacobian = torch.stack(
                [
                    torch.autograd.grad(column.sum(), free, retain_graph=True)[0]
                    for column in logits.unbind(-1)
                ],
                dim=-1,
            )
        constant = logits.detach() - (points.unsqueeze(-1) * jacobian).sum(-2)
        return jacobian + constant.unsqueeze(-2)

    def _solve(self, head: int, point: Tensor, items: Tensor, radius: float) -> Tensor:
        """Attention (N,) of the program at a point with linearised item logits (N, C).

        The point itself if the solver fails.
        """
        # Without padding, which could change the solver's choice among equal optima.
        mask, logits = self.mask[head], self._logits[head, 0]
        allowed = allowed_classes(logits)
        here, own, items_, logits_ = (
            part.cpu().numpy()
            for part in (point[mask], self.original[head, mask], items[mask][:, allowed], logits[allowed])
        )
        instance = Instance(own, items_, logits_, self.epsilon)
        limits = np.maximum(here - radius, 0.0), np.minimum(here + radius, 1.0)
        solved = instance.solve(-instance.slope(here), instance.shift(here), limits, _PRICE)
        if solved is None:
            return point
        solved = np.where(solved > _MIN_WEIGHT, solved, 0.0)
        result = torch.zeros_like(point)
        result[mask] = torch.from_numpy(solved / solved.sum()).to(point)
        return result


def _distinct(attentions: Tensor, merits: Tensor) -> Tensor:
    """The best attentions (R, S, N) of (R, K, N) by merits (R, K), apart from each other."""
    rows, chosen = torch.arange(len(attentions), device=attentions.device), []
    for _ in range(_BEST):
        best = attentions[rows, merits.argmax(-1)]
        chosen.append(best)
        near = total_variation(attentions, best.unsqueeze(1)) < _APART
        merits = merits.masked_fill(near, -torch.inf)
    return torch.stack(chosen, dim=1)

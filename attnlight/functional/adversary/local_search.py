"""Attention of large JS with the same prediction for a differentiable readout, by local search.

Sequential linear programming from random attentions: the readout is linearised at an attention, so
that its Jacobian takes the place of item logits, and a program maximises the linearised JS where the
linearised prediction is within epsilon and no weight moves by more than a radius. Exceeding epsilon
has a price, so that each program has a solution. A step that improves JS less this price is taken
and doubles the radius; any other divides it by 4.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.functional.adversary.exact import js_from
from attnlight.functional.adversary.gradient_search import normal_scores
from attnlight.functional.adversary.linear_programs import Instance, solve
from attnlight.functional.divergence import total_variation
from attnlight.functional.masking import allowed_classes, masked_softmax

# Number of random attentions, and least and largest standard deviation of their scores; largest
# number of programs from each, and how many are affordable where evaluations are limited.
_STARTS, _SPREAD, _ROUNDS, _FEW_ROUNDS = 30, (0.9, 6.0), 30, 10
# Price in nats of exceeding epsilon by as much again: JS at twice epsilon is at most twice as large
# where it is concave in epsilon.
_PRICE = 0.6
# Radius at first and at last, gain in nats below which an ascent ends, weight that counts as 0.
_RADIUS, _LEAST_RADIUS, _GAIN, _MIN_WEIGHT = 0.5, 2e-3, 1e-4, 1e-9
# Of a head: its linear programs, its items (N,) bool and its classes (C,) bool.
Case = tuple[Instance, NDArray[np.bool_], NDArray[np.bool_]]
_GOLDEN = (1 + 5**0.5) / 2
_TRIED = (
    3  # evaluations for a program beside the gradient of each class: a value, and two attentions
)
# Largest distance over epsilon at which mixing in the original attention is tried.
_NEARLY = 1.5


def most_evaluations(classes: int) -> int:
    """Most evaluations of the readout for a head of up to 100 items, where a gradient counts as two.

    Those of mixtures of few items included, of which there are at most 2,880.
    """
    return 3000 + (_STARTS + 1) * (2 + _ROUNDS * (2 * classes + _TRIED))


@dataclass
class LocalSearch:
    """A search for attentions of R heads over N items.

    Args:
        readout: From attentions (R, K, N) to logits (R, K, C).
        original: The model's attention, (R, N) float64, 0 off the mask.
        mask: Items that attention may be moved to, (R, N) bool; none in heads that are left out.
        epsilon: Largest total variation distance between predictions.
        best: The best known attention that preserves the prediction, (R, N).
        js: Its JS, (R,).
    """

    readout: Callable[[Tensor], Tensor]
    original: Tensor
    mask: Tensor
    epsilon: float
    best: Tensor
    js: Tensor

    def starts(
        self, keys: Tensor, seed: int, evaluations: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`best` and random attentions to start from, and how many programs they may take.

        Args:
            keys: Dataset index and position of each text, (B, 2), R a multiple of B.
            seed: Seed of the random attentions.
            evaluations: Most evaluations of the readout for a head, where a gradient counts as two
                more; None: no limit.

        Returns:
            Attentions (R, S, N); which of them are starts, (R, S) bool, none where the readout is not
            differentiable; and the most programs for each head, (R,).
        """
        with torch.enable_grad():
            logits = self.readout(self.original.clone().requires_grad_().unsqueeze(1))
        self._logits = logits.detach().nan_to_num()  # (R, 1, C), NaN in heads that are left out
        cost = 2 * allowed_classes(self._logits.squeeze(1)).sum(-1) + _TRIED
        starts, programs = torch.full_like(cost, _STARTS), torch.full_like(self.js, torch.inf)
        if evaluations is not None:
            starts = ((evaluations - 1) // (_FEW_ROUNDS * cost + 2)).clamp(0, _STARTS)
            programs = (evaluations - 1 - 2 * (starts + 1)) // cost
        heads, places = len(self.original) // max(len(keys), 1), torch.arange(_STARTS + 1)
        places = places.to(keys.device)
        # Multiples of the golden ratio: the first few are spread as well.
        spread = _SPREAD[0] + (_SPREAD[1] - _SPREAD[0]) * (places[1:].double() * _GOLDEN % 1)
        normal = normal_scores(seed, keys, heads, _STARTS, self.mask)
        attentions = masked_softmax(spread.unsqueeze(-1) * normal, self.mask)
        points = torch.cat([self.best.unsqueeze(1), attentions], dim=1)
        active = self.mask.any(-1, keepdim=True) & (places <= starts.unsqueeze(1))
        return points, active & (programs > 0).unsqueeze(1) & logits.requires_grad, programs

    def climb(self, points: Tensor, active: Tensor, programs: Tensor) -> None:
        """Improve active attentions (R, S, N) until gains are small or programs are spent.

        `best` and `js` are replaced by what is better. Arguments are what `starts` returns.
        """
        if not active.any():
            return
        most = int(active.sum(-1).max())
        points, active = points[:, :most], active[:, :most]
        radius, merits = points.new_full(active.shape, _RADIUS), self._merits(points, active)
        left, instances = programs.double(), self._instances()
        for _ in range(_ROUNDS):
            # The best of those that go on, as many as there are programs left.
            merits = merits.masked_fill(~active, -torch.inf)
            order = merits.argsort(dim=-1, descending=True, stable=True)
            order = order[:, : int(active.sum(-1).max())]
            points = points.gather(1, order.unsqueeze(-1).expand(*order.shape, points.shape[-1]))
            radius, merits, active = (part.gather(1, order) for part in (radius, merits, active))
            active &= torch.arange(order.shape[1], device=order.device) < left.unsqueeze(1)
            active &= (self.js < math.log(2)).unsqueeze(1)  # of which there is no more
            if not active.any():
                return
            left = left - active.sum(-1)
            arrays = [x.cpu().numpy() for x in (points, self._linearized(points), radius, active)]
            solved = [_improved(*each) for each in zip(instances, *arrays, strict=True)]
            proposed = torch.from_numpy(np.stack(solved)).to(points)
            gains = self._merits(proposed, active) - merits
            better = gains > 0
            points = torch.where(better.unsqueeze(-1), proposed, points)
            merits = torch.where(better, merits + gains, merits)
            radius = torch.where(better, (2 * radius).clamp(max=1.0), radius / 4)
            active &= torch.where(better, gains >= _GAIN, radius > _LEAST_RADIUS)

    def _merits(self, attentions: Tensor, active: Tensor) -> Tensor:
        """JS of active attentions (R, S, N) less the price of exceeding epsilon; else -inf."""
        original = self.original.unsqueeze(1)
        distance, js = self._try(attentions, active)
        # The distance is nearly proportional to the share that is not of the original attention.
        nearly = active & (distance > 1) & (distance < _NEARLY)
        share = 1 - 1 / ((1 + 1e-5) * distance.clamp(1, _NEARLY) ** 1.05)
        if nearly.any():
            self._try(torch.lerp(attentions, original, share.unsqueeze(-1)), nearly)
        merits = js - _PRICE * (distance - 1).relu()
        return merits.masked_fill(~active, -torch.inf).nan_to_num(-torch.inf)

    def _try(self, attentions: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Distance over epsilon and JS (R, S) of attentions (R, S, N); the best chosen one is kept."""
        prediction = self.readout(attentions).softmax(-1)
        distance = total_variation(prediction, self._logits.softmax(-1)) / self.epsilon
        js = js_from(self.original.unsqueeze(1), attentions)
        highest, place = js.masked_fill(~(chosen & (distance <= 1)), -1.0).max(-1)
        better, rows = highest > self.js, torch.arange(len(js), device=js.device)
        self.best = torch.where(better[:, None], attentions[rows, place], self.best)
        self.js = torch.where(better, highest, self.js)
        return distance, js

    def _linearized(self, points: Tensor) -> Tensor:
        """Item logits (R, S, N, C) with the value and the Jacobian of the readout at each point."""
        with torch.enable_grad():
            free = points.detach().requires_grad_()
            logits = self.readout(free)
            columns = [
                torch.autograd.grad(column.sum(), free, retain_graph=True)[0]
                for column in logits.unbind(-1)
            ]
        jacobian = torch.stack(columns, dim=-1)
        constant = logits.detach() - (points.unsqueeze(-1) * jacobian).sum(-2)
        return jacobian + constant.unsqueeze(-2)

    def _instances(self) -> list[Case]:
        """Each head's items and allowed classes as linear programs see them, and which these are."""
        found, allowed = [], allowed_classes(self._logits.squeeze(1))
        parts = (self.original, self._logits.squeeze(1), self.mask, allowed)
        for weights, logits, items, classes in zip(*(x.cpu().numpy() for x in parts), strict=True):
            known = logits[classes]
            found.append((Instance(weights[items], known, known, self.epsilon), items, classes))
        return found


def _improved(
    case: Case,
    points: NDArray[np.float64],
    items: NDArray[np.float64],
    radius: NDArray[np.float64],
    active: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The attentions (S, N) of the programs at active points (S, N) of a head, else these points.

    Args:
        case: Of `LocalSearch._instances`.
        points: Attentions, (S, N).
        items: Linearised item logits, (S, N, C).
        radius: Most by which a weight may move, (S,).
        active: Points that have a program, (S,).
    """
    # Without padding, which could change the solver's choice among equal optima.
    (instance, mask, allowed), improved = case, points.copy()
    logits = items[:, mask][:, :, allowed] - instance.original_logits
    chosen, programs = np.flatnonzero(active & np.isfinite(logits).all((1, 2))), []
    for start in chosen:
        point, instance.logits = points[start, mask], logits[start]
        # The gradient of JS is 0 at the original attention: minimise the overlap with it instead.
        flat = np.allclose(point, instance.weights)
        costs = instance.weights if flat else -instance.slope(point)
        limits = (point - radius[start]).clip(min=0.0), (point + radius[start]).clip(max=1.0)
        programs.append(instance.program(costs, instance.shift(point), limits, _PRICE))
    for start, solution in zip(chosen, solve(programs) or (), strict=False):
        weights = solution[: mask.sum()]
        weights = np.where(weights > _MIN_WEIGHT, weights, 0.0)
        improved[start, mask] = weights / weights.sum()
    return improved

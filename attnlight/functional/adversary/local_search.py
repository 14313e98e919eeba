"""Attention of large JS with the same prediction for a differentiable readout, by local search.

Adam improves random attentions, and sequential linear programming the best of them: the readout is
linearised at an attention, so that its Jacobian takes the place of item logits, and a program
maximises the linearised JS where the linearised prediction is within epsilon and no weight moves by
more than a radius. Exceeding epsilon has a price, so that each program has a solution. A step that
improves JS less this price is taken and doubles the radius; any other divides it by 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlight.functional.adversary.exact import js_from
from attnlight.functional.adversary.gradient_search import ascend, normal_scores
from attnlight.functional.adversary.linear_programs import Instance, Vector
from attnlight.functional.divergence import total_variation
from attnlight.functional.masking import allowed_classes

# Share of epsilon that Adam aims at; least total variation between attentions that programs start from.
_AIM, _APART = 0.9, 0.1
# Price in nats of exceeding epsilon by as much again: JS at twice epsilon is at most twice as large
# where it is concave in epsilon. In the first third of its steps Adam has a sixth of it.
_PRICE = 0.6
# Radius at first and at last, gain in nats below which an ascent ends, weight that counts as 0.
_RADIUS, _LEAST_RADIUS, _GAIN, _MIN_WEIGHT = 0.5, 2e-3, 1e-4, 1e-9
# Largest distance over epsilon at which mixing in the original attention is tried.
_NEARLY = 1.5


class Effort(NamedTuple):
    """What a search may take.

    Attributes:
        starts: Number of random attentions.
        scale: Standard deviation of their scores.
        steps: Number of steps of Adam.
        rate: Learning rate of Adam.
        best: Number of attentions that programs start from, beside the best known one.
        rounds: Largest number of programs from each.
    """

    starts: int = 64
    scale: float = 3.0
    steps: int = 300
    rate: float = 0.08
    best: int = 5
    rounds: int = 30

    @staticmethod
    def within(evaluations: int, classes: int) -> Effort | None:
        """The effort of at most that many evaluations of the readout a head; None: too few.

        A gradient counts as two more evaluations. Adam takes less than half of them, in equal parts of
        its starts and steps, so that these are few: they change scores of less spread faster.
        """
        full = Effort()
        part = math.sqrt(0.15 * evaluations / (full.starts * full.steps))
        if part >= 1:
            return full
        starts, steps = max(1, int(part * full.starts)), max(1, int(part * full.steps))
        best = max(1, round(math.sqrt(part) * full.best))
        left = evaluations - starts * (3 * steps + 2) - 1
        rounds = min(full.rounds, (left // (best + 1) - 2) // (2 * classes + 3))
        rate = full.rate / math.sqrt(part)
        return Effort(starts, full.scale / 2, steps, rate, best, rounds) if rounds > 0 else None


@dataclass
class LocalSearch:
    """A search for attentions of R heads over N items.

    Args:
        readout: From attentions (R, K, N) to logits (R, K, C).
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

    def run(self, initial: Tensor, keys: Tensor, seed: int, evaluations: int | None) -> None:
        """Search from random attentions, and linear programs also from a given one.

        Nothing is searched where the readout is not differentiable.

        Args:
            initial: Best known attentions, (R, N).
            keys: Dataset index and position of each text, (B, 2), R a multiple of B.
            seed: Seed of the random attentions.
            evaluations: Most evaluations of the readout for a head; None: no limit.
        """
        with torch.enable_grad():
            logits = self.readout(self.original.clone().requires_grad_().unsqueeze(1))
        self._logits, classes = logits.detach(), logits.shape[-1]  # (R, 1, C)
        effort = Effort() if evaluations is None else Effort.within(evaluations, classes)
        if effort is None or not logits.requires_grad:
            return
        self._effort = effort
        heads = len(self.original) // max(len(keys), 1)
        scores = effort.scale * normal_scores(seed, keys, heads, effort.starts, self.mask)
        attentions = ascend(scores, self.mask, self._objective, effort.steps, effort.rate)
        merits = self._merits(attentions, self._active(effort.starts))
        best = _distinct(attentions, merits, effort.best)
        self._climb(torch.cat([initial.unsqueeze(1), best], dim=1))

    def _objective(self, attentions: Tensor, step: int) -> Tensor:
        """A sum whose gradient is that of JS less the price of exceeding the aim."""
        distance = total_variation(self.readout(attentions).softmax(-1), self._logits.softmax(-1))
        price = _PRICE if 3 * step >= self._effort.steps else _PRICE / 6
        excess = (distance / self.epsilon - _AIM).relu()
        # JS itself would take several times as many operations as its gradient.
        fixed, tiny = attentions.detach(), torch.finfo(attentions.dtype).tiny
        total = (fixed + self.original.unsqueeze(1)).clamp(min=tiny)
        slope = (2 * fixed / total).clamp(min=tiny).log() / 2
        return (slope * attentions).sum() - price * excess.sum()

    def _active(self, starts: int) -> Tensor:
        """(R, S) bool, false in heads that are left out."""
        return self.mask.any(-1, keepdim=True).repeat(1, starts)

    def _merits(self, attentions: Tensor, active: Tensor) -> Tensor:
        """JS of active attentions (R, S, N) less the price of exceeding epsilon; else -inf."""
        heads = active.nonzero()[:, 0]
        original, tried = self.original[heads], attentions[active]
        distance = self.evaluate(heads, tried)
        merits = attentions.new_full(active.shape, -torch.inf)
        merit = js_from(original, tried) - _PRICE * (distance - 1).relu()
        merits[active] = merit.nan_to_num(-torch.inf)
        # The distance is nearly proportional to the share that is not of the original attention.
        nearly = (distance > 1) & (distance < _NEARLY)
        share = (1 - 1 / ((1 + 1e-5) * distance**1.05))[nearly].unsqueeze(-1)
        self.evaluate(heads[nearly], torch.lerp(tried[nearly], original[nearly], share))
        return merits

    def _climb(self, points: Tensor) -> None:
        """Improve attentions (R, S, N) by linear programs, until their gains are small."""
        active = self._active(points.shape[1])
        radius, merits = points.new_full(active.shape, _RADIUS), self._merits(points, active)
        programs = {head: self._program(head) for head in active.any(-1).nonzero()[:, 0].tolist()}
        for _ in range(self._effort.rounds):
            if not active.any():
                return
            given = points[active], self._linearized(points)[active], radius[active]
            arguments = zip(*(part.cpu().numpy() for part in given), strict=True)
            heads = active.nonzero()[:, 0].tolist()
            solved = [programs[head](*each) for head, each in zip(heads, arguments, strict=True)]
            proposed = points.clone()
            proposed[active] = torch.from_numpy(np.stack(solved)).to(points)
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
            columns = [
                torch.autograd.grad(column.sum(), free, retain_graph=True)[0]
                for column in logits.unbind(-1)
            ]
        jacobian = torch.stack(columns, dim=-1)
        constant = logits.detach() - (points.unsqueeze(-1) * jacobian).sum(-2)
        return jacobian + constant.unsqueeze(-2)

    def _program(self, head: int) -> Callable[[Vector, Vector, float], Vector]:
        """From an attention (N,), item logits (N, C) and a radius to the program's attention (N,).

        It returns the given attention where item logits are not finite or the solver fails.
        """
        mask, weights, logits = (
            part[head].cpu().numpy() for part in (self.mask, self.original, self._logits[:, 0])
        )
        allowed = allowed_classes(self._logits[head, 0]).cpu().numpy()
        logits = logits[allowed]
        instance = Instance(weights[mask], logits, logits, self.epsilon)

        def program(attention: Vector, items: Vector, radius: float) -> Vector:
            # Without padding, which could change the solver's choice among equal optima.
            point, instance.logits = attention[mask], items[mask][:, allowed] - logits
            # JS is flat at the original attention, from which the least overlap leads away.
            flat = np.allclose(point, instance.weights)
            costs = instance.weights if flat else -instance.slope(point)
            limits = np.maximum(point - radius, 0.0), np.minimum(point + radius, 1.0)
            result, solved = attention.copy(), None
            if np.isfinite(instance.logits).all():
                solved = instance.solve(costs, instance.shift(point), limits, _PRICE)
            if solved is not None:
                solved = np.where(solved > _MIN_WEIGHT, solved, 0.0)
                result[mask] = solved / solved.sum()
            return result

        return program


def _distinct(attentions: Tensor, merits: Tensor, count: int) -> Tensor:
    """The best attentions (R, S, N) of (R, K, N) by merits (R, K), apart from each other."""
    rows, chosen = torch.arange(len(attentions), device=attentions.device), []
    for _ in range(count):
        best = attentions[rows, merits.argmax(-1)]
        chosen.append(best)
        near = total_variation(attentions, best.unsqueeze(1)) < _APART
        merits = merits.masked_fill(near, -torch.inf)
    return torch.stack(chosen, dim=1)

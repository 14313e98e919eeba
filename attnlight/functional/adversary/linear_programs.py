"""Attention far from a given one that keeps the prediction of several classes, by linear programs.

Let q be the prediction and z_c(a) the logits that attention a reads out, less those of the given
attention. The prediction of a is within total variation epsilon of q if and only if, for some number
k and x_c = z_c(a) - k,

    sum_c q_c max(exp(x_c) - 1, 0) <= epsilon   and   sum_c q_c max(1 - exp(x_c), 0) <= epsilon.

With k the log ratio of the normalisers q_c exp(x_c) is the prediction of a and both sums are the
distance. Conversely, where the q_c exp(x_c) add up to 1 or more, the prediction of a exceeds q nowhere
by more than the terms of the first sum, and otherwise it falls short nowhere by more than those of
the second. Both sums have upper bounds that are linear in pieces and convex: chords of the first,
tangents of the second. A program under these bounds therefore finds attention that keeps the
prediction, and the bounds are exact at the attention they are made at, so that a sequence of programs
that climb the Jensen-Shannon divergence, which is convex, by its gradient does not descend.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Vector = NDArray[np.float64]

# Programs for a row, of which one with 20 classes and 200 items takes some 5 ms; the gain in nats
# below which the climb ends.
_PROGRAMS, _GAIN = 8, 1e-4
# Weight at which the gradient of JS is taken for items below it: at 0 it is infinite.
_FLOOR = 0.01
# Share of epsilon that is left to the solver's tolerance, and shares of the given attention that are
# mixed in where that is not enough.
_MARGIN, _MIXED = 1e-6, (0.0, 1e-6, 1e-4, 1e-2)
# Width below which a piece of a bound is none; weights below which an item has none.
_NARROW, _NO_WEIGHT = 1e-12, 1e-9


def attention_by_programs(own: Tensor, items: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """Attention with a large JS from the model's own that moves the prediction by <= epsilon.

    A local maximum of JS: a climb that starts at the least overlap with the own attention, then
    climbs that start without one of the items of the best answer, for the heaviest in the own
    attention first.

    Args:
        own: The model's attention, (R, N) float64, 0 off the mask.
        items: Item logits (R, N, C) float64, finite.
        mask: What attention may reach, (R, N) bool.
        epsilon: Largest total variation distance between the predictions.

    Returns:
        (R, N) float64; `own` where nothing better is found.
    """
    weights, logits, reach = (part.cpu().numpy() for part in (own, items, mask))
    found = weights.copy()
    for row in np.flatnonzero(reach.sum(-1) > 1):
        # The items alone, so that padding cannot turn the solver to another of equal answers.
        kept = reach[row]
        instance = _Instance(weights[row, kept], logits[row, kept], epsilon)
        best = instance.climb(instance.weights, instance.weights)
        left_out: set[int] = set()
        while instance.programs < _PROGRAMS:
            used = np.flatnonzero(best > _NO_WEIGHT)
            used = used[~np.isin(used, list(left_out))]
            if not len(used):
                break
            item = int(used[instance.weights[used].argmax()])
            left_out.add(item)
            other = instance.climb(best, -instance.slope(best), without=item)
            best = max(best, other, key=instance.js)
        found[row, kept] = best
    return torch.from_numpy(found).to(own)


class _Instance:
    """One attention distribution over N items, and others that keep its prediction of C classes.

    Args:
        weights: (N,), summing to 1.
        logits: Item logits, (N, C).
        epsilon: Largest total variation distance between the predictions.

    Attributes:
        logits: Item logits less the logits of `weights`, (N, C).
        log_prediction: (C,).
        highest: How far each log probability can rise, (C,).
        programs: How many were solved.
    """

    def __init__(self, weights: Vector, logits: Vector, epsilon: float) -> None:
        from scipy.special import log_softmax

        own = weights @ logits
        self.weights, self.logits, self.epsilon = weights, logits - own, epsilon
        self.log_prediction: Vector = log_softmax(own)
        highest = np.logaddexp(self.log_prediction, np.log(epsilon)) - self.log_prediction
        self.highest, self.programs = highest, 0

    def climb(self, start: Vector, costs: Vector, without: int | None = None) -> Vector:
        """The attention (N,) that programs reach from a start, the first with given costs (N,)."""
        best, best_js, at = self.weights, 0.0, start
        while self.programs < _PROGRAMS:
            solved = self.solve(costs, self.moved(at), without)
            at = self.weights
            if solved is not None:
                # Without what the solver's tolerance added, and as near to it as keeps the prediction.
                solved = np.where(solved > _NO_WEIGHT, solved, 0.0)
                solved = solved / max(solved.sum(), _NO_WEIGHT)
                for share in _MIXED:
                    mixed = solved + share * (self.weights - solved)
                    prediction = np.exp(self.log_prediction + self.moved(mixed))
                    change = prediction - np.exp(self.log_prediction)
                    if np.abs(change).sum() / 2 <= self.epsilon:
                        at = mixed
                        break
            js = self.js(at)
            if js > best_js:
                best = at
            if js < best_js + _GAIN:
                break
            best_js, costs, without = js, -self.slope(at), None
        return best

    def solve(self, costs: Vector, moved: Vector, without: int | None) -> Vector | None:
        """The attention (N,) of least cost (N,) under bounds that are exact at x = moved (C,).

        None where the solver finds none.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        self.programs += 1
        items, classes = self.logits.shape
        width, rise, fall, spent = self.bounds(moved)
        one, none = np.eye(classes), np.zeros
        # Columns: attention, k, and each x as its first piece, the rest above it, and below 0.
        matrix = np.vstack(
            [
                np.hstack([self.logits.T, -np.ones((classes, 1)), -one, -one, one]),
                np.concatenate([np.ones(items), none(1 + 3 * classes)]),
                np.concatenate([none(items + 1), *rise, none(classes)]),
                np.concatenate([none(items + 1), fall[0], none(classes), fall[1]]),
            ]
        )
        budget = 1 - _MARGIN
        low = np.concatenate([none(classes), [1.0, -np.inf, -np.inf]])
        high = np.concatenate([none(classes), [1.0, budget, budget - spent]])
        lowest = none(len(matrix.T))
        lowest[items] = -np.inf
        most = np.concatenate([np.ones(items), [np.inf], *width, np.full(classes, np.inf)])
        if without is not None:
            most[without] = 0.0
        solution = milp(  # without whole numbers: a linear program, with half the rows of linprog
            np.concatenate([costs, none(1 + 3 * classes)]),
            constraints=LinearConstraint(matrix, low, high),
            bounds=Bounds(lowest, most),
            options={"presolve": False},
        )
        return None if solution.x is None else solution.x[:items]

    def bounds(self, moved: Vector) -> tuple[list[Vector], list[Vector], list[Vector], float]:
        """What a program spends of epsilon, by classes (C,), for bounds exact at x = moved (C,).

        Returns:
            Widths of the two pieces of x above 0; what a unit of each adds to the first sum; what a
            unit of the first piece and one below 0 add to the second sum; and the second sum at 0.
        """
        prediction = np.exp(self.log_prediction)
        below = np.minimum(moved, 0.0)
        # A tangent at x < 0 reaches 0 at x + exp(-x) - 1 > 0.
        first = np.where(moved < 0, below + np.expm1(np.minimum(-below, 700.0)), moved)
        bent = first > _NARROW
        first = np.where(bent, first, self.highest / 2)
        first = np.clip(first, _NARROW, self.highest)
        last = np.maximum(self.highest - first, 0.0)
        risen = (
            np.exp(self.log_prediction + first - np.log(self.epsilon)) - prediction / self.epsilon
        )
        slope = prediction * np.exp(below) / self.epsilon
        spent = prediction / self.epsilon * (-np.expm1(below) + np.exp(below) * below)
        rise = [risen / first, (1 - risen).clip(min=0) / last.clip(min=_NARROW)]
        fall = [np.where(bent & (moved < 0), -slope, 0.0), slope]
        return [first, last], rise, fall, float(spent.sum())

    def moved(self, attention: Vector) -> Vector:
        """How far attention (N,) moves the log probabilities, (C,)."""
        from scipy.special import log_softmax

        moved: Vector = log_softmax(self.log_prediction + attention @ self.logits)
        return moved - self.log_prediction

    def slope(self, attention: Vector) -> Vector:
        """The gradient (N,) of JS at attention (N,), of items of little weight where they have some."""
        weight = np.maximum(attention, _FLOOR)
        return np.log(2 * weight / (weight + self.weights)) / 2

    def js(self, attention: Vector) -> float:
        from scipy.special import rel_entr

        middle = (attention + self.weights) / 2
        return float((rel_entr(attention, middle) + rel_entr(self.weights, middle)).sum() / 2)

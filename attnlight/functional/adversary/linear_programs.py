"""Attention of large JS that preserves the prediction of several classes, by linear programs.

Let q be the prediction and z_c(a) the logits of attention a minus those of the original attention.
The prediction of a is within total variation epsilon of q if and only if, for some number k and
x_c = z_c(a) - k,

    sum_c q_c max(exp(x_c) - 1, 0) <= epsilon   and   sum_c q_c max(1 - exp(x_c), 0) <= epsilon.

If k is the log ratio of the normalisers, q_c exp(x_c) is the prediction of a and both sums equal
the distance. Conversely, if the q_c exp(x_c) add up to 1 or more, the prediction of a exceeds q by
at most the terms of the first sum, and otherwise it falls short of q by at most those of the
second. Both sums have convex, piecewise linear upper bounds: chords of the first, tangents of the
second. A linear program under these bounds therefore gives attention that preserves the prediction.
The bounds are exact at the attention they are constructed at and the Jensen-Shannon divergence is
convex, so a sequence of programs that maximise its linearisation does not decrease it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.functional.adversary.exact import ROUNDING

Vector = NDArray[np.float64]

# Programs per row, one of which takes some 5 ms for 20 classes and 200 items; the gain in nats
# below which the ascent ends.
_PROGRAMS, _GAIN = 8, 1e-4
# Lower limit of weights in the gradient of JS, which is infinite at 0.
_FLOOR = 0.01
# Share of epsilon reserved for the solver's tolerance, and shares of the original attention mixed
# in where that is not enough.
_MARGIN, _MIXTURES = 1e-6, (0.0, 1e-6, 1e-4, 1e-2)
# Share of epsilon that the classes left out of a program may add up to; how often some are taken in.
_REST, _ROUNDS = 0.01, 3
# Least width of a piece of a bound; weight below which an item counts as unused.
_MIN_WIDTH, _MIN_WEIGHT = 1e-12, 1e-9
_STEP = 1e-5  # of costs from an item without weight to the next, above the solver's tolerance


def linear_program_attention(
    original: Tensor, items: Tensor, mask: Tensor, epsilon: float
) -> Tensor:
    """Attention with a large JS from the original that moves the prediction by <= epsilon.

    A local maximum of JS. The first ascent starts at the least overlap with the original attention;
    each further one excludes an item of the best solution from its first program, in descending
    order of original weight.

    Args:
        original: The model's attention, (R, N) float64, 0 off the mask.
        items: Item logits (R, N, C) float64, finite.
        mask: Items that attention may reach, (R, N) bool.
        epsilon: Largest total variation distance between predictions.

    Returns:
        (R, N) float64; `original` where no program improves on it.
    """
    weights, logits, reach = (part.cpu().numpy() for part in (original, items, mask))
    solutions = weights.copy()
    for row in np.flatnonzero(reach.sum(-1) > 1):
        # Without padding, which could change the solver's choice among equal optima.
        row_items = reach[row]
        own, row_logits = weights[row, row_items], logits[row, row_items]
        instance = Instance(own, row_logits, own @ row_logits, epsilon)
        best = instance.climb(instance.weights, instance.weights)
        excluded: set[int] = set()
        while instance.programs < _PROGRAMS:
            support = np.flatnonzero(best > _MIN_WEIGHT)
            support = support[~np.isin(support, list(excluded))]
            if not len(support):
                break
            item = int(support[instance.weights[support].argmax()])
            excluded.add(item)
            other = instance.climb(best, -instance.slope(best), excluded=item)
            best = max(best, other, key=instance.js)
        solutions[row, row_items] = best
    return torch.from_numpy(solutions).to(original)


class Program(NamedTuple):
    """A linear program: `costs` (n,) of variables, between `least` and `most`, and m constraints.

    Their `matrix` is (m, n), and their values are between `low` and `high`, (m,).
    """

    costs: Vector
    matrix: Vector
    low: Vector
    high: Vector
    least: Vector
    most: Vector


def solve(programs: Sequence[Program]) -> list[Vector] | None:
    """The solution (n,) of each program; None if the solver fails.

    Several are solved as one block-diagonal program, which takes a third of the time.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_diag

    if not programs:
        return []
    costs, matrices, low, high, least, most = zip(*programs, strict=True)
    matrix = matrices[0] if len(matrices) == 1 else block_diag(matrices, format="csc")
    solution = milp(  # no integers: a linear program, with half the rows of linprog
        np.concatenate(costs),
        constraints=LinearConstraint(matrix, np.concatenate(low), np.concatenate(high)),
        bounds=Bounds(np.concatenate(least), np.concatenate(most)),
        options={"presolve": False},
    )
    ends = np.cumsum([len(cost) for cost in costs])[:-1]
    return None if solution.x is None else np.split(solution.x, ends)


class Instance:
    """An attention distribution over N items, and programs for others with its prediction.

    Args:
        weights: (N,), summing to 1.
        logits: Item logits, (N, C).
        original_logits: Logits of `weights`, (C,).
        epsilon: Largest total variation distance between predictions.

    Attributes:
        logits: Item logits less the logits of `weights`, (N, C).
        original_logits: As given, (C,).
        log_prediction: (C,).
        highest: Largest increase of each log probability, (C,).
        heavy: The most probable classes, (C,) bool; the others add up to `_REST` of epsilon at most.
        programs: Number of programs solved, one whose classes were too few not counted.
    """

    def __init__(
        self, weights: Vector, logits: Vector, original_logits: Vector, epsilon: float
    ) -> None:
        from scipy.special import log_softmax

        self.weights, self.original_logits, self.epsilon = weights, original_logits, epsilon
        self.logits: Vector = logits - original_logits
        self.log_prediction: Vector = log_softmax(original_logits)
        highest = np.logaddexp(self.log_prediction, np.log(epsilon)) - self.log_prediction
        self.highest, self.programs = highest, 0
        ascending = self.log_prediction.argsort(kind="stable")
        self.heavy = np.empty(len(ascending), dtype=bool)
        self.heavy[ascending] = np.exp(self.log_prediction[ascending]).cumsum() > _REST * epsilon
        # Items without weight are alike to JS: the first is cheapest, so that solutions are unique.
        self._order = _STEP * np.cumsum(weights == 0) * (weights == 0)

    def climb(self, start: Vector, costs: Vector, excluded: int | None = None) -> Vector:
        """The best attention (N,) of an ascent; `costs` (N,) are those of its first program."""
        best, best_js, attention = self.weights, 0.0, start
        limits = np.zeros_like(start), np.ones_like(start)
        if excluded is not None:
            limits[1][excluded] = 0.0
        while self.programs < _PROGRAMS:
            solved = self._solved(costs, self.shift(attention), limits)
            self.programs, attention = self.programs + 1, self.weights
            # Mixed as little as preserves the prediction.
            for share in _MIXTURES:
                mixed = solved + share * (self.weights - solved)
                if np.abs(self.change(mixed)).sum() / 2 <= self.epsilon:
                    attention = mixed
                    break
            js = self.js(attention)
            if js > best_js:
                best = attention
            if js < best_js + _GAIN:
                break
            best_js, costs = js, -self.slope(attention)
            limits[1][:] = 1.0
        return best

    def _solved(self, costs: Vector, shift: Vector, limits: tuple[Vector, Vector]) -> Vector:
        """The solution (N,) without the solver's tolerance; `weights` where the solver fails.

        Arguments are those of `program`, which is solved for heavy classes alone: light ones that the
        solution makes probable become heavy, and it is solved again.
        """
        for _ in range(_ROUNDS + 1):
            solution = solve([self.program(costs, shift, limits, heavy=self.heavy)])
            if solution is None:
                return self.weights
            solved = solution[0][: len(self.weights)]
            solved = np.where(solved > _MIN_WEIGHT, solved, 0.0)
            solved /= max(solved.sum(), _MIN_WEIGHT)
            risen = np.where(self.heavy, 0.0, self.change(solved).clip(min=0.0))
            if risen.sum() <= _REST * self.epsilon:
                break
            self.heavy |= risen > _REST * self.epsilon / len(risen)
        return solved

    def program(
        self,
        costs: Vector,
        shift: Vector,
        limits: tuple[Vector, Vector],
        price: float | None = None,
        heavy: NDArray[np.bool_] | None = None,
    ) -> Program:
        """The program for the attention of least cost under bounds that are exact at x = shift.

        Args:
            costs: Cost of each item's attention, (N,).
            shift: Change of the log probabilities, (C,).
            limits: Least and largest attention on each item, (N,).
            price: Cost of exceeding epsilon by as much again; None: it must not be exceeded.
            heavy: Classes that are bounded, (C,) bool; what the others have is reserved. None: all.
        """
        heavy = np.ones_like(shift, dtype=bool) if heavy is None else heavy
        logits, highest = self.logits[:, heavy], self.highest[heavy]
        (items, classes), log_prediction = logits.shape, self.log_prediction[heavy]
        width, rise, fall, spent = self.bounds(shift, heavy)
        if price is not None:
            # x may be above its highest, with the slope of the tangent there.
            tangent = np.exp(log_prediction + highest) / self.epsilon
            rise[1] = np.where(width[1] > _MIN_WIDTH, rise[1], tangent)
            width[1] = np.full(len(tangent), np.inf)
        one, none = np.eye(classes), np.zeros
        # Columns: attention, k, and each x as its first piece, the rest above it and below 0.
        matrix = np.vstack(
            [
                np.hstack([logits.T, -np.ones((classes, 1)), -one, -one, one]),
                np.concatenate([np.ones(items), none(1 + 3 * classes)]),
                np.concatenate([none(items + 1), *rise, none(classes)]),
                np.concatenate([none(items + 1), fall[0], none(classes), fall[1]]),
            ]
        )
        budget = 1 - _MARGIN - np.exp(self.log_prediction[~heavy]).sum() / self.epsilon
        low = np.concatenate([none(classes), [1.0, -np.inf, -np.inf]])
        high = np.concatenate([none(classes), [1.0, budget, budget - spent]])
        costs = np.concatenate([costs + self._order, none(1 + 3 * classes)])
        least = np.concatenate([limits[0], [-np.inf], none(3 * classes)])
        most = np.concatenate([limits[1], [np.inf], *width, np.full(classes, np.inf)])
        if price is not None:
            # One more column: the excess over epsilon, of both sums.
            excess = np.concatenate([none(classes + 1), [-1.0, -1.0]])
            matrix, costs = np.hstack([matrix, excess[:, None]]), np.append(costs, price)
            least, most = np.append(least, 0.0), np.append(most, np.inf)
        return Program(costs, matrix, low, high, least, most)

    def bounds(
        self, shift: Vector, heavy: NDArray[np.bool_]
    ) -> tuple[list[Vector], list[Vector], list[Vector], float]:
        """Coefficients (K,) of the two sums over epsilon, for bounds exact at x = shift (C,).

        Args:
            shift: As of `program`.
            heavy: The K of C classes that are bounded, (C,) bool.

        Returns:
            Widths of the two pieces of x above 0; their slopes in the first sum; the slopes of the
            first piece and of x below 0 in the second sum; and the second sum at 0.
        """
        shift, highest = shift[heavy], self.highest[heavy]
        log_prediction = self.log_prediction[heavy]
        prediction, below = np.exp(log_prediction), np.minimum(shift, 0.0)
        # A tangent at x < 0 reaches 0 at x + exp(-x) - 1 > 0.
        first = np.where(shift < 0, below + np.expm1(np.minimum(-below, 700.0)), shift)
        curved = first > _MIN_WIDTH
        first = np.clip(np.where(curved, first, highest / 2), _MIN_WIDTH, highest)
        last = np.maximum(highest - first, 0.0)
        risen = np.exp(log_prediction + first - np.log(self.epsilon)) - prediction / self.epsilon
        slope = prediction * np.exp(below) / self.epsilon
        spent = prediction / self.epsilon * (-np.expm1(below) + np.exp(below) * below)
        rise = [risen / first, (1 - risen).clip(min=0) / last.clip(min=_MIN_WIDTH)]
        fall = [np.where(curved & (shift < 0), -slope, 0.0), slope]
        return [first, last], rise, fall, float(spent.sum())

    def shift(self, attention: Vector) -> Vector:
        """Change of the log probabilities (C,) under attention (N,)."""
        # As scipy's log_softmax, which takes 0.1 ms.
        logits = self.log_prediction + attention @ self.logits
        below = logits - logits.max()
        shift: Vector = below - np.log(np.exp(below).sum())
        return shift - self.log_prediction

    def change(self, attention: Vector) -> Vector:
        """Change of the prediction (C,) under attention (N,)."""
        return np.exp(self.log_prediction + self.shift(attention)) - np.exp(self.log_prediction)

    def slope(self, attention: Vector) -> Vector:
        """Gradient (N,) of JS at attention (N,), with weights raised to at least `_FLOOR`."""
        weight = np.maximum(attention, _FLOOR)
        return np.log(2 * weight / (weight + self.weights)) / 2

    def js(self, attention: Vector) -> float:
        """JS of attention (N,) from the weights."""
        from scipy.special import rel_entr

        middle = (attention + self.weights) / 2
        js = float((rel_entr(attention, middle) + rel_entr(self.weights, middle)).sum() / 2)
        return js if js < math.log(2) - ROUNDING else math.log(2)  # as `js_from`

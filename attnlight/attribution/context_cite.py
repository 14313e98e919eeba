"""ContextCite: a sparse linear model of ablations of a context (Cohen-Wang et al., 2024)."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.instances import rows_are_texts
from attnlight.probing.context_ablation import Way, ablated, random_subsets

_SEED = 1 << 40  # so that its ablations are none of those that a test of the same seed scores
_TOLERANCE = 1e-9  # of the largest change of a weight, relative to the largest weight


@dataclass
class ContextCite(Attribution):
    """Weights of a lasso that predicts the log odds from the items that stay, by random ablations.

    Items are standardised over the ablations, as published, and the weights scaled back. An item that
    always or never stays has weight 0.

    Args:
        ablations: Number of random sets; each keeps an item with probability 1/2.
        alpha: Penalty of the sum of absolute weights, as of scikit-learn's `Lasso`.
        way: How items are left out, as of `ContextAblation`.
        seed: Seed of the sets.
    """

    name = "context_cite"
    signed = True

    ablations: int = 32
    alpha: float = 0.01
    way: Way = "removed"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(2, ablations=self.ablations)
        if self.ablations > 64 or self.alpha < 0:
            raise InputError(
                f"context_cite has {self.ablations} ablations and alpha {self.alpha}; expected 64 "
                "ablations at most and alpha of at least 0."
            )
        self.passes = self.ablations

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        if not rows_are_texts(batch, output):
            raise InputError(
                "context_cite needs a model with one row for each text, not for each token: choose "
                "occlusion."
            )
        sets = random_subsets(output.mask, batch.index, self.ablations, self.seed + _SEED)
        logits, _ = ablated(model, batch, output, sets, self.way)
        odds = log_odds(logits, target).cpu().numpy()
        rows = zip(sets.double().cpu().numpy(), odds, strict=True)
        weights = np.stack([lasso(kept, values, self.alpha) for kept, values in rows])
        return torch.from_numpy(weights).to(output.mask.device), {}


def lasso(
    features: NDArray[np.float64], values: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Weights (N,) of the lasso on standardised features (K, N) and values (K,), scaled back.

    The minimum of `|y - b - Z w|^2 / (2 K) + alpha |w|_1` by coordinate descent, Z the features less
    their mean, divided by their standard deviation; w is divided by it. Constant features have weight 0.
    """
    scale = features.std(axis=0)
    varies = scale > 0
    standard = (features - features.mean(axis=0))[:, varies] / scale[varies]
    rest, weights = values - values.mean(), np.zeros(standard.shape[1])
    for _ in range(10_000):
        largest = 0.0
        for place, column in enumerate(standard.T):
            before = weights[place]
            rho = before + column @ rest / len(values)
            weights[place] = np.sign(rho) * max(abs(rho) - alpha, 0.0)
            rest -= (weights[place] - before) * column
            largest = max(largest, abs(weights[place] - before))
        if largest <= _TOLERANCE * max(1.0, float(np.abs(weights).max(initial=0.0))):
            break
    found = np.zeros(features.shape[1])
    found[varies] = weights / scale[varies]
    return found

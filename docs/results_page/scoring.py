"""Scores of measures by models whose truth is known: areas under ROC that hold in other settings.

A table has a row for each of n checkpoints: the value of a measure, whether the checkpoint's attention
follows what the model uses, and the setting it was trained in. Values compare across settings, so
that a score is high only where one threshold serves them all. Intervals resample whole settings, of
those that have a part in the score: checkpoints of one setting are not independent. With a single
setting an interval is undefined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import (
    RESAMPLES,
    MeanInterval,
    divide,
    percentile_interval,
    resampled_counts,
)
from results_page.measures import normalized_ranks

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FALSE_ALARMS = 0.1
LOWEST_AREA, MARGIN = 0.8, 0.05  # of a decider: lower end of its area, distance to a control's


@dataclass(frozen=True, eq=False)
class Scored:
    """A measure on checkpoints of known truth; those where it is NaN are left out.

    Attributes:
        values: The measure of each checkpoint, (n,).
        follows: Whether its attention follows use, (n,).
        settings: Number of its setting, from 0, (n,).
        kept: Which pairs of checkpoints are compared, (n, n) bool; None: all.
    """

    values: Floats
    follows: Bools
    settings: NDArray[np.int64]
    kept: Bools | None = None

    @cached_property
    def _pairs(self) -> tuple[Floats, Floats]:
        """Pairs of a follower of setting s and another of setting t: won by value, and all, (S, S).

        A pair is won where the follower's value is larger; a tie is half a pair.
        """
        defined = ~np.isnan(self.values)
        first, second = self.follows & defined, ~self.follows & defined
        compared = first[:, None] & second & (True if self.kept is None else self.kept)
        won = (np.sign(self.values[:, None] - self.values) + 1) / 2
        numbers = np.arange(int(self.settings.max(initial=-1)) + 1)
        member = (self.settings == numbers[:, None]).astype(np.float64)
        pairs = np.where(compared, won, 0.0), compared.astype(np.float64)
        return member @ pairs[0] @ member.T, member @ pairs[1] @ member.T

    def sign(self, without: int | None = None) -> float:
        """1 where followers have the larger values in all settings but one, else -1; NaN: no pair."""
        kept = np.arange(len(self._pairs[0])) != (-1 if without is None else without)
        won, pairs = (part[kept][:, kept].sum() for part in self._pairs)
        return float("nan") if pairs == 0 else 1.0 if won >= pairs / 2 else -1.0

    def area(self, resamples: int = RESAMPLES) -> MeanInterval:
        """Area under ROC between followers and others, in the direction in which it is above 1/2."""
        won, pairs = self._pairs
        won = won if self.sign() > 0 else pairs - won
        draws = _draws(pairs.sum(axis=0) + pairs.sum(axis=1) > 0, resamples)
        replicates = divide(*(np.einsum("bs,st,bt->b", draws, x, draws) for x in (won, pairs)))
        area = float(divide(won.sum(), pairs.sum()))
        return MeanInterval(area, *percentile_interval(replicates), int(pairs.sum()))

    @cached_property
    def held_out(self) -> Floats:
        """Area of each setting in the direction fitted on all others, (S,).

        It is over the pairs with a member in the setting, NaN where there is none.
        """
        touching = (x.sum(axis=0) + x.sum(axis=1) - x.diagonal() for x in self._pairs)
        areas = divide(*touching)
        signs = np.array([self.sign(without) for without in range(len(areas))])
        return np.where(signs > 0, areas, np.where(signs < 0, 1 - areas, np.nan))

    def held_out_area(self, resamples: int = RESAMPLES) -> MeanInterval:
        """Mean of `held_out` over the settings."""
        defined = ~np.isnan(self.held_out)
        return _over_settings(np.where(defined, self.held_out, 0.0), defined * 1.0, resamples)

    def threshold(self, without: int | None = None) -> float:
        """The value on whose far side at most a share of `FALSE_ALARMS` of the followers lies.

        A checkpoint is noticed where `sign * value` is below `sign * threshold`.

        Args:
            without: A setting that is left out of the fit, direction included.
        """
        sign = self.sign(without)
        fitted = self.follows & ~np.isnan(self.values) & (self.settings != without)
        ordered = np.sort(sign * self.values[fitted])
        if np.isnan(sign) or not len(ordered):
            return float("nan")
        return float(sign * ordered[int(FALSE_ALARMS * len(ordered))])

    def noticed(self, kind: Bools, resamples: int = RESAMPLES) -> MeanInterval:
        """Share of the checkpoints of a kind (n,) noticed by thresholds fitted without their setting."""
        hits, total = np.zeros((2, len(self._pairs[0])))
        for setting in range(len(hits)):
            sign, threshold = self.sign(setting), self.threshold(without=setting)
            values = self.values[kind & (self.settings == setting)]
            values = values[~np.isnan(values) & ~np.isnan(threshold)]
            hits[setting] = (sign * values < sign * threshold).sum()
            total[setting] = len(values)
        return _over_settings(hits, total, resamples)


def rank_correlation(
    values: Floats, labels: Floats, settings: NDArray[np.int64], resamples: int = RESAMPLES
) -> MeanInterval:
    """Spearman's correlation of a measure with a label over checkpoints where both are defined."""
    defined = ~(np.isnan(values) | np.isnan(labels))
    values, labels, settings = values[defined], labels[defined], settings[defined]
    draws = _draws(np.bincount(settings) > 0, resamples)
    times = np.concatenate([np.ones((1, len(values))), draws[:, settings]])  # (1 + B, n)
    with np.errstate(invalid="ignore"):  # of a single setting
        first, second = (normalized_ranks(x, times) for x in (values, labels))
        found = (times * first * second).sum(axis=1)
    return MeanInterval(float(found[0]), *percentile_interval(found[1:]), len(values))


def may_decide(score: MeanInterval, control: MeanInterval) -> bool:
    """Whether a measure may be used with a threshold, by its held-out area and the best control's."""
    return bool(score.low >= LOWEST_AREA and score.mean >= control.mean + MARGIN)


def _over_settings(sums: Floats, totals: Floats, resamples: int) -> MeanInterval:
    draws = _draws(totals > 0, resamples)
    mean, replicates = divide(sums.sum(), totals.sum()), divide(draws @ sums, draws @ totals)
    return MeanInterval(float(mean), *percentile_interval(replicates), int(totals.sum()))


def _draws(settings: Bools, resamples: int) -> Floats:
    """How often each resample draws each setting, (B, S): of the true ones, NaN for a single one."""
    draws, count = np.zeros((resamples, len(settings))), int(settings.sum())
    draws[:, settings] = resampled_counts(count, resamples) if count > 1 else np.nan
    return draws

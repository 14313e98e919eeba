"""Scores of measures equal loops over pairs of checkpoints, and a decider is what transfers."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import spearmanr

from attnlight.statistics.bootstrap import MeanInterval
from tests.kept import page

scoring = page("scoring")
Scored, may_decide, rank_correlation = (
    getattr(scoring, name) for name in ("Scored", "may_decide", "rank_correlation")
)
# Settings and groups of checkpoints, both groups in every setting.
SETTINGS, FOLLOWS = np.repeat(np.arange(6), 10), np.tile(np.arange(10) % 2 == 0, 6)
NOISE = np.random.default_rng(0).normal(size=60)


def loop_area(values: np.ndarray, follows: np.ndarray, chosen: list[tuple[int, int]]) -> float:
    """The share of pairs of a follower and another that the follower wins, a tie half."""
    pairs = [x for x in chosen if follows[x[0]] and not follows[x[1]]]
    won = [(values[i] > values[j]) + (values[i] == values[j]) / 2 for i, j in pairs]
    return float(np.mean(won)) if pairs else float("nan")


@pytest.mark.parametrize("seed", range(5))
def test_areas_equal_loops_over_pairs(seed: int) -> None:
    random = np.random.default_rng(seed)
    settings, follows = random.integers(0, 4, 40), random.random(40) < 0.4
    values = random.integers(0, 6, 40) + 2.0 * follows * random.choice([-1, 1])
    values[random.random(40) < 0.1] = np.nan
    scored = Scored(values, follows, settings)
    every = [x for x in product(range(40), repeat=2) if not np.isnan(values[list(x)]).any()]
    area = loop_area(values, follows, every)
    assert scored.area().mean == pytest.approx(max(area, 1 - area))
    for setting, found in enumerate(scored.held_out):
        others = [(i, j) for i, j in every if setting not in (settings[i], settings[j])]
        here = [(i, j) for i, j in every if setting in (settings[i], settings[j])]
        direction, expected = loop_area(values, follows, others), loop_area(values, follows, here)
        assert found == pytest.approx(expected if direction >= 0.5 else 1 - expected)
    assert scored.held_out_area().mean == pytest.approx(np.nanmean(scored.held_out))


def test_pairs_that_are_not_kept_are_not_compared() -> None:
    kept = np.abs(NOISE[:, None] - NOISE) < 0.5
    area = loop_area(NOISE, FOLLOWS, [x for x in product(range(60), repeat=2) if kept[x]])
    found = Scored(NOISE, FOLLOWS, SETTINGS, kept).area().mean
    assert found == pytest.approx(max(area, 1 - area))


def test_the_interval_resamples_the_settings_that_have_a_part() -> None:
    """Equal settings leave nothing to vary; undefined ones change nothing; one has no interval."""
    values = FOLLOWS.astype(float)
    assert Scored(values, FOLLOWS, SETTINGS).area()[:3] == (1.0, 1.0, 1.0)
    area = Scored(np.where(SETTINGS == 5, 0.5, values), FOLLOWS, SETTINGS).area()
    assert area.low < area.mean < area.high == 1.0
    values, label = FOLLOWS + NOISE, np.arange(60.0)
    some, one = (np.where(np.isin(SETTINGS, range(n)), values, np.nan) for n in (3, 1))
    whole = [x[SETTINGS < 3] for x in (values, FOLLOWS, SETTINGS)]
    assert Scored(some, FOLLOWS, SETTINGS).area() == Scored(*whole).area()
    assert Scored(some, FOLLOWS, SETTINGS).noticed(~FOLLOWS) == Scored(*whole).noticed(~whole[1])
    found = rank_correlation(whole[0], label[SETTINGS < 3], whole[2])
    assert rank_correlation(some, label, SETTINGS) == found
    for alone in (Scored(one, FOLLOWS, SETTINGS).area(), rank_correlation(one, label, SETTINGS)):
        assert np.isnan([alone.low, alone.high]).all()
        assert not np.isnan(alone.mean)


def test_spearman_is_that_of_scipy_as_it_is_and_resampled() -> None:
    random = np.random.default_rng(1)
    label, settings = random.normal(size=50), random.integers(0, 5, 50)
    values = np.round(label + random.normal(size=50))
    values[3] = np.nan
    found, kept = rank_correlation(values, label, settings, resamples=200), ~np.isnan(values)
    assert found.mean == pytest.approx(spearmanr(values[kept], label[kept]).statistic)
    assert found.low < found.mean < found.high
    assert found.defined == 49
    label, values, settings = random.normal(size=12), random.normal(size=12), np.arange(12) // 4
    draw = np.bincount(np.random.default_rng(0).integers(0, 3, size=3), minlength=3)
    rows = np.concatenate([np.flatnonzero(settings == s).repeat(n) for s, n in enumerate(draw)])
    found = rank_correlation(values, label, settings, resamples=1)
    assert found.low == pytest.approx(spearmanr(values[rows], label[rows]).statistic)


@pytest.mark.parametrize(
    ("values", "control", "decides"),
    [
        (FOLLOWS + 0.1 * NOISE, NOISE, True),
        (FOLLOWS * 1.0, FOLLOWS * 1.0, False),  # equals a control
        (np.where(SETTINGS == 3, 1.0 - FOLLOWS, FOLLOWS), np.zeros(60), False),  # fails in one
        (10.0 * SETTINGS + FOLLOWS, np.zeros(60), False),  # no threshold serves two settings
    ],
)
def test_a_measure_decides_that_holds_everywhere(
    values: np.ndarray, control: np.ndarray, decides: bool
) -> None:
    areas = [Scored(x, FOLLOWS, SETTINGS).held_out_area() for x in (values, control)]
    assert may_decide(*areas) == decides


@pytest.mark.parametrize(
    ("mean", "low", "control", "decides"),
    [
        (0.9, 0.8, 0.85, True),
        (0.9, 0.79, 0.5, False),
        (0.9, 0.85, 0.86, False),
        (np.nan, np.nan, 0.5, False),
    ],
)
def test_the_rule_of_deciders(mean: float, low: float, control: float, decides: bool) -> None:
    intervals = MeanInterval(mean, low, 1, 9), MeanInterval(control, 0.4, 1, 9)
    assert may_decide(*intervals) == decides


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_and_what_they_notice_equal_loops(sign: int) -> None:
    random = np.random.default_rng(3)
    settings, follows = np.repeat(np.arange(6), 20), np.tile(FOLLOWS, 2)
    values = sign * (2.0 * follows + random.normal(size=len(follows)))
    scored, kind = Scored(values, follows, settings), ~follows & (random.random(120) < 0.5)
    assert 0 < np.mean(sign * values[follows] < sign * scored.threshold()) <= 0.1
    hits: list[bool] = []
    for setting in range(6):
        others = np.sort(sign * values[follows & (settings != setting)])
        here = values[kind & (settings == setting)]
        hits += [sign * value < others[int(0.1 * len(others))] for value in here]
    found = scored.noticed(kind)
    assert (found.mean, found.defined) == (pytest.approx(np.mean(hits)), len(hits))


def test_nothing_to_compare() -> None:
    scored = Scored(np.arange(60.0), np.ones(60, dtype=bool), SETTINGS)
    assert np.isnan([scored.area().mean, scored.held_out_area().mean]).all()
    assert np.isnan(scored.noticed(np.zeros(60, dtype=bool)).mean)

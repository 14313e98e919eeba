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


def table(seed: int = 0, settings: int = 6, each: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Settings and groups of checkpoints, both groups in every setting."""
    places = np.repeat(np.arange(settings), each)
    return places, np.tile(np.arange(each) % 2 == 0, settings)


def won(one: float, other: float) -> float:
    return 1.0 if one > other else 0.5 if one == other else 0.0


def loop_area(values: np.ndarray, follows: np.ndarray, chosen: list[tuple[int, int]]) -> float:
    pairs = [won(values[i], values[j]) for i, j in chosen if follows[i] and not follows[j]]
    return float(np.mean(pairs)) if pairs else float("nan")


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
    settings, follows = table()
    values = np.random.default_rng(0).normal(size=60)
    kept = np.abs(values[:, None] - values) < 0.5
    pairs = [x for x in product(range(60), repeat=2) if kept[x]]
    area = loop_area(values, follows, pairs)
    assert Scored(values, follows, settings, kept).area().mean == pytest.approx(max(area, 1 - area))


def test_the_interval_resamples_settings() -> None:
    """Equal settings leave nothing to vary; one that differs moves the lower end to its side."""
    settings, follows = table()
    values = follows.astype(float)
    assert Scored(values, follows, settings).area()[:3] == (1.0, 1.0, 1.0)
    values[settings == 5] = 0.5
    area = Scored(values, follows, settings).area()
    assert area.low < area.mean < area.high == 1.0


def test_settings_without_a_part_in_a_score_are_not_drawn() -> None:
    """Settings whose checkpoints are undefined change no interval, and one setting has none."""
    settings, follows = table()
    values = follows + np.random.default_rng(0).normal(size=60)
    some, one = (np.where(settings < n, values, np.nan) for n in (3, 1))
    whole = [x[settings < 3] for x in (values, follows, settings)]
    assert Scored(some, follows, settings).area() == Scored(*whole).area()
    assert Scored(some, follows, settings).noticed(~follows) == Scored(*whole).noticed(~whole[1])
    label = np.arange(60.0)
    found = rank_correlation(some, label, settings)
    assert found == rank_correlation(whole[0], label[settings < 3], whole[2])
    for alone in (Scored(one, follows, settings).area(), rank_correlation(one, label, settings)):
        assert np.isnan([alone.low, alone.high]).all()
        assert not np.isnan(alone.mean)


def test_spearman_is_that_of_scipy() -> None:
    random = np.random.default_rng(1)
    label, settings = random.normal(size=50), random.integers(0, 5, 50)
    values = np.round(label + random.normal(size=50))
    values[3] = np.nan
    found = rank_correlation(values, label, settings, resamples=200)
    kept = ~np.isnan(values)
    assert found.mean == pytest.approx(spearmanr(values[kept], label[kept]).statistic)
    assert found.low < found.mean < found.high
    assert found.defined == 49


def test_resampled_spearman_is_that_of_repeated_checkpoints() -> None:
    """Weights stand for repetitions: one resample, drawn by hand."""
    random = np.random.default_rng(2)
    label, values, settings = random.normal(size=12), random.normal(size=12), np.arange(12) // 4
    found = rank_correlation(values, label, settings, resamples=1)
    draw = np.bincount(np.random.default_rng(0).integers(0, 3, size=3), minlength=3)
    rows = np.concatenate([np.flatnonzero(settings == s).repeat(n) for s, n in enumerate(draw)])
    assert found.low == pytest.approx(spearmanr(values[rows], label[rows]).statistic)


def decides(values: np.ndarray, control: np.ndarray) -> bool:
    settings, follows = table()
    areas = (Scored(x, follows, settings).held_out_area() for x in (values, control))
    return may_decide(*areas)


def test_a_measure_that_holds_everywhere_decides() -> None:
    _, follows = table()
    noise = np.random.default_rng(0).normal(size=60)
    assert decides(follows + 0.1 * noise, noise)


def test_a_measure_that_equals_a_control_does_not_decide() -> None:
    _, follows = table()
    assert not decides(follows.astype(float), follows.astype(float))


def test_a_measure_that_fails_in_one_setting_may_only_rank() -> None:
    settings, follows = table()
    values = np.where(settings == 3, 1.0 - follows, follows)
    scored = Scored(values, follows, settings)
    assert scored.area().mean > 0.7, "it ranks"
    assert not decides(values, np.zeros(60))


def test_a_scale_of_each_setting_does_not_decide() -> None:
    """Perfect within each setting, but no threshold serves two settings."""
    settings, follows = table()
    values = 10.0 * settings + follows
    assert not decides(values, np.zeros(60))


def test_the_rule_of_deciders() -> None:
    assert may_decide(MeanInterval(0.9, 0.8, 1, 9), MeanInterval(0.85, 0.7, 1, 9))
    assert not may_decide(MeanInterval(0.9, 0.79, 1, 9), MeanInterval(0.5, 0.4, 1, 9))
    assert not may_decide(MeanInterval(0.9, 0.85, 1, 9), MeanInterval(0.86, 0.7, 1, 9))
    assert not may_decide(MeanInterval(np.nan, np.nan, np.nan, 0), MeanInterval(0.5, 0.4, 1, 9))


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_and_what_they_notice_equal_loops(sign: int) -> None:
    random = np.random.default_rng(3)
    settings, follows = table(each=20)
    values = sign * (2.0 * follows + random.normal(size=len(follows)))
    scored, kind = Scored(values, follows, settings), ~follows & (random.random(120) < 0.5)
    threshold = scored.threshold()
    assert 0 < np.mean(sign * values[follows] < sign * threshold) <= 0.1
    hits = total = 0
    for setting in range(6):
        others = np.sort(sign * values[follows & (settings != setting)])
        limit = others[int(0.1 * len(others))]
        for i in np.flatnonzero(kind & (settings == setting)):
            hits, total = hits + int(sign * values[i] < limit), total + 1
    found = scored.noticed(kind)
    assert found.mean == pytest.approx(hits / total)
    assert found.defined == total


def test_nothing_to_compare() -> None:
    settings, _ = table()
    scored = Scored(np.arange(60.0), np.ones(60, dtype=bool), settings)
    assert np.isnan([scored.area().mean, scored.held_out_area().mean]).all()
    assert np.isnan(scored.noticed(np.zeros(60, dtype=bool)).mean)

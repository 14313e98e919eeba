"""F1 over seeds against naive counts and a brute force bootstrap with the same draws."""

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.statistics import f1
from attnlight.statistics.bootstrap import percentile_interval
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import (
    difference_of_groups,
    resample_seeds,
    seeds_then_instances,
)

Integers = NDArray[np.int64]
DRAWS = {"resamples": 60, "seed": 8}


def f1_scores(predictions: Integers, label: Integers, classes: int) -> NDArray[np.float64]:
    return resampled_f1(predictions, label, classes, resamples=1)[0]


def naive_f1(label: Integers, prediction: Integers, classes: int) -> float:
    """Precision and recall of each class, counted one by one."""
    found = []
    for judged in [1] if classes == 2 else range(classes):
        pairs = [(int(y), int(p)) for y, p in zip(label, prediction, strict=True) if y >= 0]
        hits = sum(y == p == judged for y, p in pairs)
        true, called = (sum(pair[k] == judged for pair in pairs) for k in (0, 1))
        if hits:
            precision, recall = hits / called, hits / true
            found.append(2 * precision * recall / (precision + recall))
        elif true or called:
            found.append(0.0)
    return float(np.mean(found)) if found else float("nan")


def brute_force(
    groups: list[Integers], label: Integers, classes: int, resamples: int, seed: int
) -> NDArray[np.float64]:
    """Mean F1 of each group in each resample, (B, groups), the draws in the documented order."""
    instances, seeds = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    rows = [instances.integers(0, len(label), len(label)) for _ in range(resamples)]
    found = np.empty((resamples, len(groups)))
    for g, group in enumerate(groups):
        chosen = seeds.integers(0, len(group), (resamples, len(group)))
        for b in range(resamples):
            values = [naive_f1(label[rows[b]], group[s][rows[b]], classes) for s in chosen[b]]
            found[b, g] = np.nanmean(values)
    return found


@pytest.fixture(params=[2, 4])
def classes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def label(classes: int) -> Integers:
    label = np.random.default_rng(3).integers(0, classes, 40)
    label[5] = -1
    return label


def predicted(label: Integers, classes: int, runs: int, seed: int) -> Integers:
    random = np.random.default_rng(seed)
    right = random.random((runs, len(label))) < 0.7
    found = np.where(right, label, random.integers(0, classes, (runs, len(label))))
    found[0, 2] = -1  # a text that was not measured
    return found


def test_scores_are_those_of_a_loop(label: Integers, classes: int) -> None:
    runs = predicted(label, classes, 5, seed=0)
    expected = [naive_f1(label, run, classes) for run in runs]
    np.testing.assert_allclose(f1_scores(runs, label, classes), expected, rtol=1e-12)


def test_resamples_are_those_of_brute_force(label: Integers, classes: int) -> None:
    runs = predicted(label, classes, 3, seed=1)
    ((mean, drawn),) = resample_seeds([resampled_f1(runs, label, classes, **DRAWS)], seed=8)
    assert mean == pytest.approx(f1_scores(runs, label, classes).mean())
    assert drawn == pytest.approx(brute_force([runs], label, classes, 60, 8)[:, 0], rel=1e-12)


def test_groups_share_the_instances_of_a_resample(label: Integers, classes: int) -> None:
    a, b = predicted(label, classes, 3, seed=1), predicted(label, classes, 2, seed=2)
    parts = [resampled_f1(runs, label, classes, **DRAWS) for runs in (a, b)]
    expected = brute_force([a, b], label, classes, 60, 8)
    for (mean, drawn), runs, column in zip(
        resample_seeds(parts, seed=8), (a, b), expected.T, strict=True
    ):
        assert mean == pytest.approx(f1_scores(runs, label, classes).mean())
        assert drawn == pytest.approx(column, rel=1e-12)


def test_draws_are_those_of_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another statistic of the same sums, accuracy, the intervals of means come out."""
    label = np.ones(50, dtype=np.int64)
    runs = (np.random.default_rng(0).random((4, 50)) < 0.7).astype(np.int64)
    monkeypatch.setattr(f1, "divide", lambda twice_hits, _: twice_hits / (2 * 50))
    expected = seeds_then_instances(runs.astype(np.float64))
    ((mean, drawn),) = resample_seeds([resampled_f1(runs, label, 2)])
    assert (mean, *percentile_interval(drawn)) == pytest.approx(expected[:3], rel=1e-12)
    expected = difference_of_groups(runs[:3].astype(np.float64), runs[2:].astype(np.float64))
    parts = [resampled_f1(part, label, 2) for part in (runs[:3], runs[2:])]
    (first, one), (second, other) = resample_seeds(parts)
    found = (first - second, *percentile_interval(one - other))
    assert found == pytest.approx(expected[:3], abs=1e-12)


def test_a_class_that_is_nowhere_has_no_f1() -> None:
    label, runs = np.array([0, 0, 2]), np.array([[0, 0, 2], [0, 2, 2], [0, 1, 2]])
    # By hand: 1 and 1; 2/3 and 2/3; 2/3, 0 and 1.
    expected = [1.0, 2 / 3, 5 / 9]
    np.testing.assert_allclose(f1_scores(runs, label, 3), expected)
    assert np.isnan(f1_scores(np.array([[0, 0]]), np.array([0, -1]), 2)).all()

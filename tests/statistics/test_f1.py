"""F1 over seeds against naive counts and a brute force bootstrap with the same draws."""

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.statistics.f1 import resampled_f1

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


def brute_force(runs: Integers, label: Integers, classes: int) -> NDArray[np.float64]:
    """F1 of each run in each resample, (B, S), with the documented draws."""
    random = np.random.default_rng(DRAWS["seed"])
    rows = [random.integers(0, len(label), len(label)) for _ in range(DRAWS["resamples"])]
    return np.array([[naive_f1(label[row], run[row], classes) for run in runs] for row in rows])


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
    _, drawn = resampled_f1(runs, label, classes, **DRAWS)
    np.testing.assert_allclose(drawn, brute_force(runs, label, classes), rtol=1e-12)


def test_a_class_that_is_nowhere_has_no_f1() -> None:
    label, runs = np.array([0, 0, 2]), np.array([[0, 0, 2], [0, 2, 2], [0, 1, 2]])
    # By hand: 1 and 1; 2/3 and 2/3; 2/3, 0 and 1.
    expected = [1.0, 2 / 3, 5 / 9]
    np.testing.assert_allclose(f1_scores(runs, label, 3), expected)
    assert np.isnan(f1_scores(np.array([[0, 0]]), np.array([0, -1]), 2)).all()

"""Collapsed runs, counted by hand."""

import math

import numpy as np
import pytest
from scipy.stats import entropy

from attnlight.errors import InputError
from attnlight.statistics import collapse_threshold, frequency_loss


def test_the_loss_of_frequencies_is_their_entropy() -> None:
    counts = np.array([40, 0, 7, 3])
    assert frequency_loss(counts) == pytest.approx(entropy(counts))
    each = -np.repeat(np.log(counts[counts > 0] / 50), counts[counts > 0])
    assert frequency_loss(counts) == pytest.approx(each.mean())
    assert frequency_loss(np.array([5])) == 0.0


def test_a_threshold_by_hand() -> None:
    lambdas = np.array([0.1, 0, 0, 0.1, 1, 1, 1, 0, 0.1])
    losses = np.array([0.3, 0.2, 0.4, 1.2, 1.5, math.nan, math.inf, 0.3, 1.1])
    assert collapse_threshold(lambdas, losses, 2.1) == pytest.approx(1.2)  # half of 0.3 + 2.1


def test_order_and_a_control_that_diverged_change_nothing() -> None:
    lambdas, losses = np.array([0, 0, 0, 0.5]), np.array([0.2, 0.4, math.nan, 0.9])
    for turn in (slice(None), slice(None, None, -1)):
        assert collapse_threshold(lambdas[turn], losses[turn], 1.0) == pytest.approx(0.65)


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(InputError, match="at least one instance"):
        frequency_loss(np.zeros(3, int))
    with pytest.raises(InputError, match="no run of it has a finite loss"):
        collapse_threshold(np.array([0.0, 1.0]), np.array([math.nan, 0.3]), 2.0)
    with pytest.raises(InputError, match=r"above the median of lambda 0, 0\.3"):
        collapse_threshold(np.array([0.0]), np.array([0.3]), 0.3)

"""Ranges of the measures that intervals over seeds are clipped to."""

import math

import pytest

from attnlight.figures import describe
from attnlight.report.measure_bounds import measure_bounds

BOUNDS = {
    (-1, 1): "tau_attention_loo agreement_states signed_4_attention",  # the agreement is a tau
    (0, math.log(2)): "worst_js attention_js_heads_3",
    (0, 1): "worst_share attention_js_share agreement removed_fraction_attention flip_rate",
    (0, math.inf): "nll_gold cost_gradient",
    (-math.inf, math.inf): "excess_attention excess_comprehensiveness_gradient size_minimal",
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_by_name(bounds: tuple[float, float]) -> None:
    assert {measure_bounds(name) for name in BOUNDS[bounds].split()} == {bounds}


def test_every_headline_but_a_difference_has_a_range() -> None:
    tests = ("importance_correlation", "attention_permutation", "single_erasure")
    tests += ("adversarial_attention", "base_divergence", "evidence_mass", "plausibility")
    names = [name for test in tests for name in describe(test).headlines]
    assert len(names) >= 8
    assert all(math.isfinite(measure_bounds(name)[0]) for name in names)

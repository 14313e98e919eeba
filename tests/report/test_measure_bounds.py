"""Ranges of the measures that intervals over seeds are clipped to."""

import math

import pytest

from attnlight.figures import describe
from attnlight.report.measure_bounds import measure_bounds


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tau_attention_loo", (-1, 1)),
        ("agreement_states", (-1, 1)),  # a tau
        ("signed_4_attention", (-1, 1)),
        ("worst_js", (0, math.log(2))),
        ("attention_js_heads_3", (0, math.log(2))),
        ("worst_share", (0, 1)),
        ("attention_js_share", (0, 1)),
        ("agreement", (0, 1)),
        ("removed_fraction_attention", (0, 1)),
        ("flip_rate", (0, 1)),
        ("nll_gold", (0, math.inf)),
        ("cost_gradient", (0, math.inf)),
        ("excess_attention", (-math.inf, math.inf)),
        ("excess_comprehensiveness_gradient", (-math.inf, math.inf)),
        ("size_minimal", (-math.inf, math.inf)),
    ],
)
def test_by_name(name: str, expected: tuple[float, float]) -> None:
    assert measure_bounds(name) == expected


def test_every_headline_but_a_difference_has_a_range() -> None:
    tests = ("importance_correlation", "attention_permutation", "single_erasure")
    tests += ("adversarial_attention", "base_divergence", "evidence_mass", "plausibility")
    names = [name for test in tests for name in describe(test).headlines]
    assert len(names) >= 8
    assert all(math.isfinite(measure_bounds(name)[0]) for name in names)

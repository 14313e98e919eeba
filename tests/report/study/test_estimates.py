"""Estimates of studies against loops in plain Python with the same draws."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from attnlight.figures import describe
from attnlight.report.measure_bounds import measure_bounds
from attnlight.report.study import Study
from attnlight.report.study.estimates import DISTANCE, JS, TVD, Estimates
from attnlight.report.study.frame import ACCURACY, F1
from tests.report.study.conftest import RESAMPLES
from tests.report.study.fake import FakeStudy, FakeTagging, FakeTexts, whole, whole_tagger
from tests.report.study.naive import drawn, mean, measure
from tests.statistics.naive_seeds import half_width


@pytest.fixture(scope="module", params=["texts", "tagging"])
def fake(request: pytest.FixtureRequest) -> FakeStudy:
    return whole(bases=1, texts=80) if request.param == "texts" else whole_tagger()


def test_each_run_is_a_ratio_of_sums(fake: FakeStudy, study: Study, estimates: Estimates) -> None:
    runs = study.finished("seed")
    assert len(runs) == 5
    assert len(estimates.measures) == (4 if study.quality == "f1" and not study.losses else 16)
    for name in estimates.measures:
        expected = [measure(fake, run, name) for run in runs.index]
        assert estimates.per_seed(runs, name) == pytest.approx(expected, rel=1e-9), name


MEANS = ("f1", TVD, "nll_base", "attention_js_share", "attention_tau", "attention_kl")


@pytest.mark.parametrize("name", MEANS)
def test_means_have_intervals_over_seeds_and_clusters(
    fake: FakeStudy, estimates: Estimates, name: str
) -> None:
    if name not in estimates.measures:
        return
    runs = list(estimates.study.finished("seed").index)
    found = estimates.estimate(estimates.study.finished("seed"), name)
    each = [measure(fake, run, name) for run in runs]
    assert found.mean == pytest.approx(mean(each))
    assert found.std == pytest.approx(statistics.stdev(each))
    half, (least, most) = half_width(drawn(fake, runs, name, RESAMPLES)), measure_bounds(name)
    expected = max(found.mean - half, least), min(found.mean + half, most)
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.seeds == 5
    if name not in (F1, TVD):
        return
    # A difference is over the seeds of both.
    uniform = estimates.study.finished("uniform", head=None)
    less = estimates.estimate(uniform, name, estimates.study.finished("seed"))
    other = drawn(fake, list(uniform.index), name, RESAMPLES)
    half = half_width(other, drawn(fake, runs, name, RESAMPLES))
    assert (less.low, less.high) == pytest.approx((less.mean - half, less.mean + half))
    assert less.mean == pytest.approx(mean(other[0]) - mean(each))
    assert np.isnan(less.std)


def test_what_does_not_apply_is_undefined(study: Study, estimates: Estimates) -> None:
    own = [name for name in DISTANCE if name in estimates.measures]
    assert all(np.isnan(estimates.estimate(study.finished("base"), name).mean) for name in own)
    assert np.isnan(estimates.estimate(study.finished("uniform", head=None), "attention_tau").mean)
    nothing = estimates.estimate(study.runs.iloc[:0], F1)
    assert str(nothing) == "–"  # noqa: RUF001
    assert nothing.seeds == 0
    assert np.isnan(estimates.estimate(study.runs.iloc[:0], F1, study.finished("base")).mean)


def test_runs_that_one_model_guides_are_one_case(fake: FakeStudy, estimates: Estimates) -> None:
    context = None if isinstance(fake, FakeTexts) else "full"
    runs = estimates.study.finished("guide", guide="adversary", context=context)
    shared = runs.assign(model=["a", "a", "b", "c", "d"][: len(runs)])
    values, resampled = drawn(fake, list(runs.index), ACCURACY, RESAMPLES)
    by_model, *by_resample = ([mean(row[:2]), *row[2:]] for row in (values, *resampled))
    found = Estimates(estimates.study).estimate(shared, ACCURACY)
    assert found.mean == pytest.approx(mean(by_model))
    assert found.std == pytest.approx(statistics.stdev(by_model))
    assert found.values == pytest.approx(by_model)
    assert found.seeds == len(by_model)
    if len(by_model) == 2:  # too few for an interval
        assert np.isnan(found[2:4]).all()
    else:
        half = half_width((by_model, by_resample))
        assert found[2:4] == pytest.approx((found.mean - half, min(1, found.mean + half)))


def values(fake: FakeStudy, stem: str, column: str) -> Any:
    """A column of the runs whose name starts so, (S, n)."""
    rows = [rows[column] for name, rows in fake.rows.items() if name.startswith(stem)]
    return np.stack(rows).astype(np.float32).astype(np.float64)


def test_more_classes_are_judged_by_macro_f1() -> None:
    fake = whole(seeds=2, bases=1, texts=60, classes=["a", "b", "c"])
    study = fake.read()
    found = Estimates(study).per_seed(study.finished("uniform"), F1)
    for value, prediction in zip(found, values(fake, "uniform", "prediction"), strict=True):
        assert value == pytest.approx(f1_score(fake.label, prediction, average="macro"))
    assert study.words.quality == "macro F1"


def test_equal_seeds_do_not_deviate() -> None:
    fake = FakeTexts(texts=10)
    fake.add("base-s0", "base")
    for seed in range(3):
        fake.add(f"uniform-s{seed}", "uniform", js=0.1)
        fake.rows[f"uniform-s{seed}"]["attention_js"][:] = 0.1
    study = fake.read()
    found = Estimates(study).estimate(study.finished("uniform"), JS)
    assert found.std == 0, "not 1e-17, by a mean that is rounded"


def test_a_run_without_a_number_leaves_the_others() -> None:
    fake = FakeTagging(12)
    fake.add("base-s0", "base")
    for seed in range(3):
        fake.add(f"seed-b0-s{seed + 1}", "seed", js=0.2, tau=None if seed else 0.4)
    fake.rows["seed-b0-s2"]["nll_gold"][:] = np.inf
    study = fake.read()
    estimates, runs = Estimates(study), study.finished("seed")
    one, two = (estimates.estimate(runs, name) for name in ("attention_tau", "nll_gold"))
    assert one.mean == pytest.approx(measure(fake, "seed-b0-s1", "attention_tau"))
    assert np.isfinite([one.low, one.high]).all()
    left = [measure(fake, run, "nll_gold") for run in ("seed-b0-s1", "seed-b0-s3")]
    assert two.values == pytest.approx(left)
    assert str(two).endswith(f"({left[0]:.3f}, {left[1]:.3f} by seed)")


BOUNDS = {
    (-1, 1): "tau_attention_loo agreement_states agreement_words signed_4_attention conicity"
    " agreement_evidence agreement_resampled",
    (0, math.log(2)): "worst_js attention_js_heads_3",
    (
        0,
        1,
    ): "worst_share absolute_conicity attention_js_share agreement removed_fraction_attention flip_rate"
    " error_attention precision_diagonal recall_threshold linked_occlusion",
    (0, math.inf): "nll_gold cost_gradient attention_kl attention_kl_elements",
    (-math.inf, math.inf): "excess_attention excess_comprehensiveness_gradient size_minimal"
    " delta_js_expected_attention",
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_measure_has_its_range_by_its_name(bounds: tuple[float, float]) -> None:
    assert {measure_bounds(name) for name in BOUNDS[bounds].split()} == {bounds}


def test_every_headline_but_a_difference_has_a_range() -> None:
    tests = ("importance_correlation", "attention_permutation", "single_erasure")
    tests += ("adversarial_attention", "base_divergence", "evidence_mass", "plausibility")
    names = [name for test in tests for name in describe(test).headlines]
    assert len(names) >= 8
    assert all(math.isfinite(measure_bounds(name)[0]) for name in names)

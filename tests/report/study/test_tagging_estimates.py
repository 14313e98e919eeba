"""Estimates of a tagger's study against loops in plain Python with the same draws."""

import statistics
from pathlib import Path

import numpy as np
import pytest

from attnlight.report.study.estimates import DISTANCE, PREDICTION, Estimates
from attnlight.report.study.frame import Study, read_study
from tests.report.study.conftest import RESAMPLES
from tests.report.study.fake_tagging import FakeTagging, whole
from tests.report.study.naive import drawn_means, ends, mean, measure

SEEDS = [f"seed-b0-s{seed}" for seed in range(1, 6)]
UNIFORM = [f"uniform-s{seed}" for seed in range(3)]
EVERY = [*PREDICTION, *DISTANCE, *(f"attention_js_heads_{head}" for head in range(4))]
WHOLE = whole


@pytest.mark.parametrize("name", EVERY)
def test_each_run_is_a_ratio_of_sums(
    fake: FakeTagging, study: Study, estimates: Estimates, name: str
) -> None:
    found = estimates.per_seed(study.finished("seed"), name)
    assert found == pytest.approx([measure(fake, run, name) for run in SEEDS], rel=1e-9)


@pytest.mark.parametrize("name", ["f1", "nll_base", "attention_js_share", "attention_tau"])
def test_means_resample_seeds_then_sentences(
    fake: FakeTagging, study: Study, estimates: Estimates, name: str
) -> None:
    found = estimates.of(study.finished("seed"), name)
    each = [measure(fake, run, name) for run in SEEDS]
    assert found.mean == pytest.approx(mean(each))
    assert found.std == pytest.approx(statistics.stdev(each))
    (drawn,) = drawn_means(fake, [SEEDS], name, RESAMPLES)
    assert (found.low, found.high) == pytest.approx(ends(drawn))
    assert found.seeds == 5


@pytest.mark.parametrize("name", ["f1", "prediction_tvd"])
def test_differences_draw_the_seeds_of_both(
    fake: FakeTagging, study: Study, estimates: Estimates, name: str
) -> None:
    runs = study.finished("uniform", head=None)
    found = estimates.difference(runs, study.finished("seed"), name)
    first, second = drawn_means(fake, [UNIFORM, SEEDS], name, RESAMPLES)
    expected = ends([a - b for a, b in zip(first, second, strict=True)])
    assert (found.low, found.high) == pytest.approx(expected)
    means = [mean([measure(fake, run, name) for run in group]) for group in (UNIFORM, SEEDS)]
    assert found.mean == pytest.approx(means[0] - means[1])


def test_what_does_not_apply_is_undefined(study: Study, estimates: Estimates) -> None:
    assert all(np.isnan(estimates.of(study.finished("base"), name).mean) for name in DISTANCE)
    assert np.isnan(estimates.of(study.finished("uniform", head=None), "attention_tau").mean)
    assert np.isnan(estimates.of(study.runs.iloc[:0], "f1").mean)


def test_a_run_without_a_number_leaves_the_others(tmp_path: Path) -> None:
    fake = FakeTagging(12)
    fake.add("base-s0", "base")
    for seed in range(3):
        fake.add(f"seed-b0-s{seed + 1}", "seed", js=0.2, tau=None if seed else 0.4)
    fake.rows["seed-b0-s2"]["nll_gold"][:] = np.inf
    study = read_study(fake.write(tmp_path))
    estimates, runs = Estimates(study), study.finished("seed")
    for name, one in (
        ("attention_tau", ["seed-b0-s1"]),
        ("nll_gold", ["seed-b0-s1", "seed-b0-s3"]),
    ):
        found = estimates.of(runs, name)
        assert found.mean == pytest.approx(mean([measure(fake, run, name) for run in one]))
        assert np.isfinite([found.low, found.high]).all()


def test_without_chunks_f1_is_accuracy(tmp_path: Path) -> None:
    fake = FakeTagging(40, target="marked", heads=1)
    fake.add("base-s0", "base")
    fake.add("seed-b0-s1", "seed", js=0.2)
    study = read_study(fake.write(tmp_path))
    found = Estimates(study).of(study.finished("seed"), study.quality)
    right = sum(fake.rows["seed-b0-s1"]["correct"].tolist())
    assert found.mean == pytest.approx(right / 40)
    assert study.words.quality == "accuracy"


def test_the_note_tells_what_is_resampled(estimates: Estimates) -> None:
    assert f"{RESAMPLES} resamples of seeds, then of sentences" in estimates.note

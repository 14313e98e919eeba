"""Shapes of the loss: which is shown, and when a safe point is named."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from attnlight.report.tagging import TaggingEstimates, TaggingStudy, read_tagging_study
from attnlight.report.tagging.bends import JUMP, KINK, NO_BEND, UNDECIDED, Bend, find_bend, told
from attnlight.report.tagging.collapse import find_collapses
from tests.report.tagging.fake import FakeTagging
from tests.report.tagging.naive import measure


def shaped(loss: Callable[[float], float], noise: float = 0.002, points: int = 30) -> FakeTagging:
    """Adversaries whose loss is told by their JS; sentences without spread."""
    fake = FakeTagging(4, heads=1)
    fake.add("base-s0", "base")
    random = np.random.default_rng(3)
    for k, js in enumerate(np.linspace(0.15, 0.45, points).tolist()):
        lam = {"lambda": 0.01 * k, "term": "kl"}
        fake.add(f"adversary-kl-l{0.01 * k:g}-s0", "adversary", js=js, **lam)
        rows = fake.rows[f"adversary-kl-l{0.01 * k:g}-s0"]
        value = loss(js) + noise * random.normal()
        rows["attention_js"] = fake.tokens * js
        rows["nll_base"] = rows["nll_gold"] = fake.tokens * value
    return fake


def bend_of(fake: FakeTagging, folder: Path) -> Bend:
    study = read_tagging_study(fake.write(folder))
    return find_bend(study, TaggingEstimates(study), study.bases[0], "nll_base")


SHAPES: dict[str, Callable[[float], float]] = {
    NO_BEND: lambda js: 0.2 + 0.1 * js,
    KINK: lambda js: 0.2 + max(js - 0.3, 0.0) * 2,
    JUMP: lambda js: 0.2 + 0.25 * (js > 0.3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_is_found(tmp_path: Path, shape: str) -> None:
    bend = bend_of(shaped(SHAPES[shape]), tmp_path)
    assert bend.shape == shape
    said = told(bend)
    if shape == KINK:
        assert bend.safe_point == pytest.approx(0.3, abs=0.01)
        assert f"a kink at JS {bend.safe_point:.3f}" in said
        assert said.startswith("KL (30 runs), loss against the base's labels: a kink")
        assert said.endswith(": the safe point.")
    else:
        assert bend.safe_point is None
        assert said.endswith(": no safe point.")


def test_a_kink_is_that_of_a_search(tmp_path: Path) -> None:
    """Least squares over the place of the bend, by scipy."""
    bend = bend_of(shaped(SHAPES[KINK]), tmp_path)

    def rss(place: float) -> float:
        design = np.stack([np.ones(30), bend.js, np.maximum(bend.js - place, 0)], axis=1)
        return float(np.linalg.lstsq(design, bend.loss, rcond=None)[1][0])

    best = minimize_scalar(rss, bounds=(0.25, 0.35), method="bounded", options={"xatol": 1e-9})
    assert bend.safe_point == pytest.approx(best.x, abs=1e-4)
    assert bend.fits is not None
    bic = 30 * (math.log(best.fun / 30) + 1 + math.log(2 * math.pi)) + 5 * math.log(30)
    assert bend.fits.kink.bic == pytest.approx(bic, abs=1e-4)


def test_a_kink_downwards_is_no_safe_point(tmp_path: Path) -> None:
    bend = bend_of(shaped(lambda js: 0.5 - max(js - 0.3, 0.0)), tmp_path)
    assert bend.shape == KINK
    assert bend.safe_point is None
    assert "where the slope turns from" in told(bend)


def test_a_bend_of_two_readings_is_left_open(tmp_path: Path) -> None:
    def steep(js: float) -> float:
        return 0.2 + 0.2 / (1 + math.exp(-(js - 0.35) / 0.02))

    bend = bend_of(shaped(steep, noise=0.0, points=12), tmp_path)
    assert bend.shape == UNDECIDED
    assert "open whether it is a kink or a jump" in told(bend)
    assert told(bend).endswith("no safe point.")


def test_too_few_points(tmp_path: Path) -> None:
    bend = bend_of(shaped(SHAPES[KINK], points=5), tmp_path)
    assert (bend.fits, bend.shape, bend.safe_point, bend.sides) == (None, NO_BEND, None, ([], []))
    assert told(bend).endswith(
        "(5 runs), loss against the base's labels: too few points for a bend."
    )


def test_a_run_without_a_finite_loss_is_no_point(tmp_path: Path) -> None:
    fake = shaped(SHAPES[JUMP])
    fake.rows["adversary-kl-l0.05-s0"]["nll_base"] = np.full(4, np.nan)
    bend = bend_of(fake, tmp_path)
    assert len(bend.runs) == len(bend.js) == len(bend.loss) == 29
    assert bend.shape == JUMP


def test_points_are_the_runs(
    fake: FakeTagging, study: TaggingStudy, estimates: TaggingEstimates
) -> None:
    collapse = find_collapses(study, study.bases[0])
    bend = find_bend(study, estimates, study.bases[0], "nll_gold", "kl", collapse)
    names = [n for n in fake.rows if n.startswith("adversary-kl") and n not in collapse.names]
    assert sorted(run.name for run in bend.runs) == sorted(names)
    for run, js, loss in zip(bend.runs, bend.js, bend.loss, strict=True):
        assert js == pytest.approx(measure(fake, run.name, "attention_js"))
        assert loss == pytest.approx(measure(fake, run.name, "nll_gold"))
    assert bend.points == "KL, without collapsed runs"


def test_sides_part_the_runs_at_the_bend(
    fake: FakeTagging, study: TaggingStudy, estimates: TaggingEstimates
) -> None:
    bend = find_bend(study, estimates, study.bases[0], "nll_base")
    assert bend.shape == JUMP
    assert bend.fits is not None
    up_to, beyond = bend.sides
    js: Any = {run.name: measure(fake, run.name, "attention_js") for run in bend.runs}
    place = bend.fits.jump.place
    assert {run.name for run in up_to} == {name for name, far in js.items() if far <= place}
    assert len(up_to) + len(beyond) == 60

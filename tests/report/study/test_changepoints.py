"""Shapes of the loss and collapses, against their definitions in plain Python."""

import math
import re
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from attnlight.report.study.changepoints import (
    JUMP,
    KINK,
    NO_CHANGEPOINT,
    UNDECIDED,
    Changepoint,
    changepoint_sentence,
    find_changepoint,
)
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Study
from attnlight.report.study.tables import study_tables
from attnlight.report.study.verdict import collapse_note
from tests.report.study.fake import FakeTagging, add_adversary, whole_tagger
from tests.report.study.naive import measure

WHOLE = whole_tagger


def shaped(loss: Callable[[float], float], noise: float = 0.002, points: int = 30) -> FakeTagging:
    """Adversaries whose loss is told by their JS; sentences without spread."""
    fake = FakeTagging(4, heads=1)
    fake.add("base-s0", "base")
    random = np.random.default_rng(3)
    for k, js in enumerate(np.linspace(0.15, 0.45, points).tolist()):
        name, lam = f"adversary-kl-l{0.01 * k:g}-s0", {"lambda": 0.01 * k, "term": "kl"}
        fake.add(name, "adversary", js=js, **lam)
        rows, value = fake.rows[name], loss(js) + noise * random.normal()
        rows["attention_js"] = fake.tokens * js
        rows["nll_base"] = rows["nll_gold"] = fake.tokens * value
    return fake


def bend_of(fake: FakeTagging) -> Changepoint:
    study = fake.read()
    return find_changepoint(Estimates(study), study.bases[0], "nll_base")


# The loss by JS, its shape, and how the sentence ends.
SHAPES: dict[str, tuple[Callable[[float], float], str, str]] = {
    "line": (lambda js: 0.2 + 0.1 * js, NO_CHANGEPOINT, ": no safe point."),
    "kink": (lambda js: 0.2 + max(js - 0.3, 0.0) * 2, KINK, ": the safe point."),
    "downwards": (lambda js: 0.5 - max(js - 0.3, 0.0), KINK, "changes from …: no safe point."),
    "jump": (lambda js: 0.2 + 0.25 * (js > 0.3), JUMP, ": no safe point."),
    "steep": (
        lambda js: 0.2 + 0.2 / (1 + math.exp(-(js - 0.35) / 0.02)),
        *(UNDECIDED, "either a kink or a jump…no safe point."),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_is_found(name: str) -> None:
    few: dict[str, Any] = {"noise": 0.0, "points": 12} if name == "steep" else {}
    loss, shape, said = SHAPES[name]
    bend = bend_of(shaped(loss, **few))
    assert bend.shape == shape
    sentence = changepoint_sentence(bend)
    assert re.search(re.escape(said).replace("…", ".*") + "$", sentence)
    if name == "kink":
        assert bend.fits is not None
        assert bend.fits.kink.place == pytest.approx(0.3, abs=0.01)
        start = "KL (30 runs), loss against the base's labels: a kink"
        assert sentence.startswith(f"{start} at JS {bend.fits.kink.place:.3f}")


def test_too_few_points() -> None:
    bend = bend_of(shaped(SHAPES["kink"][0], points=5))
    assert (bend.fits, bend.shape, len(bend.sides)) == (None, NO_CHANGEPOINT, 0)
    end = "(5 runs), loss against the base's labels: too few points for a bend."
    assert changepoint_sentence(bend).endswith(end)


def test_a_run_without_a_finite_loss_is_no_point() -> None:
    fake = shaped(SHAPES["jump"][0])
    fake.rows["adversary-kl-l0.05-s0"]["nll_base"] = np.full(4, np.nan)
    bend = bend_of(fake)
    assert (len(bend.runs), bend.shape) == (29, JUMP)


def test_points_are_the_runs(fake: FakeTagging, study: Study, estimates: Estimates) -> None:
    bend = find_changepoint(estimates, study.bases[0], "nll_gold", "kl", collapsed=False)
    fallen = collapsed(study)
    names = [n for n in fake.rows if n.startswith("adversary-kl") and n not in fallen]
    assert sorted(bend.runs.index) == sorted(names)
    for run, js, loss in zip(bend.runs.index, bend.runs["js"], bend.runs["loss"], strict=True):
        assert js == pytest.approx(measure(fake, run, "attention_js"))
        assert loss == pytest.approx(measure(fake, run, "nll_gold"))
    assert bend.points == "KL, without collapsed runs"


def test_sides_part_the_runs_at_the_bend(fake: FakeTagging, estimates: Estimates) -> None:
    bend = find_changepoint(estimates, "base-s0", "nll_base")
    assert bend.shape == JUMP
    assert bend.fits is not None
    up_to, beyond = bend.sides
    near = {r for r in fake.rows if measure(fake, r, "attention_js") <= bend.fits.jump.place}
    assert set(up_to.index) == near & set(bend.runs.index)
    assert len(up_to) + len(beyond) == 60


def collapsed(study: Study) -> set[str]:
    return set(study.runs.index[study.runs["collapsed"]])


def small(**base: Any) -> FakeTagging:
    fake = FakeTagging(6)
    fake.add("base-s0", "base", **base)
    for lam, seed in product((0.0, 1.0), range(3)):
        add_adversary(fake, "kl", lam, seed)
    return fake


def test_is_a_loss_nearer_to_knowing_nothing(fake: FakeTagging, study: Study) -> None:
    adversaries = [run for run in fake.runs if run["role"] == "adversary"]
    held = {run["name"]: run["validation"]["nll_base"] for run in adversaries}
    usual = statistics.median(held[f"adversary-kl-l0-s{seed}"] for seed in range(3))
    threshold = (usual + 0.62) / 2
    assert study.runs.at["base-s0", "threshold"] == pytest.approx(threshold)
    assert collapsed(study) == {name for name, loss in held.items() if loss > threshold}
    assert len(collapsed(study)) == 12
    runs = study.finished("adversary", term="released", lam=3.1)
    assert list(runs["seed"][runs["collapsed"]]) == [0, 1]
    assert f"above {threshold:.3f} nats per token" in collapse_note(study, "base-s0")


def test_a_run_without_a_finite_loss_collapsed() -> None:
    fake = small(ignorant=5.0)
    assert not collapsed(fake.read())
    fake.runs[-1]["validation"]["nll_base"] = None
    fake.runs[-2]["validation"] = None
    assert collapsed(fake.read()) == {"adversary-kl-l1-s1", "adversary-kl-l1-s2"}


@pytest.mark.parametrize(
    ("base", "lam", "message"),
    [
        ({"ignorant": None}, None, "the study lacks the label entropy"),
        ({"ignorant": 0.1}, None, "the loss of knowing nothing is 0.1, but must be above"),
        ({}, 0.0, "no run of it has a finite loss"),
    ],
)
def test_why_it_cannot_be_told(base: dict[str, Any], lam: float | None, message: str) -> None:
    fake = small(**base)
    for run in (run for run in fake.runs if run["lambda"] == lam and run["role"] != "base"):
        run["state"] = "failed"
    study = fake.read()
    assert not collapsed(study)
    assert message in collapse_note(study, "base-s0")
    table = study_tables(Estimates(study))["adversaries"]
    place = table.head.index("collapsed")
    assert {row[place] for row in table.rows} == {"–"}  # noqa: RUF001

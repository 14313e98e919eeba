"""Which runs collapsed, against the definition in plain Python."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from attnlight.report.tagging import TaggingStudy, read_tagging_study
from attnlight.report.tagging.collapse import Collapse, find_collapses
from tests.report.tagging.fake import FakeTagging, add_adversary


def losses(fake: FakeTagging) -> dict[str, float]:
    return {
        run["name"]: run["validation"]["nll_base"]
        for run in fake.runs
        if run["role"] == "adversary"
    }


def found(fake: FakeTagging, folder: Path) -> Collapse:
    study = read_tagging_study(fake.write(folder))
    return find_collapses(study, study.bases[0])


def small(**base: Any) -> FakeTagging:
    fake = FakeTagging(6)
    fake.add("base-s0", "base", **base)
    for lam in (0.0, 1.0):
        for seed in range(3):
            add_adversary(fake, "kl", lam, seed)
    return fake


def test_is_a_loss_nearer_to_knowing_nothing(fake: FakeTagging, study: TaggingStudy) -> None:
    held = losses(fake)
    usual = statistics.median(held[f"adversary-kl-l0-s{seed}"] for seed in range(3))
    threshold = (usual + 0.62) / 2
    collapse = find_collapses(study, study.bases[0])
    assert collapse.threshold == pytest.approx(threshold)
    assert collapse.names == {name for name, loss in held.items() if loss > threshold}
    assert len(collapse.names) == 12
    runs = study.finished("adversary", term="compat", lam=3.1)
    assert [run.seed for run in collapse.of(runs)] == [0, 1]
    assert collapse.share(runs) == "2 of 3"
    assert collapse.share([]) == "–"  # noqa: RUF001
    assert f"above {threshold:.3f} nats a token" in collapse.note


def test_a_run_without_a_finite_loss_collapsed(tmp_path: Path) -> None:
    fake = small(ignorant=5.0)
    assert not found(fake, tmp_path).names
    fake.runs[-1]["validation"]["nll_base"] = None
    fake.runs[-2]["validation"] = None
    assert found(fake, tmp_path).names == {"adversary-kl-l1-s1", "adversary-kl-l1-s2"}


@pytest.mark.parametrize(
    ("base", "lam", "message"),
    [
        ({"ignorant": None}, None, "the study does not say what knowing nothing loses"),
        ({"ignorant": 0.1}, None, "the loss of knowing nothing is 0.1, but must be above"),
        ({}, 0.0, "no finished run of λ = 0 has a loss on validation"),
    ],
)
def test_why_it_cannot_be_told(
    tmp_path: Path, base: dict[str, Any], lam: float | None, message: str
) -> None:
    fake = small(**base)
    for run in fake.runs:
        if run["role"] == "adversary" and run["lambda"] == lam:
            run["state"] = "failed"
    collapse = found(fake, tmp_path)
    assert not collapse.names
    assert message in collapse.note
    study = read_tagging_study(tmp_path)
    assert collapse.share(study.finished("adversary")) == "–"  # noqa: RUF001

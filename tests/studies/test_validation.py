"""Measures on validation, and which adversary they choose."""

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import (
    binary_f1_score,
    multiclass_accuracy,
    multiclass_f1_score,
)

from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import select
from attnlight.studies.validation import Measures, scores


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_are_those_of_torchmetrics(classes: int) -> None:
    random = np.random.default_rng(classes)
    label, prediction = random.integers(0, classes, (2, 200))
    found = scores(label, prediction, classes)
    p, t = torch.from_numpy(prediction), torch.from_numpy(label)
    assert found["accuracy"] == pytest.approx(
        multiclass_accuracy(p, t, classes, average="micro").item()
    )
    assert found["macro_f1"] == pytest.approx(
        multiclass_f1_score(p, t, classes, average="macro").item()
    )
    if classes == 2:
        assert found["f1"] == pytest.approx(binary_f1_score(p, t).item())
    else:
        assert found["f1"] is None


def test_unmeasured_text_is_a_miss() -> None:
    found = scores(np.array([1, 1, 0]), np.array([1, -1, 0]), 2)
    assert found == {
        "accuracy": pytest.approx(2 / 3),
        "macro_f1": pytest.approx((2 / 3 + 1) / 2),
        "f1": pytest.approx(2 / 3),
    }


def adversaries(
    **weights: list[tuple[float, float, float]],
) -> tuple[list[PlannedRun], dict[str, Measures]]:
    """Runs of the lambdas `l<percent>`, with (F1, JS, TVD) of each seed."""
    runs, measures = [], {}
    for name, seeds in weights.items():
        for seed, (f1, js, tvd) in enumerate(seeds):
            weight = int(name[1:]) / 100
            run = PlannedRun(f"{name}-s{seed}", "adversary", seed, term="kl", lambda_=weight)
            runs.append(run)
            measures[run.name] = {
                "f1": f1,
                "macro_f1": 0.0,
                "accuracy": 0.0,
                "attention_js": js,
                "prediction_tvd": tvd,
            }
    return runs, measures


class TestSelection:
    def test_highest_f1_of_those_far_enough_by_means_over_seeds(self) -> None:
        found = select(
            *adversaries(
                l0=[(0.99, 0.6, 0)],  # the control is never chosen
                l1=[(0.95, 0.3, 0), (0.95, 0.45, 0)],  # far enough in one seed only
                l2=[(0.8, 0.3, 0), (0.8, 0.6, 0)],
                l3=[(0.9, 0.5, 0), (0.6, 0.5, 0)],
            )
        )
        assert found is not None
        assert (found.lambda_, found.reached, found.term) == (0.02, True, "kl")
        assert found.runs == {0: "l2-s0", 1: "l2-s1"}
        assert (found.told_by(1), found.told_by(7)) == ("l2-s1", "l2-s0")

    def test_ties_go_to_the_lower_tvd(self) -> None:
        found = select(*adversaries(l1=[(0.8, 0.5, 0.3)], l2=[(0.8, 0.5, 0.2)]))
        assert found is not None
        assert found.lambda_ == 0.02

    def test_largest_js_where_none_is_far_enough(self) -> None:
        found = select(*adversaries(l1=[(0.8, 0.2, 0)], l2=[(0.7, 0.39, 0)], l3=[(0.9, 0.3, 0)]))
        assert found is not None
        assert (found.lambda_, found.reached) == (0.02, False)

    def test_macro_f1_of_more_than_two_classes(self) -> None:
        runs, measures = adversaries(l1=[(0.9, 0.5, 0)], l2=[(0.8, 0.5, 0)])
        for name, macro in (("l1-s0", 0.1), ("l2-s0", 0.2)):
            measures[name] |= {"f1": None, "macro_f1": macro}
        found = select(runs, measures)
        assert found is not None
        assert found.lambda_ == 0.02

    def test_nothing_to_choose_from(self) -> None:
        assert select([], {}) is None
        assert select(*adversaries(l0=[(0.9, 0.5, 0)])) is None

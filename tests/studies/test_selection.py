"""Which adversary measures on validation choose."""

from typing import Any

import pytest

from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import Measures, select

Seeds = list[tuple[float, float, float]]  # (F1, JS, TVD) of each seed


def adversaries(**weights: Seeds) -> tuple[list[PlannedRun], dict[str, Measures]]:
    """Runs of the lambdas `l<percent>`, and what was measured of them."""
    runs: list[PlannedRun] = []
    measures: dict[str, Measures] = {}
    for name, seeds in weights.items():
        told: dict[str, Any] = {"term": "kl", "lambda_": int(name[1:]) / 100}
        for seed, (f1, js, tvd) in enumerate(seeds):
            runs.append(PlannedRun(f"{name}-s{seed}", "adversary", seed, **told))
            own: Measures = {"f1": f1, "macro_f1": 0.0, "accuracy": 0.0}
            measures[runs[-1].name] = own | {"attention_js": js, "prediction_tvd": tvd}
    return runs, measures


@pytest.mark.parametrize(
    ("weights", "reached"),
    [
        (
            {
                "l0": [(0.99, 0.6, 0)],  # the control is never chosen
                "l1": [(0.95, 0.3, 0), (0.95, 0.45, 0)],  # far enough in one seed only
                "l2": [(0.8, 0.3, 0), (0.8, 0.6, 0)],
                "l3": [(0.9, 0.5, 0), (0.6, 0.5, 0)],
            },
            True,
        ),
        ({"l1": [(0.8, 0.5, 0.3)], "l2": [(0.8, 0.5, 0.2)]}, True),
        ({"l1": [(0.8, 0.2, 0)], "l2": [(0.7, 0.39, 0)], "l3": [(0.9, 0.3, 0)]}, False),
    ],
    ids=["highest F1 of those far enough", "ties by TVD", "largest JS where none is far enough"],
)
def test_the_second_lambda_is_chosen(weights: dict[str, Seeds], reached: bool) -> None:
    found = select(*adversaries(**weights))
    assert found is not None
    assert (found.lambda_, found.reached) == (0.02, reached)
    assert found.runs == {seed: f"l2-s{seed}" for seed in range(len(weights["l2"]))}
    assert (found.guide_run(0), found.guide_run(7)) == ("l2-s0", "l2-s0")


def test_macro_f1_of_more_than_two_classes_and_nothing_to_choose_from() -> None:
    runs, measures = adversaries(l1=[(0.9, 0.5, 0)], l2=[(0.8, 0.5, 0)])
    for name, macro in (("l1-s0", 0.1), ("l2-s0", 0.2)):
        measures[name] |= {"f1": None, "macro_f1": macro}
    found = select(runs, measures)
    assert found is not None
    assert found.lambda_ == 0.02
    assert select([], {}) is select(*adversaries(l0=[(0.9, 0.5, 0)])) is None

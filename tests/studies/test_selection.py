"""Which adversary measures on validation choose."""

from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import Measures, select


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
        assert (found.lambda_, found.reached) == (0.02, True)
        assert found.runs == {0: "l2-s0", 1: "l2-s1"}
        assert (found.guide_run(1), found.guide_run(7)) == ("l2-s1", "l2-s0")

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

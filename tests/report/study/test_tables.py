"""What the tables say, against numbers taken from the fake's own rows."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.report.study import Study, read_study
from attnlight.report.study.estimates import JS, TVD, Estimate, Estimates, _deviation
from attnlight.report.study.frame import ACCURACY, F1
from attnlight.report.study.tables import Tables, estimates_csv
from attnlight.report.study.verdict import selection
from attnlight.statistics.seed_bootstrap import difference_of_groups, seeds_then_instances
from tests.report.study.conftest import RESAMPLES
from tests.report.study.fake import FakeStudy, whole


def values(fake: FakeStudy, stem: str, column: str) -> Any:
    """A column of the runs whose name starts so, (S, n)."""
    rows = [rows[column] for name, rows in fake.rows.items() if name.startswith(stem)]
    return np.stack(rows).astype(np.float32).astype(np.float64)


def positive_f1(label: Any, prediction: Any) -> float:
    hits = ((label == 1) & (prediction == 1)).sum()
    return float(2 * hits / ((label == 1).sum() + (prediction == 1).sum()))


class TestEstimates:
    def test_means_are_over_seeds_and_texts(
        self, fake: FakeStudy, study: Study, estimates: Estimates
    ) -> None:
        js = values(fake, "uniform", "attention_js")
        found = estimates.of(study.finished("uniform"), JS)
        expected = seeds_then_instances(js, resamples=RESAMPLES)
        assert found.mean == pytest.approx(js.mean())
        assert found.std == pytest.approx(js.mean(axis=1).std(ddof=1))
        assert (found.low, found.high) == pytest.approx(expected[1:3])
        assert found.seeds == 5

    def test_differences_are_those_of_groups(
        self, fake: FakeStudy, study: Study, estimates: Estimates
    ) -> None:
        pair = [values(fake, stem, "prediction_tvd") for stem in ("uniform", "seed-b0")]
        found = estimates.difference(
            study.finished("uniform"), study.finished("seed", base="base-s0"), TVD
        )
        expected = difference_of_groups(*pair, resamples=RESAMPLES)
        assert (found.mean, found.low, found.high) == pytest.approx(expected[:3])

    def test_f1_and_accuracy_of_each_seed(
        self, fake: FakeStudy, study: Study, estimates: Estimates
    ) -> None:
        runs = study.finished("guide", guide="base")
        predictions = values(fake, "guide-base", "prediction")
        expected = [positive_f1(fake.label, run) for run in predictions]
        assert estimates.per_seed(runs, F1) == pytest.approx(expected)
        assert estimates.of(runs, F1).mean == pytest.approx(np.mean(expected))
        right = (predictions == fake.label).mean(axis=1)
        assert estimates.per_seed(runs, ACCURACY) == pytest.approx(right)

    def test_equal_seeds_do_not_deviate(self) -> None:
        assert _deviation(np.full(3, 0.1)) == 0, "not 1e-17, by a mean that is rounded"

    def test_runs_that_one_model_guides_are_one_case(self, study: Study) -> None:
        """Against a bootstrap by hand with the documented draws of instances, then of models."""
        runs = study.finished("guide", guide="adversary")
        shared = runs.assign(model=["a", "a", "a", "b", "c"])
        estimates = Estimates(study)
        label = study.values(runs, "label")[0]
        right = study.values(runs, "prediction") == label
        by_model = np.stack([right[:3].mean(axis=0), right[3], right[4]])
        instances, models = np.random.default_rng(0), np.random.default_rng([0, 1])
        n = study.clusters
        rows = [instances.integers(0, n, n) for _ in range(RESAMPLES)]
        drawn = models.integers(0, 3, (RESAMPLES, 3))
        means = [by_model[k][:, r].mean() for k, r in zip(drawn, rows, strict=True)]
        found = estimates.of(shared, ACCURACY)
        assert found.mean == pytest.approx(by_model.mean())
        assert found.std == pytest.approx(by_model.mean(axis=1).std(ddof=1))
        assert found[2:4] == pytest.approx(np.quantile(means, [0.025, 0.975]))
        assert found.seeds == 3

    def test_nothing_is_a_dash(self, study: Study, estimates: Estimates) -> None:
        nothing = estimates.of(study.runs.iloc[:0], F1)
        assert str(nothing) == "–"  # noqa: RUF001
        assert nothing.seeds == 0
        assert np.isnan(estimates.difference(study.runs.iloc[:0], study.finished("base"), F1).mean)
        assert np.isnan(estimates.of(study.finished("base"), JS).mean)

    def test_one_seed_has_no_spread(self) -> None:
        assert str(Estimate(0.5, float("nan"), 0.25, 0.75, 1)) == "0.500 [0.250, 0.750]"
        assert str(Estimate(0.5, 0.01, 0.25, 0.75, 2)) == "0.500 ± 0.010 [0.250, 0.750]"


class TestTables:
    def test_cells_are_the_estimates(self, study: Study, estimates: Estimates) -> None:
        found = Tables(estimates).all()
        uniform = study.finished("uniform")
        assert found["table2"].rows[1][1:3] == ["5", str(estimates.of(uniform, F1))]
        base = study.runs[study.runs.index.str.startswith(("base-s0", "seed-b0"))]
        assert found["table2"].rows[0][1:3] == ["6", str(estimates.of(base, F1))]
        less = estimates.difference(uniform, base, F1)
        assert found["table2"].rows[2][2] == str(less)
        guides = {row[0]: row for row in found["table3"].rows}
        told = {name: study.finished("guide", guide=name) for name in ("adversary", "shuffled")}
        against = estimates.difference(told["adversary"], told["shuffled"], F1)
        assert guides["the adversary's"][4] == str(against)

    def test_table_4_has_what_bounds_the_adversary(
        self, study: Study, estimates: Estimates
    ) -> None:
        rows = {row[0]: row for row in Tables(estimates).all()["table4"].rows}
        best = study.finished("adversary", base="base-s0", term="kl", lam=0.01)
        control = study.finished("adversary", base="base-s0", lam=0.0)
        assert rows["best adversary (KL, λ = 0.01)"][4] == str(estimates.of(best, JS))
        assert rows["imitation control (λ = 0)"][3] == str(estimates.of(control, TVD))
        other = study.finished("adversary", base="base-s0", term="js", lam=0.002)
        assert rows["best of its term (JS, λ = 0.002)"][2] == str(estimates.of(other, F1))
        assert rows["best less λ = 0"][4] == str(estimates.difference(best, control, JS))
        assert rows["trained attention"][3:] == ["–", "–"]  # noqa: RUF001

    def test_every_lambda_of_every_base(self, study: Study, estimates: Estimates) -> None:
        grid = Tables(estimates).all()["adversaries"]
        assert len(grid.rows) == 2 * 7
        named = [row[0].partition(";")[0] for row in grid.rows[:7]]
        assert named == [
            *(f"KL, λ = {lam}" for lam in (0, 0.0005, 0.002, 0.01)),
            *(f"JS, λ = {lam}" for lam in (0.0005, 0.002, 0.01)),
        ]
        assert grid.rows[0][0] == "KL, λ = 0; imitation control"
        marked = [row for row in grid.rows if "chosen" in row[0]]
        assert [row[:3] for row in marked] == [
            ["KL, λ = 0.01; chosen on validation", "base-s0", "5"]
        ]
        best = study.finished("adversary", base="base-s0", term="kl", lam=0.01)
        epochs = sorted(best["epoch"] + 1)
        assert marked[0][3] == f"{epochs[2]:g} ({epochs[0]:g} to {epochs[-1]:g})"

    def test_seeds_of_every_base(self, study: Study, estimates: Estimates) -> None:
        grid = Tables(estimates).all()["seeds"]
        assert [row[0] for row in grid.rows] == ["base-s0", "base-s1"]
        own = estimates.of(study.itself("base-s1"), "worst_js")
        assert grid.rows[1][-1] == str(own)

    def test_full_numbers(self, study: Study, estimates: Estimates) -> None:
        rows = list(csv.DictReader(io.StringIO(estimates_csv(estimates))))
        held = {(row["group"], row["base"], row["measure"]): row for row in rows}
        assert len(held) == len(rows)
        found = held["adversary-kl-0.01", "base-s1", "attention_js"]
        runs = study.finished("adversary", base="base-s1", term="kl", lam=0.01)
        assert float(found["low"]) == estimates.of(runs, JS).low
        assert held["base", "base-s0", "attention_js"]["mean"] == ""


class TestNotes:
    def gaps(self, fake: FakeStudy, tmp_path: Path) -> str:
        study = read_study(fake.write(tmp_path))
        return Tables(Estimates(study)).adversaries().note

    def test_a_jump_over_the_middle_is_told(self, tmp_path: Path) -> None:
        fake = whole(seeds=1, bases=1, texts=30)
        assert "No lambda" not in self.gaps(fake, tmp_path)
        for run in fake.runs:
            if run["lambda"] == 0.002:
                run["state"] = "failed"
        note = self.gaps(fake, tmp_path)
        assert "No lambda of KL has a mean JS between 0.35 and 0.6." in note
        assert "of JS has" not in note  # whose largest is below 0.6

    def test_a_choice_that_fell_short_is_told(self, tmp_path: Path) -> None:
        fake = whole(seeds=1, bases=1, texts=8)
        assert "at least 0.4" in selection(read_study(fake.write(tmp_path)))
        fake.head["selected"] = {"run": "x", "term": "kl", "lambda": 0.0005}
        said = selection(read_study(fake.write(tmp_path)))
        assert said.startswith("No lambda of KL reached a mean JS of 0.4 on validation")
        fake.head["selected"]["lambda"] = 0.7
        said = selection(read_study(fake.write(tmp_path)))
        assert said == "No adversary of the chosen lambda is finished."

    def test_what_is_missing_is_told(self, tmp_path: Path) -> None:
        fake = FakeStudy(texts=8)
        fake.add("base-s0", "base")
        for seed in range(7):
            state = "finished" if seed < 1 else "missing"
            fake.add(f"uniform-s{seed}", "uniform", js=0.3, state=state)
        study = read_study(fake.write(tmp_path))
        found = Tables(Estimates(study)).all()
        assert (
            "Not finished: 6 of 7 runs with uniform attention (uniform-s1, uniform-s2, uniform-s3, "
            "uniform-s4, uniform-s5 and 1 more)." in found["table2"].note
        )
        assert found["table2"].rows[1][1] == "1"
        assert "The study has no guided MLPs." in found["table3"].note
        assert not found["table3"].rows
        assert "The study has no adversaries." in found["table4"].note
        assert "No adversary is chosen yet." in found["table4"].note
        assert not found["adversaries"].rows

    def test_a_study_without_the_term_js(self, tmp_path: Path) -> None:
        fake = whole(seeds=2, bases=1, texts=8)
        fake.runs = [run for run in fake.runs if run["term"] != "js"]
        study = read_study(fake.write(tmp_path))
        rows = Tables(Estimates(study)).adversaries().rows
        assert [row[0].partition(",")[0] for row in rows] == ["KL"] * 4


def test_more_classes_are_judged_by_macro_f1(tmp_path: Path) -> None:
    fake = whole(seeds=2, bases=1, texts=60, classes=["a", "b", "c"])
    study = read_study(fake.write(tmp_path))
    runs = study.finished("uniform")
    found = Estimates(study).per_seed(runs, F1)
    for value, prediction in zip(found, values(fake, "uniform", "prediction"), strict=True):
        each = [positive_f1(fake.label == k, prediction == k) for k in range(3)]
        assert value == pytest.approx(np.mean(each))
    assert Tables(Estimates(study)).table2().head[2] == "macro F1"

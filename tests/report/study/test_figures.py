"""The figures of a study: what they draw is what its rows say."""

from typing import Any

import numpy as np
import pytest

from attnlight.report.study import Study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import draw_figure5, draw_violins
from attnlight.report.study.series import series_of_base
from tests.report.study.fake import FakeTexts, whole


@pytest.fixture(scope="module")
def axes(study: Study, estimates: Estimates) -> Any:
    figure = draw_figure5(estimates, study.bases[0])
    assert figure is not None
    return figure.axes


def drawn(axes: Any, label: str) -> Any:
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_xydata()


def means(fake: FakeTexts, stem: str) -> Any:
    """Mean TVD and JS of each run whose name starts so."""
    names = [name for name in fake.rows if name.startswith(stem)]
    columns = ("prediction_tvd", "attention_js")
    return np.array([[fake.rows[name][c].mean() for c in columns] for name in names])


class TestFigure5:
    def test_a_line_goes_from_the_control_through_the_lambdas(
        self, fake: FakeTexts, axes: Any
    ) -> None:
        for term in ("KL", "JS"):
            lambdas = [f"adversary-{term.lower()}-l{lam}-" for lam in (0.0005, 0.002, 0.01)]
            stems = ["adversary-kl-l0-", *lambdas]
            expected = np.stack([means(fake, stem).mean(axis=0) for stem in stems])
            found = drawn(axes[0], f"adversary, {term}")
            np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_a_large_mark_is_the_mean_of_the_small_ones(self, fake: FakeTexts, axes: Any) -> None:
        stems = {"λ = 0": "adversary-kl-l0-", "other seeds": "seed-b0"}
        small = [line.get_xydata() for line in axes[1].lines if line.get_markersize() == 3]
        for label, stem in (stems | {"uniform attention": "uniform"}).items():
            each = means(fake, stem)
            np.testing.assert_allclose(drawn(axes[1], label), [each.mean(axis=0)], atol=1e-6)
            assert any(p.shape == each.shape and np.allclose(p, each, atol=1e-6) for p in small)

    def test_the_frontier_and_the_search_are_those_of_the_base(
        self, fake: FakeTexts, study: Study, axes: Any
    ) -> None:
        """The frontier goes on after its last corner."""
        found = drawn(axes[0], "frontier of the base")
        tvd, js = study.runs.at["base-s0", "frontier"]
        np.testing.assert_allclose(found.T, [[*tvd, 1.0], [*js, js[-1]]])
        assert "adversaries may lie above it" in axes[0].get_title()
        rows = fake.rows["base-s0"]
        expected = [rows["search_tvd"].mean(), rows["search_js"].mean()]
        np.testing.assert_allclose(drawn(axes[0], "Jain & Wallace's search"), [expected], rtol=1e-6)

    def test_another_base_has_its_own(self, study: Study) -> None:
        found = series_of_base(Estimates(study), study.bases[1])
        assert list(found) == ["kl", "js", "other seeds", "λ = 0"]
        groups = found["kl"].groups
        assert {base for group in groups for base in group["base"]} == {"base-s1"}

    def test_a_base_alone_and_seeds_alone_without_frontier_and_search(self) -> None:
        fake = FakeTexts(texts=8)
        fake.add("base-s0", "base", frontier={"tvd": [], "js": []})
        assert draw_figure5(Estimates(fake.read()), "base-s0") is None
        fake.add("seed-b0-s1", "seed", js=0.3)
        for name in ("search_js", "search_tvd"):
            fake.rows["base-s0"][name][:] = np.nan
        figure = draw_figure5(Estimates(fake.read()), "base-s0")
        assert figure is not None
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["other seeds"]
        assert figure.axes[0].get_title() == ""


class TestViolins:
    def test_texts_are_binned_by_the_base(self, fake: FakeTexts, study: Study) -> None:
        runs = study.finished("seed", base="base-s0")
        figure = draw_violins(study, study.bases[0], runs)
        assert figure is not None
        texts = [text.get_text() for text in figure.axes[0].texts]
        bins, predicted = (fake.peaks * 4).astype(int), fake.rows["base-s0"]["prediction"]
        of_bins = [(bins == b) & (predicted == c) for b in range(4) for c in range(2)]
        assert texts == [f"n = {members.sum()}" for members in of_bins]
        assert figure.axes[0].get_ylabel() == "Maximum attention weight of the base"

    def test_each_text_is_the_median_over_runs(self) -> None:
        fake = FakeTexts(texts=4)
        fake.add("base-s0", "base")
        for seed, js in enumerate((0.1, 0.2, 0.6)):
            fake.add(f"seed-b0-s{seed}", "seed", js=js)
            fake.rows[f"seed-b0-s{seed}"]["attention_js"] = js + np.array([0, 0.01, 0.02, 0.03])
        fake.peaks[:] = 0.1
        study = fake.read()
        figure = draw_violins(study, study.bases[0], study.finished("seed"))
        assert figure is not None  # so few texts are drawn as points
        points = [x.get_xdata() for x in figure.axes[0].lines if x.get_marker() == "o"]
        points = np.concatenate(points)
        np.testing.assert_allclose(sorted(points), [0.2, 0.21, 0.22, 0.23], atol=1e-6)

    def test_texts_that_were_not_measured_are_left_out(self) -> None:
        fake = whole(seeds=1, bases=1, texts=8)
        fake.rows["base-s0"]["prediction"][:] = -1
        study = fake.read()
        assert draw_violins(study, study.bases[0], study.finished("seed")) is None
        assert draw_violins(study, study.bases[0], study.runs.iloc[:0]) is None

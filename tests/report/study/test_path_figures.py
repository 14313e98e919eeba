"""The figures of a tagger's study: what they draw is what its rows say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnlight.report.study.changepoints import find_changepoint
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import (
    draw_guides,
    draw_heads,
    draw_outcome,
    draw_ranking,
    draw_tradeoff,
    figures,
)
from attnlight.report.study.frame import Study
from attnlight.statistics.changepoint import fit_segments
from tests.report.study.fake import FALLEN, KL, PROBES, FakeTagging, on_a_line, whole_tagger
from tests.report.study.naive import each, mean, measure

WHOLE = whole_tagger
OF_KL = ("base-s0", "kl")


def lines(axes: Any, marker: str, size: float) -> list[Any]:
    """Points of the lines of a marker and size, each (P, 2)."""
    return [
        np.stack(line.get_data(), axis=1)
        for line in axes.lines
        if line.get_marker() == marker and line.get_markersize() == size and len(line.get_xdata())
    ]


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_xticklabels() if text.get_text()]


class TestOutcome:
    @pytest.mark.parametrize(("panel", "name"), [(0, "f1"), (1, "prediction_tvd")])
    def test_the_line_goes_through_runs_that_did_not_collapse(
        self, fake: FakeTagging, estimates: Estimates, panel: int, name: str
    ) -> None:
        (drawn,) = lines(draw_outcome(estimates, *OF_KL).axes[panel], "o", 5)
        for lam, (place, height) in zip(KL, drawn, strict=True):
            kept = [seed for seed in range(3) if seed not in FALLEN["kl"].get(lam, ())]
            values = [measure(fake, f"adversary-kl-l{lam:g}-s{seed}", name) for seed in kept]
            assert (place, height) == pytest.approx((lam, mean(values)), nan_ok=True)

    def test_every_run_has_a_mark(self, fake: FakeTagging, estimates: Estimates) -> None:
        axes = draw_outcome(estimates, *OF_KL).axes[0]
        kept, fallen = (np.concatenate(lines(axes, *style)) for style in (("o", 3), ("X", 5.5)))
        assert (len(kept), len(fallen)) == (33, 6)
        expected = [
            (lam, measure(fake, f"adversary-kl-l{lam:g}-s{seed}", "f1"))
            for lam, seeds in FALLEN["kl"].items()
            for seed in seeds
        ]
        np.testing.assert_allclose(sorted(fallen.tolist()), sorted(expected))

    def test_bands_are_intervals_with_their_names(self, study: Study, estimates: Estimates) -> None:
        figure = draw_outcome(estimates, *OF_KL)
        axes = figure.axes[0]
        groups = {
            "uniform attention": study.finished("uniform", head=None),
            "other seeds": study.finished("seed"),
            "λ = 0": study.finished("adversary", lam=0.0, term="kl"),
        }
        named = {text.get_text() for text in figure.legends[0].get_texts()}
        assert named == {*groups, "a run", "mean over seeds", "collapsed run"}
        bands = [patch.get_extents().get_points()[:, 1] for patch in axes.patches]
        for runs, band in zip(groups.values(), bands, strict=True):
            found = estimates.estimate(runs, "f1")
            ends = axes.transData.inverted().transform(np.column_stack([[0, 0], band]))[:, 1]
            np.testing.assert_allclose(ends, [found.low, found.high], rtol=1e-6)


def test_each_panel_is_a_head(fake: FakeTagging, estimates: Estimates) -> None:
    figure = draw_heads(estimates, *OF_KL)
    assert figure is not None
    assert [labels(axes) != [] for axes in figure.axes] == [False, False, True, True]
    for head, axes in enumerate(figure.axes):
        (drawn,) = lines(axes, "o", 5)
        name = f"attention_js_heads_{head}"
        assert drawn[1, 1] == pytest.approx(mean(each(fake, "adversary-kl-l0.001-", name)))
        assert axes.get_title(loc="left") == f"head {head}"
        seeds = mean(each(fake, "seed-b0", name))
        levels = [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 2]
        assert any(level == pytest.approx(seeds) for level in levels)


def test_tau_by_lambda_and_by_divergence(fake: FakeTagging, estimates: Estimates) -> None:
    bend = find_changepoint(estimates, "base-s0", "nll_base", "kl")
    figure = draw_ranking(estimates, *OF_KL, bend)
    assert figure is not None
    above, below = figure.axes
    (drawn,) = lines(above, "o", 5)
    taus = each(fake, "adversary-kl-l0.001-", "attention_tau")
    assert drawn[1, 1] == pytest.approx(mean(taus))
    points = np.concatenate([*lines(below, "o", 3), *lines(below, "X", 5.5)])
    columns = (each(fake, "adversary-kl", name) for name in ("attention_js", "attention_tau"))
    np.testing.assert_allclose(sorted(points.tolist()), sorted(zip(*columns, strict=True)))
    assert bend.fits is not None
    assert f"jump at {bend.fits.jump.place:.3f}" in [text.get_text() for text in below.texts]
    strokes = {round(float(line.get_ydata()[0]), 6) for line in below.lines}
    for runs in bend.sides:
        taus = [measure(fake, run, "attention_tau") for run in runs.index]
        assert round(mean(taus), 6) in strokes


def test_nothing_ranked_is_no_figure() -> None:
    fake = on_a_line()
    for name in ("adversary-kl-l0-s0", "adversary-kl-l0.1-s0"):
        fake.rows[name]["tau_rows"][:] = 0
    kinds = [kind for kind, figure, _ in figures(Estimates(fake.read())) if figure is not None]
    assert kinds == ["tradeoff", "outcome", "heads"]


def test_marks_of_the_tradeoff_are_runs_and_its_lines_are_fits(
    fake: FakeTagging, estimates: Estimates
) -> None:
    figure = draw_tradeoff(estimates, "base-s0")
    groups = ["adversary, KL", "adversary, KL (released scale)", "uniform attention"]
    groups += ["other seeds", "λ = 0", "collapsed run"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == groups
    for axes, loss in zip(figure.axes[:2], ("nll_base", "nll_gold"), strict=True):
        styles = (("o", 3.6), ("X", 5.5), ("D", 5))
        points = np.concatenate([part for style in styles for part in lines(axes, *style)])
        columns = (each(fake, "adversary", name) for name in ("attention_js", loss))
        expected = np.array(list(zip(*columns, strict=True)))
        np.testing.assert_allclose(sorted(points.tolist()), sorted(expected.tolist()))
        fits = fit_segments(*expected.T)
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        drawn = dict(zip(named, axes.lines[-3:], strict=True))
        assert list(drawn) == [
            f"line, BIC +{fits.line.bic - fits.jump.bic:.1f}",
            f"kink at {fits.kink.place:.3f}, BIC +{fits.kink.bic - fits.jump.bic:.1f}",
            f"jump at {fits.jump.place:.3f}, least BIC",
        ]
        for line, fit in zip(drawn.values(), fits, strict=True):
            x, y = line.get_data()
            ends = [0, -1]
            np.testing.assert_allclose(y[ends], fit.at(x[ends]))
        jump = list(drawn.values())[2].get_ydata()
        assert np.isnan(jump[2])
        assert jump[3] - jump[1] == pytest.approx(fits.jump.change)


def test_published_curves_are_laid_over_loss_against_kl(
    fake: FakeTagging, study: Study, estimates: Estimates
) -> None:
    curves = {"Yang (2020)": [(0.188, 0.222), (0.332, 0.26), (0.324, 0.26)], "other": [(0.1, 0.3)]}
    above, below, beside = draw_tradeoff(estimates, "base-s0", curves).axes
    assert above.get_title("left") == "The tagger reads POS tags"
    assert below.get_shared_x_axes().joined(above, below)
    assert not below.get_shared_x_axes().joined(below, beside)
    points = np.concatenate(
        [p for s in (("o", 3.6), ("X", 5.5), ("D", 5)) for p in lines(beside, *s)]
    )
    columns = (each(fake, "adversary", name) for name in ("attention_kl_elements", "nll_gold"))
    expected = np.array(list(zip(*columns, strict=True)))
    np.testing.assert_allclose(sorted(points.tolist()), sorted(expected.tolist()))
    drawn = dict(zip(curves, lines(beside, "P", 5), strict=True))
    assert {name: [*map(tuple, found)] for name, found in drawn.items()} == curves
    assert [text.get_text() for text in beside.get_legend().get_texts()] == [*curves]
    assert draw_tradeoff(estimates, "base-s0").axes[2].get_legend() is None
    unread = Estimates(replace(study, facts={**study.facts, "pos": False}))
    assert (
        draw_tradeoff(unread, "base-s0").axes[0].get_title("left") == "The tagger reads no POS tags"
    )


def test_rows_of_probes_are_guides_with_their_intervals(
    fake: FakeTagging, estimates: Estimates
) -> None:
    figure = draw_guides(estimates)
    assert figure is not None
    for axes, mark in zip(figure.axes, ("", "-tokens"), strict=True):
        means = np.concatenate(lines(axes, "o", 5.5))
        seeds = lines(axes, "o", 3)
        for row, guide in enumerate(PROBES):
            qualities = each(fake, f"guide-{guide}{mark}-s", "f1")
            assert means[row].tolist() == pytest.approx([mean(qualities), row])
            assert seeds[row][:, 0] == pytest.approx(qualities)
            runs = estimates.study.finished("guide", guide=guide, context=mark[1:] or "full")
            found = estimates.estimate(runs, "f1")
            bars = [x.get_xdata() for x in axes.lines if list(x.get_ydata()) == [row, row]]
            assert any(list(bar) == [found.low, found.high] for bar in bars)
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first guide is above
        names = [text.get_text() for text in axes.get_yticklabels()]
        assert names[3] == "of the base, shuffled"

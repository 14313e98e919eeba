"""Figures of single texts have the values of their records, by loops over the rows of their files."""

from collections import defaultdict
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.kept import page, write_kept
from tests.report.fake import rows_of
from tests.report.study.fake import FakeTexts

distributions = page("distributions")
TESTS = ("importance_correlation", "adversarial_attention", "attention_permutation")
BILSTM, CNN = "SST\nBiLSTM, additive", "SST\nCNN, additive"


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    """Two seeds of two models, of which one has no maximum attention, and one of a third model."""
    for seed in range(2):
        records = {test: rows_of(test, n=90, seed=seed) for test in TESTS}
        for rows in records.values():
            rows["prediction"] = records["attention_permutation"]["prediction"]
        records["importance_correlation"]["tau_attention_loo"][::7] = np.nan
        records["adversarial_attention"]["worst_js"] *= 0.7
        del records["adversarial_attention"]["max_attention"]
        write_kept(tmp_path, "sst_bilstm", records, seed=seed)
        del records["attention_permutation"]["max_attention"]
        records["importance_correlation"]["tau_attention_input_gradient"][:] = 0.3
        write_kept(tmp_path, "sst_cnn", records, seed=seed)
    erasures = {test: rows_of(test, n=90) for test in ("decision_flip", "single_erasure")}
    write_kept(tmp_path, "yelp_han_rnn", erasures)
    return page("archive").Archive(tmp_path, {})


def panels(archive: Any) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for of, kind, title, rows in distributions.panels_of_runs(archive):
        found[of, kind][title] = rows
    return found


def rows_in(archive: Any, name: str, test: str) -> list[dict[str, Any]]:
    """The rows of a test in the files of all seeds."""
    files = sorted(archive.root.glob(f"{name}/seed*/records/test/{test}.parquet"))
    return [row for path in files for row in pd.read_parquet(path).to_dict("records")]


def lines_at(axes: Axes, style: str) -> list[float]:
    """Places of the vertical lines of a style in the violins, sorted."""
    lines = [line for line in axes.lines if line.get_linestyle() == style]
    xs = [np.asarray(line.get_xdata(), dtype=float) for line in lines]
    return sorted(float(x[0]) for x in xs if len(x) == 2 and x[0] == x[1])


def counts(axes: Axes) -> list[str]:
    return sorted(text.get_text() for text in axes.texts)


def test_a_model_has_a_panel_where_its_records_have_the_columns(archive: Any) -> None:
    found = panels(archive)
    kinds = {kind: [*titles] for (of, kind), titles in found.items() if of == "jain_wallace"}
    both = {kind: [BILSTM, CNN] for kind in ("taus", "differences", "divergences")}
    assert kinds == both | {"permutation": [BILSTM], "weights": [BILSTM]}
    assert {of: [*x] for (of, _), x in found.items() if of != "jain_wallace"} == {
        "serrano_smith": ["Yelp\nHANrnn"]
    }
    assert {len(rows["prediction"]) for x in found.values() for rows in x.values()} == {90, 180}


@pytest.mark.parametrize(
    ("kind", "test", "measure"),
    [
        ("permutation", "attention_permutation", "median_tvd"),
        ("weights", "adversarial_attention", "worst_js"),
    ],
)
def test_violins_have_the_medians_of_each_bin_and_class(
    archive: Any, kind: str, test: str, measure: str
) -> None:
    weights, measured = (rows_in(archive, "sst_bilstm", x) for x in (TESTS[2], test))
    binned: dict[tuple[int, int], list[float]] = defaultdict(list)
    for weight, row in zip(weights, measured, strict=True):
        assert weight["index"] == row["index"]
        binned[int(4 * weight["max_attention"]), row["prediction"]].append(row[measure])
    figure = distributions.draw_panels(kind, panels(archive)["jain_wallace", kind])
    (axes,) = figure.axes
    assert axes.get_title() == BILSTM
    medians = sorted(median(values) for values in binned.values())
    np.testing.assert_allclose(lines_at(axes, "-"), medians, rtol=1e-6)
    assert counts(axes) == sorted(f"n = {len(values)}" for values in binned.values())


def test_points_are_the_drawn_differences_of_few_texts(archive: Any) -> None:
    names = [f"delta_{x}_drawn_attention" for x in ("weight", "js")]
    rows = rows_in(archive, "yelp_han_rnn", "single_erasure")
    expected = [(row[names[0]], row[names[1]]) for row in rows if not isnan(row[names[0]])]
    figure = distributions.draw_panels("erasure", panels(archive)["serrano_smith", "erasure"])
    (axes,) = figure.axes
    points = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    drawn = np.concatenate([np.asarray(x) for x in points])
    assert {*map(tuple, drawn.round(6))} <= {*map(tuple, np.round(expected, 6))}
    assert len(drawn) > 10
    below = 100 * sum(js < 0 for _, js in expected) / len(expected)
    assert counts(axes) == [f"{below:.1f} % below 0\nn = {len(expected)}"]


def test_differences_are_of_each_text_with_all_taus(archive: Any) -> None:
    expected: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows_in(archive, "sst_bilstm", "importance_correlation"):
        for other in ("loo", "input_gradient"):
            less = row["tau_input_gradient_loo"] - row[f"tau_attention_{other}"]
            if not isnan(less):
                expected[other, row["prediction"]].append(less)
    figure = distributions.draw_panels(
        "differences", panels(archive)["jain_wallace", "differences"]
    )
    axes = figure.axes[0]
    medians = sorted(median(values) for values in expected.values())
    np.testing.assert_allclose(lines_at(axes, "-"), medians, atol=1e-6)
    assert counts(axes) == sorted(f"n = {len(values)}" for values in expected.values())
    ticks = [label.get_text() for label in axes.get_yticklabels()]
    assert ticks == ["leave-one-out", "gradient"]  # from below
    lower = [line for line in axes.lines if np.max(line.get_ydata()) < 0.5]
    places = {float(np.asarray(line.get_xdata())[0]) for line in lower}
    assert any(abs(median(expected["loo", 0]) - place) < 1e-6 for place in places)


@pytest.mark.parametrize(
    ("kind", "test", "measure", "low", "width", "bins"),
    [
        ("taus", "importance_correlation", "tau_attention_input_gradient", -1.0, 2 / 30, 30),
        ("divergences", "adversarial_attention", "worst_js", 0.0, 0.7 / 40, 40),
    ],
)
def test_bars_are_shares_of_a_class_and_none_is_cut(
    archive: Any, kind: str, test: str, measure: str, low: float, width: float, bins: int
) -> None:
    rows = rows_in(archive, "sst_bilstm", test)
    figure = distributions.draw_panels(kind, panels(archive)["jain_wallace", kind])
    for label, patch in enumerate(figure.axes[0].patches[:4:2]):
        values = [row[measure] for row in rows if row["prediction"] == label]
        values = [value for value in values if not isnan(value)]
        expected = [0] * bins
        for value in values:
            expected[min(int((value - low) / width), bins - 1)] += 1
        found = np.asarray(patch.get_data().values) * len(values)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    for axes in figure.axes:
        highest = max(np.max(patch.get_data().values) for patch in axes.patches)
        assert axes.get_ylim()[1] > highest
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_boxes_are_of_texts_that_every_ranking_flips(archive: Any) -> None:
    rankings = ("minimal", "random_first", "gradient_x_attention", "gradient", "attention")
    shares: dict[str, list[float]] = defaultdict(list)
    for row in rows_in(archive, "yelp_han_rnn", "decision_flip"):
        if row["length"] > 1 and not any(row[f"never_flips_{x}"] for x in rankings):
            for x in rankings:
                count = row["minimal_count" if x == "minimal" else f"removed_count_{x}"]
                shares[x].append(count / row["length"])
    figure = distributions.draw_panels("removed", panels(archive)["serrano_smith", "removed"])
    (axes,) = figure.axes
    means = [float(np.asarray(line.get_xdata())[0]) for line in axes.lines]
    np.testing.assert_allclose(means, [mean(shares[x]) for x in rankings], rtol=1e-6)
    assert not figure.legends


def test_more_than_three_classes_are_pooled() -> None:
    rows = rows_of("importance_correlation", n=90, classes=5)
    few = rows_of("importance_correlation", n=90, classes=3)
    figure: Figure = distributions.draw_panels("taus", {"many": rows, "few": few})
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [*(f"predicted class {x}" for x in range(3)), "all predicted classes"]
    assert [len(axes.patches) for axes in figure.axes] == [2, 6]


def medians_over(study: FakeTexts, runs: Sequence[str]) -> list[float]:
    values = [study.rows[run]["attention_js"] for run in runs]
    return [median(of_text) for of_text in zip(*values, strict=True)]


def test_a_text_of_a_study_has_its_median_over_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = FakeTexts(texts=60)
    study.add("base-s0", "base")
    seeds = [f"seed-b0-s{seed}" for seed in range(1, 4)]
    for place, run in enumerate(seeds):
        study.add(run, "seed", js=0.1 * (place + 1), base="base-s0")
    study.write(tmp_path / "studies/mine")
    monkeypatch.setitem(distributions.NAMES["findings"], "studies", {"mine": "SST"})
    archive = page("archive").Archive(tmp_path, {})
    ((of, kind, title, rows),) = distributions.panels_of_studies(archive)
    assert (of, kind, title) == ("wiegreffe_pinter", "seeds", "SST\nbase-s0, runs: 3")
    np.testing.assert_allclose(rows["attention_js"], medians_over(study, seeds), rtol=1e-6)
    (axes,) = distributions.draw_panels(kind, {title: rows}).axes
    binned: dict[tuple[int, int], list[float]] = defaultdict(list)
    predicted = study.rows["base-s0"]["prediction"]
    for weight, label, js in zip(study.peaks, predicted, rows["attention_js"], strict=True):
        binned[int(4 * weight), label].append(js)
    medians = sorted(median(values) for values in binned.values() if len(values) >= 5)
    np.testing.assert_allclose(lines_at(axes, "-"), medians, rtol=1e-6)


def test_a_figure_is_a_file_of_few_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = ("mine", "taus", "SST", rows_of("importance_correlation"))
    monkeypatch.setattr(distributions, "panels_of_runs", lambda archive: [panel])
    monkeypatch.setattr(distributions, "panels_of_studies", lambda archive: [])
    distributions.draw_distributions(None, tmp_path)
    (path,) = tmp_path.iterdir()
    image = distributions.Image.open(path)
    assert (path.name, image.mode, image.width) == ("mine_taus.png", "P", 7 * 160)

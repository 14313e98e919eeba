"""Calibration against a naive loop."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attnlight.figures.predictions import calibration_bins
from attnlight.report import draw
from tests.report.fake import rows_of

Floats = NDArray[Any]


def by_tenth(probabilities: Floats, label: Floats) -> dict[int, list[tuple[float, bool]]]:
    """Confidence of each labelled row and whether it is right, by its tenth."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, own in zip(probabilities, label, strict=True):
        if own >= 0:
            confidence = float(max(row))
            bins.setdefault(min(int(10 * confidence), 9), []).append(
                (confidence, row.argmax() == own)
            )
    return bins


def test_reliability_equals_a_naive_loop() -> None:
    rows = rows_of("predictions", n=300, classes=3)
    label = rows["label"].astype(np.float64)
    label[::10] = np.nan
    label[1::10] = -1
    found = calibration_bins(rows["probabilities"], label)
    bins = by_tenth(rows["probabilities"], label)
    assert found.index.tolist() == sorted(bins)
    assert len(bins) > 5
    for tenth, line in found.iterrows():
        confidences, rights = zip(*bins[tenth], strict=True)
        interval = stats.binomtest(sum(rights), len(rights)).proportion_ci(method="wilson")
        assert line["share"] == pytest.approx(len(rights) / 240)
        assert line["confidence"] == pytest.approx(np.mean(confidences))
        assert line["accuracy"] == pytest.approx(np.mean(rights))
        assert line["low"] == pytest.approx(interval.low, abs=1e-6)
        assert line["high"] == pytest.approx(interval.high, abs=1e-6)


def test_certainty_falls_into_the_last_bin() -> None:
    found = calibration_bins(np.array([[0.0, 1.0], [0.05, 0.95]]), np.array([1, 1]))
    assert found["confidence"].tolist() == pytest.approx([0.975])
    assert found["accuracy"].tolist() == pytest.approx([1.0])


@pytest.mark.parametrize(("labels", "panels"), [("all", 3), ("undefined", 2), ("absent", 2)])
def test_calibration_is_drawn_where_there_are_labels(labels: str, panels: int) -> None:
    rows = rows_of("predictions")
    if labels == "undefined":
        rows["label"] = np.full(60, np.nan)
    if labels == "absent":
        del rows["label"]
    figure = draw("predictions", rows)
    assert figure is not None
    assert len(figure.axes) == panels
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    shown = [text for text in texts if text.startswith("ECE")]
    if labels == "all":
        bins = by_tenth(rows["probabilities"], rows["label"])
        means = [(len(held), *np.mean(held, axis=0)) for held in bins.values()]
        error = sum(n / 60 * abs(confidence - accuracy) for n, confidence, accuracy in means)
        assert shown == [f"ECE = {error:.3f}"]
    else:
        assert not shown

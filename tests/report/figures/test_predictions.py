"""Calibration against a naive loop."""

import numpy as np
import pytest
from scipy import stats

from attnlight.report import draw
from attnlight.report.figures.predictions import reliability
from tests.report.fake import rows_of


def test_reliability_equals_a_naive_loop() -> None:
    rows = rows_of("predictions", n=300, classes=3)
    label = rows["label"].astype(np.float64)
    label[::10] = np.nan
    label[1::10] = -1
    found = reliability(rows["probabilities"], label)
    bins: dict[int, list[tuple[float, bool]]] = {}
    for r in range(300):
        if label[r] >= 0:
            confidence = float(max(rows["probabilities"][r]))
            right = bool(rows["probabilities"][r].argmax() == label[r])
            bins.setdefault(min(int(10 * confidence), 9), []).append((confidence, right))
    assert len(found.share) == len(bins) > 5
    error = 0.0
    for k, b in enumerate(sorted(bins)):
        confidences, rights = zip(*bins[b], strict=True)
        share = len(rights) / 240
        interval = stats.binomtest(sum(rights), len(rights)).proportion_ci(method="wilson")
        assert found.share[k] == pytest.approx(share)
        assert found.confidence[k] == pytest.approx(np.mean(confidences))
        assert found.accuracy[k] == pytest.approx(np.mean(rights))
        assert found.low[k] == pytest.approx(interval.low, abs=1e-6)
        assert found.high[k] == pytest.approx(interval.high, abs=1e-6)
        error += share * abs(np.mean(rights) - np.mean(confidences))
    assert found.error == pytest.approx(error)


def test_certainty_falls_into_the_last_bin() -> None:
    found = reliability(np.array([[0.0, 1.0], [0.05, 0.95]]), np.array([1, 1]))
    assert found.confidence == pytest.approx([0.975])
    assert found.accuracy == pytest.approx([1.0])


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
        error = reliability(rows["probabilities"], rows["label"]).error
        assert shown == [f"ECE = {error:.3f}"]
    else:
        assert not shown

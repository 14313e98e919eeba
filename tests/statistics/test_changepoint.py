"""Lines, kinks and jumps against brute force by lstsq, and planted ones found again."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from attnlight.errors import InputError
from attnlight.statistics import fit_segments
from attnlight.statistics.changepoint import VERY_STRONG, Fit, Segments

Bend = Callable[[np.ndarray, float], np.ndarray]
BENDS: dict[str, Bend] = {
    "kink": lambda x, t: np.where(x > t, x - t, 0.0),
    "jump": lambda x, t: np.where(x > t, 1.0, 0.0),
}


def drawn(seed: int, n: int = 15) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 2, n)
    if seed % 2:  # places with several points
        x = x.round(1)
    return x, 1 + 0.5 * x + BENDS["kink"](x, 0.4) + 0.3 * random.normal(size=n)


def least_squares(x: np.ndarray, y: np.ndarray, *columns: np.ndarray) -> float:
    design = np.stack([np.ones_like(x), x, *columns], axis=1)
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    return float(((y - design @ found) ** 2).sum())


def brute(x: np.ndarray, y: np.ndarray, shape: str, steps: int = 4_000) -> float:
    """Least RSS over a fine grid of places that leave three points on either side."""
    ascending, values = np.sort(x), np.unique(x)
    tried = np.linspace(ascending[2], ascending[-3], steps)
    if shape == "jump":
        between = (values[1:] + values[:-1]) / 2
        tried = between[[(x < t).sum() >= 3 and (x > t).sum() >= 3 for t in between]]
    return min(least_squares(x, y, BENDS[shape](x, t)) for t in tried)


@pytest.mark.parametrize("seed", range(6))
def test_jump_and_kink_are_the_best_of_all(seed: int) -> None:
    x, y = drawn(seed)
    assert fit_segments(x, y).jump.rss == pytest.approx(brute(x, y, "jump"), rel=1e-9)
    found, expected = fit_segments(x, y).kink.rss, brute(x, y, "kink")
    assert found <= expected + 1e-9  # the grid misses the best place by a little
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_fits_say_what_they_are(seed: int) -> None:
    x, y = drawn(seed)
    found = fit_segments(x, y)
    for fit, parameters in zip(found, (3, 5, 5), strict=True):
        expected = fit.intercept + fit.slope * x
        if fit.shape != "line":
            expected = expected + fit.change * BENDS[fit.shape](x, fit.place)
        np.testing.assert_allclose(fit.at(x), expected, atol=1e-12)
        assert fit.rss == pytest.approx(((y - expected) ** 2).sum(), rel=1e-9)
        variance = fit.rss / len(x)
        likelihood = -len(x) / 2 * (math.log(2 * math.pi * variance) + 1)
        assert fit.bic == pytest.approx(parameters * math.log(len(x)) - 2 * likelihood)
    slope, intercept = np.polyfit(x, y, 1)
    assert (found.line.slope, found.line.intercept) == pytest.approx((slope, intercept))
    assert math.isnan(found.line.place)


CHANGES = {"kink": 1.5, "jump": 0.25}


def planted(shape: str, noise: float, seed: int = 0, n: int = 40) -> Segments:
    random = np.random.default_rng(seed)
    x = random.uniform(0, 0.6, n)
    y = 0.22 + 0.1 * x + noise * random.normal(size=n)
    if shape in CHANGES:
        y += CHANGES[shape] * BENDS[shape](x, 0.33)
    return fit_segments(x, y)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("shape", CHANGES)
def test_what_is_planted_is_found(shape: str, noise: float) -> None:
    found = planted(shape, noise)
    assert found.preferred.shape == shape
    assert found.margin > 10
    assert found.over_line >= found.margin
    assert found.over_line > VERY_STRONG
    assert found.preferred.place == pytest.approx(0.33, abs=0.03)
    assert found.preferred.change == pytest.approx(CHANGES[shape], rel=0.2)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.02, 1.0])
def test_no_bend_is_named_on_a_line(noise: float) -> None:
    assert all(planted("line", noise, seed).over_line <= VERY_STRONG for seed in range(25))
    exact = planted("line", 0.0)
    assert exact.preferred.shape == "line"
    assert exact.over_line == 0.0


def test_units_and_order_change_nothing() -> None:
    x, y = drawn(0, 30)
    found, order = fit_segments(x, y), np.random.default_rng(1).permutation(30)
    other = fit_segments(1_000 + 50 * x[order], 7 - 3 * y[order])
    assert other.preferred.shape == found.preferred.shape
    assert (other.margin, other.over_line) == pytest.approx((found.margin, found.over_line))
    for one, two in zip(found[1:], other[1:], strict=True):
        assert (two.place - 1_000) / 50 == pytest.approx(one.place, abs=1e-9)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([0, 1, 2, 3, 4], [1.0] * 5),  # three points on either side
        ([0, 0, 0, 1, 1, 1], [1.0] * 6),  # three places
        ([0, 1, 2, 3, 4, np.nan], [1.0] * 6),
        ([0, 1, 2, 3, 4, 5], [1.0] * 5),
        ([], []),
    ],
)
def test_too_few_points_are_refused(x: list[float], y: list[float]) -> None:
    with pytest.raises(InputError, match=r"^segments "):
        fit_segments(np.array(x, float), np.array(y, float))


def test_the_best_fit_is_preferred_by_its_margin() -> None:
    fits = [
        Fit(shape, 0, 0, 0, 0.5, 1, bic)  # type: ignore[arg-type]
        for shape, bic in (("line", 30.0), ("kink", 19.0), ("jump", 16.0))
    ]
    found = Segments(*fits)
    assert (found.preferred.shape, found.margin, found.over_line) == ("jump", 3.0, 14.0)
    assert (found.over_line > VERY_STRONG, found.preferred.place) == (True, 0.5)
    weak = found._replace(jump=fits[2]._replace(bic=20.0), kink=fits[1]._replace(bic=20.0))
    assert weak.over_line <= VERY_STRONG  # not more than 10

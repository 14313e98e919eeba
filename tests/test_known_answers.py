"""On models built by hand every test says what is known, and docs/known_answers.md says the same."""

import importlib

import numpy as np
import pytest
import torch

import tests.kept  # noqa: F401  # puts docs/ on the path
from attnlight.functional import first_flip, minimal_flip_set

build = importlib.import_module("build_known_answers")
models = importlib.import_module("known_models")


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], object]:
    return {(row.test, row.measure): row for row in build.measure_all()}


def mean(found: dict[tuple[str, str], object], test: str, measure: str, model: str) -> float:
    return found[test, measure].means[model].mean  # type: ignore[attr-defined]


@pytest.mark.parametrize("known", models.MODELS, ids=lambda known: known.name)
def test_all_texts_are_classified_rightly(known: object) -> None:
    model = models.build(known)
    for batch in models.loader(known):
        assert torch.equal(model(batch).logits.argmax(-1), batch.labels)


@pytest.mark.parametrize(("model", "signals"), [("F1", 1), ("F3", 3), ("F10", 10), ("D", 3)])
def test_the_minimum_is_the_signal(
    found: dict[tuple[str, str], object], model: str, signals: int
) -> None:
    line = found["decision_flip", "minimal_count"].means[model]  # type: ignore[attr-defined]
    assert (line.low, line.mean, line.high) == (signals, signals, signals)
    assert line.defined == models.TEXTS


def test_attention_exceeds_the_minimum_only_where_it_deceives(
    found: dict[tuple[str, str], object],
) -> None:
    for model in ("F1", "F3", "F10"):
        assert mean(found, "decision_flip", "excess_attention", model) < 1
    assert mean(found, "decision_flip", "excess_attention", "D") > 5


def test_where_all_items_carry_the_signal_all_must_go(
    found: dict[tuple[str, str], object],
) -> None:
    for ranking in ("attention", "gradient", "gradient_x_attention", "random", "minimal"):
        assert mean(found, "decision_flip", f"needs_all_{ranking}", "R") == 1


def area(above: np.ndarray, below: np.ndarray) -> float:
    """Pair by pair."""
    return float(np.mean([(a > b) + 0.5 * (a == b) for a in above for b in below]))


@pytest.mark.parametrize(
    ("test", "measure", "separates"),
    [
        ("attention_permutation", "flip_rate", False),
        ("attention_permutation", "median_tvd", False),
        ("importance_correlation", "tau_attention_input_gradient", True),
        ("decision_flip", "excess_attention", True),
        ("single_erasure", "outdone_expected_gradient", False),
    ],
)
def test_d_is_told_from_every_f_by_the_area_over_texts(
    found: dict[tuple[str, str], object], test: str, measure: str, separates: bool
) -> None:
    row = found[test, measure]
    values = {name: v[~np.isnan(v)] for name, v in row.values.items()}  # type: ignore[attr-defined]
    areas = [area(values["D"], values[name]) for name in ("F1", "F3", "F10")]
    assert row.effect == pytest.approx(max(min(areas), 1 - max(areas)))  # type: ignore[attr-defined]
    assert (row.effect >= build.EFFECT) == separates  # type: ignore[attr-defined]


def test_intervals_that_do_not_touch_do_not_tell(
    found: dict[tuple[str, str], object],
) -> None:
    """F10's flip rate is 0.0016 and D's is 0: apart for sure, and no text is told by it."""
    lines = found["attention_permutation", "flip_rate"].means  # type: ignore[attr-defined]
    assert lines["D"].high < lines["F10"].low < 0.01


def test_page_says_what_the_tests_say(found: dict[tuple[str, str], object]) -> None:
    page = build.PAGE.read_text(encoding="utf-8")
    blocks = build.blocks(list(found.values()))
    assert build.agree(page, importlib.import_module("build_results").fill(page, blocks))


def test_pages_agree_up_to_rounding_alone() -> None:
    assert build.agree("a 0.1234 b", "a 0.1235 b")
    assert not build.agree("a 0.1234 b", "a 0.1334 b")
    assert not build.agree("a 0.1234 b", "c 0.1234 b")


def test_deception_by_hand() -> None:
    """What D does, in three items: the signal has little attention and decides."""
    weights = torch.tensor([[0.45, 0.45, 0.1]])
    items = torch.tensor([[[0.0, 0.1, 0.0], [0.0, 0.1, 0.0], [60.0, 0.0, 0.0]]])
    mask, bias = torch.ones(1, 3, dtype=torch.bool), torch.tensor([0.0, 1.0, 0.0])
    size, members = minimal_flip_set(weights, items, bias, mask)
    assert size.tolist() == [1]
    assert members.tolist() == [[False, False, True]]
    order = torch.tensor([[0, 1, 2]])
    assert first_flip(weights, items, bias, mask, order).tolist() == [3]

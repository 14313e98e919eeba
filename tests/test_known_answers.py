"""On models built by hand every test says what is known, and docs/known_answers.md says the same."""

import importlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.kept import page

build = importlib.import_module("build_known_answers")
models = importlib.import_module("known_models")
pytestmark = pytest.mark.slow  # all tests of all models, as the page prints them


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], pd.DataFrame]:
    measured: dict[tuple[str, str], pd.DataFrame] = build.measure_all()
    return measured


@pytest.fixture(scope="module")
def tables(found: dict[tuple[str, str], pd.DataFrame]) -> Any:
    points = build.Checkpoints(pd.read_parquet(build.CHECKPOINTS))
    blocks = {**build.blocks(found), **build.trained_blocks(points, build.planned().total())}
    judged = build.kind_blocks(build.kinds.read_cards(build.KINDS))
    judged |= build.judged_blocks(build.kinds.read_cards(build.KINDS, 4), "kinds_4")
    return page("findings").Tables({**blocks, **build.card_blocks(build.CARDS), **judged})


@pytest.mark.parametrize("known", models.MODELS, ids=lambda known: known.name)
def test_all_texts_are_classified_rightly(known: object) -> None:
    model = models.KnownTask(known).model
    for batch in models.loader(known):
        assert torch.equal(model(batch).logits.argmax(-1), batch.labels)


@pytest.mark.parametrize(("model", "signals"), [("F1", 1), ("F3", 3), ("F10", 10), ("D", 3)])
def test_the_minimum_is_the_signal(
    found: dict[tuple[str, str], pd.DataFrame], model: str, signals: int
) -> None:
    values = found["decision_flip", "minimal_count"][model]
    assert values.tolist() == [signals] * models.TEXTS


def test_attention_exceeds_the_minimum_only_where_it_deceives(
    found: dict[tuple[str, str], pd.DataFrame],
) -> None:
    excess = found["decision_flip", "excess_attention"].mean()
    assert (excess[["F1", "F3", "F10"]] < 1).all()
    assert excess["D"] > 5
    for ranking in ("attention", "gradient", "gradient_x_attention", "random", "minimal"):
        assert found["decision_flip", f"needs_all_{ranking}"]["R"].mean() == 1, "all carry it"


FAITHFUL = ("F1", "F3", "F10")
# Methods that find the signal by construction: all but these two count what an item says.
FINDERS = sorted({*build.METHODS} - {"random", "attention", "input_gradient", "gradient"})


@pytest.mark.parametrize("method", [*FINDERS, "attention", "gradient", "input_gradient"])
def test_methods_find_the_signal_of_faithful_attention(
    found: dict[tuple[str, str], pd.DataFrame], method: str
) -> None:
    for model in FAITHFUL:
        assert found["plausibility", f"auprc_{method}"][model].min() > 1 - 1e-5
        assert found["faithfulness", f"excess_comprehensiveness_{method}"][model].mean() > 0.1
        assert found["faithfulness", f"excess_sufficiency_{method}"][model].mean() < -0.1


@pytest.mark.parametrize("method", FINDERS)
def test_what_an_item_says_finds_the_signal_that_attention_hides(
    found: dict[tuple[str, str], pd.DataFrame], method: str
) -> None:
    assert found["plausibility", f"auprc_{method}"]["D"].min() > 1 - 1e-5
    for measure, sign in (("comprehensiveness", 1), ("sufficiency", -1)):
        own, attention = (
            sign * found["faithfulness", f"{measure}_{name}"]["D"] for name in (method, "attention")
        )
        assert (own > attention).all()
        assert (sign * found["faithfulness", f"excess_{measure}_{method}"]["D"]).mean() > 0.2


def test_where_attention_hides_the_signal_it_is_worse_than_chance(
    found: dict[tuple[str, str], pd.DataFrame],
) -> None:
    chance = found["plausibility", "chance_auprc"]["D"]
    assert (found["plausibility", "auprc_attention"]["D"] < chance).all()
    assert found["faithfulness", "excess_comprehensiveness_attention"]["D"].mean() < -0.1
    assert found["faithfulness", "excess_sufficiency_attention"]["D"].mean() > 0.1


def test_input_gradient_is_misled_by_the_score_in_the_embedding() -> None:
    """On D it finds the signal if attention is held fixed, and not otherwise, by hand."""
    known = next(model for model in models.MODELS if model.kind == "D")
    model, batch = models.KnownTask(known).model, next(iter(models.loader(known)))
    for detached in (False, True):
        inputs = model.embed(batch).detach().requires_grad_()
        output = model(batch, embeddings=inputs)
        weights = output.weights.detach() if detached else None
        logits = model(batch, weights=weights, embeddings=inputs).logits
        target = logits.argmax(-1)
        rest = logits.scatter(-1, target[:, None], -torch.inf).logsumexp(-1)
        odds = logits.gather(-1, target[:, None])[:, 0] - rest
        (gradient,) = torch.autograd.grad(odds.sum(), inputs)
        scores = (gradient * inputs).sum(-1).detach()
        signal = batch.extras["evidence"] > 0
        lowest = scores.masked_fill(~signal, torch.inf).amin(-1)
        highest = scores.masked_fill(signal | ~batch.mask, -torch.inf).amax(-1)
        assert bool((lowest > highest).all()) == detached


def test_contribution_is_gradient_times_attention(
    found: dict[tuple[str, str], pd.DataFrame],
) -> None:
    for (test, measure), values in found.items():
        if test in build.OF_METHODS and measure.endswith("_attention_contribution"):
            other = measure.replace("attention_contribution", "gradient_x_attention")
            np.testing.assert_allclose(values, found[test, other], atol=1e-4)


def test_where_all_items_say_the_same_no_method_is_told_from_another(
    found: dict[tuple[str, str], pd.DataFrame],
) -> None:
    for method in build.METHODS:
        assert found["plausibility", f"auprc_{method}"]["R"].isna().all()
        for measure in ("comprehensiveness", "sufficiency"):
            assert found["faithfulness", f"{measure}_{method}"]["R"].abs().max() < 1e-5


@pytest.mark.parametrize("method", build.METHODS)
def test_each_method_has_its_rows(
    found: dict[tuple[str, str], pd.DataFrame], tables: Any, method: str
) -> None:
    rows = tables.rows("methods", f"`{method}`")
    names = [n for n in build.MEASURES if method != "random" or not n.startswith("excess")]
    assert len(rows) == len(names)
    for row, name in zip(rows, names, strict=True):
        test = "plausibility" if name == "auprc" else "faithfulness"
        for model in (*FAITHFUL, "D"):
            mean = sum(found[test, f"{name}_{method}"][model]) / models.TEXTS
            assert float(row[model].split()[0]) == pytest.approx(mean, abs=5.1e-5)


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
    found: dict[tuple[str, str], pd.DataFrame],
    tables: Any,
    test: str,
    measure: str,
    separates: bool,
) -> None:
    values = {name: own.dropna().to_numpy() for name, own in found[test, measure].items()}
    areas = [area(values["D"], values[name]) for name in ("F1", "F3", "F10")]
    (row,) = tables.rows("measures", f"`{measure}`")
    assert float(row["AUROC"]) == pytest.approx(max(min(areas), 1 - max(areas)), abs=5.1e-5)
    assert row["tells F from D"] == ("yes" if separates else "**no**")


def test_page_says_what_the_tests_say(tables: Any) -> None:
    text = build.PAGE.read_text(encoding="utf-8")
    (expected,) = importlib.import_module("build_results").fill([text], tables)
    assert build.agree(text, expected)


def test_pages_agree_up_to_rounding_alone() -> None:
    assert build.agree("a 0.1234 b", "a 0.1235 b")
    assert not build.agree("a 0.1234 b", "a 0.1334 b")
    assert not build.agree("a 0.1234 b", "c 0.1234 b")

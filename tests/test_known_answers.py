"""On models built by hand every test says what is known, and docs/known_answers.md says the same."""

import importlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.kept import page

build, models = map(importlib.import_module, ("build_known_answers", "known_models"))
pytestmark = pytest.mark.slow  # all tests of all models, as the page prints them
FAITHFUL = ["F1", "F3", "F10"]
# Methods that find the signal by construction: all but these count what an item says.
FINDERS = sorted({*build.METHODS} - {"random", "attention", "input_gradient", "gradient"})


class Found(dict[tuple[str, str], pd.DataFrame]):
    """The value of each text under each model, by test and measure."""

    def mean(self, test: str, measure: str) -> pd.Series:
        return self[test, measure].mean()


@pytest.fixture(scope="module")
def found() -> Found:
    return Found(build.measure_all())


@pytest.fixture(scope="module")
def tables(found: Found) -> Any:
    points = build.Checkpoints(pd.read_parquet(build.CHECKPOINTS))
    blocks = {**build.blocks(found), **build.trained_blocks(points, build.planned().total())}
    blocks |= build.kind_blocks(build.kinds.read_cards(build.KINDS))
    blocks |= build.judged_blocks(build.kinds.read_cards(build.KINDS, 4), "kinds_4")
    return page("findings").Tables({**blocks, **build.card_blocks(build.CARDS)})


@pytest.mark.parametrize("known", models.MODELS, ids=lambda known: known.name)
def test_texts_are_classified_rightly_by_the_signal_alone(known: Any, found: Found) -> None:
    for batch in models.batches(known):
        assert torch.equal(models.classifier(known)(batch).logits.argmax(-1), batch.labels)
    if known.signals:
        values = found["decision_flip", "minimal_count"][known.name]
        assert values.tolist() == [known.signals] * models.TEXTS


def test_attention_exceeds_the_minimum_only_where_it_deceives(found: Found) -> None:
    excess = found.mean("decision_flip", "excess_attention")
    assert (excess[FAITHFUL] < 1).all()
    assert excess["D"] > 5
    for ranking in ("attention", "gradient", "gradient_x_attention", "random", "minimal"):
        assert found.mean("decision_flip", f"needs_all_{ranking}")["R"] == 1, "all carry it"


@pytest.mark.parametrize("method", [*FINDERS, "attention", "gradient", "input_gradient"])
def test_methods_find_the_signal(found: Found, method: str) -> None:
    """That of faithful attention; and what an item says finds the signal that attention hides."""
    places = [*FAITHFUL, "D"] if method in FINDERS else FAITHFUL
    assert (found["plausibility", f"auprc_{method}"][places].min() > 1 - 1e-5).all()
    assert (found.mean("faithfulness", f"excess_comprehensiveness_{method}")[places] > 0.1).all()
    assert (found.mean("faithfulness", f"excess_sufficiency_{method}")[places] < -0.1).all()
    for measure, sign in (("comprehensiveness", 1), ("sufficiency", -1)):
        names = (f"{measure}_{name}" for name in (method, "attention"))
        own, attention = (sign * found["faithfulness", name]["D"] for name in names)
        assert method not in FINDERS or (own > attention).all()
        excess = sign * found.mean("faithfulness", f"excess_{measure}_{method}")["D"]
        assert method not in FINDERS or excess > 0.2


def test_where_attention_hides_the_signal_it_is_worse_than_chance(found: Found) -> None:
    chance = found["plausibility", "chance_auprc"]["D"]
    assert (found["plausibility", "auprc_attention"]["D"] < chance).all()
    assert found.mean("faithfulness", "excess_comprehensiveness_attention")["D"] < -0.1
    assert found.mean("faithfulness", "excess_sufficiency_attention")["D"] > 0.1


def test_input_gradient_is_misled_by_the_score_in_the_embedding() -> None:
    """On D it finds the signal if attention is held fixed, and not otherwise, by hand."""
    known = next(model for model in models.MODELS if model.kind == "D")
    model, batch = models.classifier(known), models.batches(known)[0]
    for detached in (False, True):
        inputs = model.embed(batch).detach().requires_grad_()
        weights = model(batch, embeddings=inputs).weights.detach() if detached else None
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


def test_what_methods_share_by_construction(found: Found) -> None:
    """Contribution is gradient times attention; equal items tell no method from another."""
    for (test, measure), values in found.items():
        if test in build.OF_METHODS and measure.endswith("_attention_contribution"):
            other = measure.replace("attention_contribution", "gradient_x_attention")
            np.testing.assert_allclose(values, found[test, other], atol=1e-4)
    for method in build.METHODS:
        assert found["plausibility", f"auprc_{method}"]["R"].isna().all()
        for measure in ("comprehensiveness", "sufficiency"):
            assert found["faithfulness", f"{measure}_{method}"]["R"].abs().max() < 1e-5


@pytest.mark.parametrize("method", build.METHODS)
def test_each_method_has_its_rows(found: Found, tables: Any, method: str) -> None:
    names = [n for n in build.MEASURES if method != "random" or not n.startswith("excess")]
    for row, name in zip(tables.rows("methods", f"`{method}`"), names, strict=True):
        test = "plausibility" if name == "auprc" else "faithfulness"
        for model in (*FAITHFUL, "D"):
            mean = sum(found[test, f"{name}_{method}"][model]) / models.TEXTS
            assert float(row[model].split()[0]) == pytest.approx(mean, abs=5.1e-5)


@pytest.mark.parametrize(
    ("measure", "separates"),
    [
        ("attention_permutation flip_rate", False),
        ("attention_permutation median_tvd", False),
        ("importance_correlation tau_attention_input_gradient", True),
        ("decision_flip excess_attention", True),
        ("single_erasure outdone_expected_gradient", False),
    ],
)
def test_d_is_told_from_every_f_by_the_area_over_texts(
    found: Found, tables: Any, measure: str, separates: bool
) -> None:
    """The area is the share of pairs that D wins, pair by pair."""
    test, name = measure.split()
    off, *on = (found[test, name][x].dropna().to_numpy() for x in ("D", *FAITHFUL))
    areas = [np.mean([(a > b) + 0.5 * (a == b) for a in off for b in of]) for of in on]
    (row,) = tables.rows("measures", f"`{name}`")
    assert float(row["AUROC"]) == pytest.approx(max(min(areas), 1 - max(areas)), abs=5.1e-5)
    assert row["tells F from D"] == ("yes" if separates else "**no**")


def test_page_says_what_the_tests_say_up_to_rounding(tables: Any) -> None:
    text = build.PAGE.read_text(encoding="utf-8")
    (expected,) = importlib.import_module("build_results").fill([text], tables)
    assert build.agree(text, expected)
    assert build.agree("a 0.1234 b", "a 0.1235 b")
    assert not build.agree("a 0.1234 b", "a 0.1334 b")
    assert not build.agree("a 0.1234 b", "c 0.1234 b")

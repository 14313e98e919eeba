"""Attention against gradients and leave-one-out, on models from here and from outside."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import ImportanceCorrelation
from attnlight.errors import InputError
from attnlight.figures import tables
from attnlight.models import FlatClassifier
from tests.attribution.scenes import scene
from tests.callbacks.token_loops import columns_of
from tests.models import test_classifier as flat
from tests.outside import OutsideTask, collate
from tests.probing.oracles import Hiding, moved

PAIRS = [
    ("attention", "input_gradient"),
    ("attention", "input_gradient_attached"),
    ("attention", "loo"),
    ("input_gradient", "loo"),
    ("input_gradient_attached", "loo"),
]


def by_scipy(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = kendalltau(one, other)
    return float(found.statistic), float(found.pvalue)


def measured(model: AttentionModel, batch: TextBatch, **options: Any) -> dict[str, Any]:
    return columns_of(ImportanceCorrelation(**options), model, batch)


def naive_scores(model: AttentionModel, text: Sequence[int]) -> dict[str, list[float]]:
    """Scores of the words between boundary tokens, a word at a time, of a model of two classes."""
    batch = flat.collate([text])
    with torch.no_grad():
        output = model(batch)
    words = range(1, len(text) - 1)
    scores = {"attention": [float(output.weights[0, 0, n]) for n in words]}
    for name, weights in (("input_gradient", output.weights), ("input_gradient_attached", None)):
        embeddings = model.embed(batch).detach().requires_grad_()
        probability = model(batch, weights=weights, embeddings=embeddings).logits.softmax(-1)[0, 1]
        (gradient,) = torch.autograd.grad(probability, embeddings)
        effects = (gradient[0] * embeddings[0].detach()).sum(-1)
        scores[name] = [abs(float(effects[n])) for n in words]
    return scores | {"loo": moved(model, batch, output, of_items=False)[0, 1:-1].tolist()}


@pytest.mark.parametrize("encoder", ["bilstm", "cnn"])
def test_equals_scipy_on_scores_of_a_naive_loop(encoder: str) -> None:
    model, texts = flat.model(encoder), flat.corpus()
    texts = [text for text in texts if len(set(text)) == len(text)]  # none has equal words
    columns = measured(model, flat.collate(texts, padding=2))
    expected: dict[str, list[float]] = {}
    for text in texts:
        scores = naive_scores(model, text)
        for one, other in PAIRS:
            found = by_scipy(scores[one], scores[other])
            for measure, value in zip(("tau", "p"), found, strict=True):
                expected.setdefault(f"{measure}_{one}_{other}", []).append(value)
    assert list(columns) == list(expected)
    assert len(texts) > 4
    for name, values in expected.items():
        np.testing.assert_allclose(columns[name], values, rtol=1e-9, atol=1e-12)


def test_equal_words_tie_where_there_is_no_context() -> None:
    model = flat.model("none", dtype=torch.float32)
    text = [2, 7, 9, 7, 11, 9, 7, 13, 3]
    columns = measured(model, flat.collate([text]))
    words = sorted(set(text[1:-1]))
    scores = naive_scores(model, text)
    first = {name: [values[text.index(w) - 1] for w in words] for name, values in scores.items()}
    for one, other in PAIRS:
        tied = [[first[name][words.index(w)] for w in text[1:-1]] for name in (one, other)]
        assert float(columns[f"tau_{one}_{other}"]) == pytest.approx(by_scipy(*tied)[0], abs=1e-9)


def test_uniform_attention_and_short_texts_are_undefined() -> None:
    columns = measured(flat.model("bilstm", "uniform"), flat.collate(flat.corpus()))
    for name, values in columns.items():
        if "attention_" in name:
            assert values.isnan().all(), name
    one_word = [len(set(text)) == 3 for text in flat.corpus()]  # once, or the same one twice
    assert columns["tau_input_gradient_loo"].isnan().tolist() == one_word
    assert 1 < sum(one_word) < 6


def test_options_decide_the_columns() -> None:
    model, batch = flat.model(), flat.collate(flat.corpus())
    columns = measured(model, batch, leave_one_out=False, gradients=["attached"])
    pair = "attention_input_gradient_attached"
    assert list(columns) == [f"tau_{pair}", f"p_{pair}"]
    assert ImportanceCorrelation(gradients=[]).measures == ("tau_attention_loo",)
    columns = measured(model, batch, gradients=[])
    assert list(columns) == ["tau_attention_loo", "p_attention_loo"]


def test_only_a_deletion_is_not_finite() -> None:
    """A model that one shortened text upsets: leave-one-out is undefined there, gradients are not."""

    def upset(batch: TextBatch, output: AttentionOutput) -> AttentionOutput:
        there = batch.tokens.sum(-1, keepdim=True) == 17
        return replace(output, logits=output.logits.masked_fill(there, torch.nan))

    fragile = Hiding(flat.model("none"), upset)
    for third, undefined in ((11, False), (8, True)):
        columns = measured(fragile, flat.collate([[4, 6, 8, 9], [4, 5, third, 30]]))
        assert columns["tau_attention_loo"].isnan().tolist() == [False, undefined]
    assert not columns["tau_attention_input_gradient"].isnan().any()


@pytest.mark.parametrize(("classes", "explained"), [(8, "all"), (9, "predicted")])
def test_gradients_of_many_classes_are_of_the_predicted_one(classes: int, explained: str) -> None:
    """Record and page name it; an option overrides it."""
    torch.manual_seed(0)
    options: Any = {"encoder": "none", "attention": "additive", "embedding_size": 8}
    model = FlatClassifier(num_classes=classes, vocab_size=40, **options).double().eval()
    batch = flat.collate([[n + 4, n + 9, 2 * n + 5, 17, 30 - n] for n in range(8)])
    around: Any = SimpleNamespace(model=model, classes=[f"class {n}" for n in range(classes)])
    taus = {}
    for option in (None, "all", "predicted"):
        test = ImportanceCorrelation(leave_one_out=False, classes=option)  # type: ignore[arg-type]
        test.prepare(around)
        assert test.metadata["gradients_of"] == (option or explained)
        taus[option] = columns_of(test, model, batch)["tau_attention_input_gradient"]
    assert not taus["all"].equal(taus["predicted"])
    assert taus[None].equal(taus[explained])
    columns = {f"tau_{one}_{other}": np.zeros(3) for one, other in PAIRS[:1]}
    rows = {"prediction": np.zeros(3, int), "index": np.arange(3)} | columns
    rows |= {name.replace("tau", "p"): values for name, values in columns.items()}
    metadata = {"gradients_of": explained}
    (table,) = tables("importance_correlation", rows, None, metadata)
    assert ("of the predicted class" in table.note) == (classes == 9)


@pytest.mark.parametrize(
    ("limit", "given", "options", "said"),
    [
        ("_LONG", (5, 7, 8), {}, ("7 items", "positions: 64", "truncate")),
        ("_MANY", (5, 5), {"classes": "all"}, ("3 classes", "classes: predicted")),
        ("_MANY", (5, 5), {"gradients": []}, ()),
        ("_MANY", (5, 5), {"classes": "predicted"}, ()),
    ],
)
def test_what_takes_long_is_said_once(
    limit: str,
    given: tuple[int, ...],
    options: dict[str, Any],
    said: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    least = 5 if limit == "_LONG" else 1
    monkeypatch.setattr(f"attnlight.callbacks.importance_correlation.{limit}", least)
    test, model = ImportanceCorrelation(**options), OutsideTask().model
    with torch.no_grad():
        for items in given:
            batch = collate([(0, torch.arange(items) + 1)])
            test.measure(batch, model(batch), model)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(said)
    assert all(part in lines[0] for part in said)


def long_texts() -> list[list[int]]:
    """Texts of 12, 32 and 40 words."""
    random = np.random.default_rng(1)
    return [[2, *random.integers(4, 40, length).tolist(), 3] for length in (12, 32, 40)]


def test_sampled_positions_estimate_what_all_of_them_give() -> None:
    """Means of many samples are near, intervals contain it, and no batch or padding changes a sample."""
    model, texts = flat.model("bilstm"), long_texts()
    batch = flat.collate(texts)
    whole = measured(model, batch)
    found = [measured(model, batch, positions=24, seed=seed) for seed in range(30)]
    for pair in ("attention_loo", "input_gradient_loo"):
        taus = torch.stack([columns[f"tau_{pair}"] for columns in found])
        inside = torch.stack(
            [(x[f"low_{pair}"] <= whole[f"tau_{pair}"] + 1e-9) for x in found]
        ) & torch.stack([x[f"high_{pair}"] >= whole[f"tau_{pair}"] - 1e-9 for x in found])
        assert inside[:, 1:].double().mean() > 0.85
        torch.testing.assert_close(taus[:, 0], whole[f"tau_{pair}"][0].expand(30))  # of 12 words
        assert (taus[:, 1:].std(0) > 0.01).all()
        assert (taus.mean(0) - whole[f"tau_{pair}"]).abs().max() < 0.05
        assert found[0][f"p_{pair}"].isnan().all()
    gradient = "tau_attention_input_gradient"
    torch.testing.assert_close(found[0][gradient], whole[gradient])
    one = replace(flat.collate(texts[2:], padding=3), index=batch.index[2:])
    alone = measured(model, one, positions=24, seed=3)
    for name, values in alone.items():
        torch.testing.assert_close(values, found[3][name][2:], equal_nan=True)


def test_sampled_positions_are_of_texts_and_have_no_scores() -> None:
    with pytest.raises(InputError, match="leave out positions"):
        ImportanceCorrelation(positions=20, keep_scores=True)
    with pytest.raises(InputError, match="positions of importance_correlation is 5; it must be at"):
        ImportanceCorrelation(positions=5)
    with pytest.raises(InputError, match="leave out positions"):
        measured(*scene("transformer"), positions=20)


def test_the_table_shows_no_p_of_sampled_positions() -> None:
    model, batch = flat.model("bilstm"), flat.collate(long_texts())
    columns = {k: v.numpy() for k, v in measured(model, batch, positions=24).items()}
    columns |= {"prediction": np.array([0, 1, 1]), "index": np.arange(3)}
    shown = tables("importance_correlation", columns, None)
    p_values = [[line[4:7] for line in table.rows] for table in shown]
    assert len(shown) == 5
    for table, cells in zip(shown, p_values, strict=True):
        unknown = {cell for line in cells for cell in line if "%" not in cell}
        assert bool(unknown) == ("leave-one-out" in table.title)
        assert len(unknown) <= 1

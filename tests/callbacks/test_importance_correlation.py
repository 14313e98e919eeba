"""Attention against gradients and leave-one-out, on models from here and from outside."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import ImportanceCorrelation
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import read_metadata, read_record
from tests.callbacks.test_base import run_test
from tests.models import test_classifier as flat
from tests.outside import OutsideTask, Texts, collate

RECORD = Path("records/test/importance_correlation.parquet")
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


def measured(
    model: AttentionModel, batch: TextBatch, **options: Any
) -> tuple[dict[str, Any], AttentionOutput]:
    test = ImportanceCorrelation(**options)
    with torch.no_grad():
        output = model(batch)
        return dict(test.measure(batch, output, model)), output


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
    with torch.no_grad():
        own = float(output.logits.softmax(-1)[0, 1])
        shorter = [flat.collate([[*text[:n], *text[n + 1 :]]]) for n in words]
        left = [float(model(each).logits.softmax(-1)[0, 1]) for each in shorter]
    return scores | {"loo": [abs(p - own) for p in left]}


@pytest.mark.parametrize("encoder", ["bilstm", "cnn"])
def test_equals_scipy_on_scores_of_a_naive_loop(encoder: str) -> None:
    model, texts = flat.model(encoder), flat.corpus()
    texts = [text for text in texts if len(set(text)) == len(text)]  # none has equal words
    columns, _ = measured(model, flat.collate(texts, padding=2))
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
    columns, _ = measured(model, flat.collate([text]))
    words = sorted(set(text[1:-1]))
    scores = naive_scores(model, text)
    first = {name: [values[text.index(w) - 1] for w in words] for name, values in scores.items()}
    for one, other in PAIRS:
        tied = [[first[name][words.index(w)] for w in text[1:-1]] for name in (one, other)]
        assert float(columns[f"tau_{one}_{other}"]) == pytest.approx(by_scipy(*tied)[0], abs=1e-9)


def test_by_hand() -> None:
    """Bag of words under uniform attention: a word's effect is its own logit, attention all ties."""
    model = flat.model("none", "dot")
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.decoder.weight.zero_()
        model.decoder.bias.zero_()
        model.attention.key.weight.zero_()
        model.decoder.weight[0, 0] = model.attention.key.weight[0, 1] = 1.0
        for token, (value, score) in enumerate([(3, 0), (-2, 1), (1, 2)], start=4):
            model.embedding.weight[token, 0], model.embedding.weight[token, 1] = value, score
    columns, output = measured(model, flat.collate([[4, 5, 6]]), gradients=["detached"])
    weights = output.weights[0, 0]
    effects = (weights * torch.tensor([3.0, -2.0, 1.0])).abs()
    assert weights.argsort().tolist() == [0, 1, 2]
    assert effects.argsort().tolist() == [0, 1, 2]
    assert columns["tau_attention_input_gradient"].tolist() == [1.0]
    own = float(output.logits[0, 1])
    left = [
        (-2 * 0.2689414 + 0.7310586),
        (3 * 0.1192029 + 0.8807971),
        (3 * 0.2689414 - 2 * 0.7310586),
    ]
    moved = [abs(1 / (1 + np.exp(-z)) - 1 / (1 + np.exp(-own))) for z in left]
    tau = float(columns["tau_attention_loo"])
    assert tau == pytest.approx(by_scipy([0, 1, 2], moved)[0])
    assert float(columns["p_attention_loo"]) == pytest.approx(by_scipy([0, 1, 2], moved)[1])


def test_uniform_attention_and_short_texts_are_undefined() -> None:
    columns, _ = measured(flat.model("bilstm", "uniform"), flat.collate(flat.corpus()))
    for name, values in columns.items():
        if "attention_" in name:
            assert values.isnan().all(), name
    one_word = [len(set(text)) == 3 for text in flat.corpus()]  # once, or the same one twice
    assert columns["tau_input_gradient_loo"].isnan().tolist() == one_word
    assert 1 < sum(one_word) < 6


@pytest.mark.parametrize("affine", [True, False])
def test_outside_model_with_two_heads(tmp_path: Path, affine: bool) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(affine), Texts()
    texts.tokens = [torch.randperm(49)[: len(text)] + 1 for text in texts.tokens]
    run_test(tmp_path, ImportanceCorrelation(keep_scores=True), task=task, texts=texts)
    record = read_record(tmp_path / RECORD)
    rows = record.columns
    assert record.metadata["measures"] == [f"tau_{one}_{other}" for one, other in PAIRS]
    assert record.metadata["tie"] == 1e-5
    assert rows["tau_attention_loo_heads"].shape == (len(texts), 2)
    for item in range(len(texts)):
        batch = collate([texts[item]])
        with torch.no_grad():
            output = task.model(batch)
        scores = {
            "attention": output.weights[0].mean(0),
            "input_gradient": input_gradient(task.model, batch, output)[0],
            "loo": leave_one_out(task.model, batch, output)[0],
        }
        for name, values in scores.items():
            found = rows[f"scores_{name}"][item]
            np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-6)
        if len(values) < 2:
            assert np.isnan(rows["tau_attention_loo"][item])
            continue
        heads = [by_scipy(head.tolist(), scores["loo"].tolist()) for head in output.weights[0]]
        np.testing.assert_allclose(rows["tau_attention_loo_heads"][item], [t for t, _ in heads])
        np.testing.assert_allclose(rows["p_attention_loo_heads"][item], [p for _, p in heads])
        for one, other in (("attention", "input_gradient"), ("input_gradient", "loo")):
            tau, p = by_scipy(scores[one].tolist(), scores[other].tolist())
            assert rows[f"tau_{one}_{other}"][item] == pytest.approx(tau)
            assert rows[f"p_{one}_{other}"][item] == pytest.approx(p)


def test_options_decide_the_columns(tmp_path: Path) -> None:
    started = run_test(tmp_path, ImportanceCorrelation(leave_one_out=False, gradients=["attached"]))
    rows = read_record(tmp_path / RECORD).columns
    assert {name for name in rows if name.startswith(("tau", "p_", "scores"))} == {
        f"{measure}_attention_input_gradient_attached{heads}"
        for measure in ("tau", "p")
        for heads in ("", "_heads")
    }
    logged = started.callback_metrics[
        "test/importance_correlation/tau_attention_input_gradient_attached"
    ]
    mean = np.nanmean(rows["tau_attention_input_gradient_attached"])
    assert float(logged) == pytest.approx(float(mean), rel=1e-5)
    test = ImportanceCorrelation(gradients=[])
    assert test.measures == ("tau_attention_loo",)
    assert list(measured(flat.model(), flat.collate(flat.corpus()), gradients=[])[0]) == [
        "tau_attention_loo",
        "p_attention_loo",
    ]


def test_a_text_that_is_not_finite_is_null_and_the_rest_goes_on(tmp_path: Path) -> None:
    task, texts = OutsideTask(), Texts()
    with torch.no_grad():
        task.model.table.weight[int(texts.tokens[5][0])] = torch.inf
    run_test(tmp_path, ImportanceCorrelation(keep_scores=True), task=task, texts=texts)
    rows = read_record(tmp_path / RECORD).columns
    assert rows["prediction"][5] == -1
    assert rows["scores_loo"][5] is None
    assert np.isnan(rows["tau_attention_loo"][5])
    assert read_metadata(tmp_path / RECORD)["non_finite"] == (rows["prediction"] == -1).sum() < 12
    whole = (rows["prediction"] >= 0) & np.array([len(t) > 2 for t in texts.tokens])
    assert np.isfinite(rows["tau_input_gradient_loo"][whole]).all()


def test_only_a_deletion_is_not_finite() -> None:
    """A model that one shortened text upsets: leave-one-out is undefined there, gradients are not."""

    class Fragile:
        def __init__(self) -> None:
            self.model = flat.model("none")
            self.embed, self.readout = self.model.embed, self.model.readout

        def __call__(
            self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
        ) -> AttentionOutput:
            output: AttentionOutput = self.model(batch, weights, embeddings)
            upset = batch.tokens.sum(-1, keepdim=True) == 17
            output.logits = output.logits.masked_fill(upset, torch.nan)
            return output

    columns, _ = measured(Fragile(), flat.collate([[4, 6, 8, 9], [4, 5, 11, 30]]))
    assert columns["tau_attention_loo"].isnan().tolist() == [False, False]
    columns, _ = measured(Fragile(), flat.collate([[4, 6, 8, 9], [4, 5, 8, 30]]))
    assert columns["tau_attention_loo"].isnan().tolist() == [False, True]
    assert not columns["tau_attention_input_gradient"].isnan().any()


def test_a_long_text_says_once_why_it_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attnlight.callbacks.importance_correlation._LONG", 5)
    test, model = ImportanceCorrelation(), OutsideTask().model
    with torch.no_grad():
        for items in (5, 7, 8):
            batch = collate([(0, torch.arange(items) + 1)])
            test.measure(batch, model(batch), model)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "7 items" in told
    assert "leave_one_out" in told
    assert "truncate" in told


def test_many_classes_say_once_why_they_take_their_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attnlight.callbacks.importance_correlation._MANY", 1)
    model, batch = OutsideTask().model, collate([(0, torch.arange(5) + 1)])
    for test in (ImportanceCorrelation(), ImportanceCorrelation(gradients=[])):
        with torch.no_grad():
            for _ in range(2):
                test.measure(batch, model(batch), model)
    (line,) = capsys.readouterr().err.splitlines()
    assert "3 classes" in line
    assert "gradients: []" in line

"""Every test on a tagger, whose rows are tokens, against loops over tokens that run the model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    SingleErasure,
)
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.functional import permutations, random_rankings
from attnlight.models import SelfAttentionTagger
from tests.functional.adversaries import jensen_shannon
from tests.models.taggers import one, sentences, tagger

LENGTHS = (5, 1, 4, 6)
READOUTS = ("study", "residual")
SCORES = ("attention", "gradient", "gradient_x_attention")


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are treated as the many of a tagger's batch are."""
    monkeypatch.setattr("attnlight.models.readout.base._FEW", 0)
    monkeypatch.setattr("attnlight.functional.erasure.flips._FEW", 0)


def columns_of(
    test: InterpretabilityTest, model: SelfAttentionTagger, batch: TextBatch
) -> dict[str, Tensor]:
    with torch.no_grad():
        output = model(batch)
    with torch.set_grad_enabled(test.needs_gradients):
        return dict(test.measure(batch, output, model))


class Token:
    """A token of a sentence, whose attention alone is changed and read by the whole model."""

    def __init__(self, model: SelfAttentionTagger, batch: TextBatch, row: int) -> None:
        with torch.no_grad():
            output = model(batch)
        index, self.position = output.rows[row].tolist()
        self.model, self.index = model, index
        self.batch = one(batch, int((batch.index == index).nonzero()))
        with torch.no_grad():
            self.output = model(self.batch)
        self.items = len(self.output.rows)
        self.weights = self.output.weights[self.position]
        self.own = self.output.logits[self.position]

    def read(self, weights: Tensor) -> Tensor:
        """Logits (C,) of other attention (H, N) of this token."""
        every = self.output.weights.clone()
        every[self.position] = weights
        found: Tensor = self.model(self.batch, weights=every).logits[self.position]
        return found

    def without(self, erased: Sequence[int], heads: Sequence[int]) -> Tensor:
        """Logits with items gone from some heads, each renormalised, empty where none is left."""
        weights = self.weights.clone()
        for head in heads:
            weights[head, list(erased)] = 0
            total = weights[head].sum()
            weights[head] = weights[head] / total if total > 0 else 0
        return self.read(weights)

    def flips(self, logits: Tensor) -> bool:
        return bool(logits.argmax() != self.own.argmax())

    def order(self, score: str, heads: Sequence[int]) -> list[int]:
        """Items as a ranking puts them, by the mean score of some heads."""
        free = self.weights.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.read(free).softmax(-1).max(), free)
        scores = {
            "attention": self.weights,
            "gradient": slope,
            "gradient_x_attention": self.weights * slope,
        }[score]
        mean = scores[list(heads)].mean(0).tolist()
        return sorted(range(self.items), key=lambda n: -mean[n])


def tokens_of(model: SelfAttentionTagger, batch: TextBatch) -> list[Token]:
    return [Token(model, batch, row) for row in range(int(batch.mask.sum()))]


def ways(token: Token) -> list[tuple[str, tuple[int, ...]]]:
    """Column suffixes: all heads together, then each by itself."""
    heads = range(len(token.weights))
    return [("", tuple(heads)), *((f"_by_head:{head}", (head,)) for head in heads)]


def cell(columns: dict[str, Tensor], name: str, way: str, row: int) -> float:
    suffix, _, head = way.partition(":")
    column = columns[name + suffix][row]
    return float(column[int(head)] if head else column)


def js(p: Tensor, q: Tensor) -> float:
    return float(jensen_shannon(p.softmax(-1), q.softmax(-1)))


@pytest.fixture(params=READOUTS)
def model(request: pytest.FixtureRequest) -> SelfAttentionTagger:
    return tagger(request.param).double()


def test_permutation_equals_a_loop(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(AttentionPermutation(draws=7, head_draws=4, seed=3), model, batch)
    for row, token in enumerate(tokens_of(model, batch)):
        drawn = permutations(torch.tensor([token.items]), torch.tensor([[token.index, 0]]), 7, 3)
        for way, heads in ways(token):
            moved, flips = [], []
            for order in drawn[0][: 7 if way == "" else 4]:
                weights = token.weights.clone()
                weights[list(heads)] = weights[list(heads)][:, order]
                with torch.no_grad():
                    logits = token.read(weights)
                change = (logits.softmax(-1) - token.own.softmax(-1)).abs().sum() / 2
                moved.append(float(change))
                flips.append(token.flips(logits))
            assert cell(found, "median_tvd", way, row) == pytest.approx(np.median(moved), abs=1e-9)
            assert cell(found, "flip_rate", way, row) == pytest.approx(np.mean(flips), abs=1e-9)
    assert found["median_js_by_head"].shape == (16, 2)
    assert found["flip_rate_by_head"].max() > 0


def test_single_erasure_equals_a_loop(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(SingleErasure(), model, batch)
    for row, token in enumerate(tokens_of(model, batch)):
        if token.items < 2:
            assert all(column[row].isnan().all() for column in found.values())
            continue
        for way, heads in ways(token):
            with torch.no_grad():
                without = [token.without([n], heads) for n in range(token.items)]
            moved = [js(token.own, logits) for logits in without]
            for score in SCORES:
                top = token.order(score, heads)[0]
                assert cell(found, f"flip_top_{score}", way, row) == token.flips(without[top])
                others = [moved[top] - moved[n] for n in range(token.items) if n != top]
                value = cell(found, f"delta_js_expected_{score}", way, row)
                assert value == pytest.approx(np.mean(others), abs=1e-9)
    assert 0 < found["flip_top_attention_by_head"].nanmean() < 1


def test_decision_flip_equals_a_loop(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(DecisionFlip(draws=3, seed=2), model, batch)
    for row, token in enumerate(tokens_of(model, batch)):
        keys = torch.tensor([[token.index, token.position]])
        drawn = random_rankings(torch.ones(1, token.items).bool(), keys, 1, 2)[0, 0].tolist()
        for way, heads in ways(token):
            orders = {score: token.order(score, heads) for score in SCORES}
            for name, order in (orders | {"random_first": drawn}).items():
                with torch.no_grad():
                    flips = [
                        token.flips(token.without(order[: count + 1], heads))
                        for count in range(token.items)
                    ]
                expected = flips.index(True) + 1 if any(flips) else math.nan
                value = cell(found, f"removed_count_{name}", way, row)
                assert value == pytest.approx(expected, nan_ok=True), (row, way, name)
    assert 0 < found["never_flips_attention_by_head"].mean() < 1
    assert found["removed_count_attention"].nan_to_num().unique().numel() > 2


def test_the_minimum_of_a_head_is_exact_and_of_all_together_a_bound() -> None:
    model, batch = tagger("residual").double(), sentences(LENGTHS)
    found = columns_of(DecisionFlip(), model, batch)
    looser = 0
    for row, token in enumerate(tokens_of(model, batch)):
        for way, heads in ways(token):
            sizes = [
                len(gone)
                for count in range(1, token.items + 1)
                for gone in itertools.combinations(range(token.items), count)
                if token.flips(token.without(gone, heads).detach())
            ]
            expected = min(sizes) if sizes else math.nan
            value = cell(found, "minimal_count", way, row)
            if way:
                assert value == pytest.approx(expected, nan_ok=True), (row, way)
            elif math.isnan(expected):
                assert math.isnan(value)
            else:
                looser += value != expected
                assert not value < expected
    assert looser < 8
    assert found["minimal_count_by_head"].isfinite().any()
    assert found["minimal_count_by_head"].isnan().any()


def test_adversaries_keep_the_prediction_and_are_bounded(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    # Without programs every token is measured.
    found = columns_of(AdversarialAttention(epsilon=0.05, program_instances=0), model, batch)
    worst, tvd = found["worst_js_by_head"], found["worst_tvd_by_head"]
    assert (tvd <= 0.05 + 1e-9).all()
    assert (found["joint_js"] <= found["worst_js"] + 1e-12).all()
    torch.testing.assert_close(found["worst_js"], worst.mean(-1))
    grid = torch.linspace(0, 1, 21, dtype=torch.float64)
    with torch.no_grad():
        every = model(batch).item_logits
    for row, token in enumerate(tokens_of(model, batch)):
        for head, (i, j) in itertools.product(range(2), itertools.combinations(range(5), 2)):
            if j >= token.items or row % 3:
                continue
            best = 0.0
            # Where the readout is not affine only attention on one item is sure to be found.
            for share in grid if every is not None else grid[[0, -1]]:
                weights = token.weights.clone()
                weights[head] = 0
                weights[head, i], weights[head, j] = 1 - share, share
                with torch.no_grad():
                    logits = token.read(weights)
                moved = (logits.softmax(-1) - token.own.softmax(-1)).abs().sum() / 2
                if moved <= 0.05:
                    best = max(best, float(jensen_shannon(weights[head], token.weights[head])))
            assert worst[row, head] >= best - 1e-9
            upper = found["upper_js_by_head"][row, head]
            assert upper.isnan() if every is None else worst[row, head] <= upper + 1e-12
    assert worst.max() > 0.3


def test_programs_are_for_one_token_of_each_sentence(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(AdversarialAttention(epsilon=0.05), model, batch)
    every = columns_of(AdversarialAttention(epsilon=0.05, program_instances=0), model, batch)
    with torch.no_grad():
        output = model(batch)
    measured = ~found["worst_js"].isnan()
    if output.item_logits is None:
        assert torch.equal(found["worst_js"], every["worst_js"])
        return
    index, position = output.rows[measured].unbind(-1)
    counts = output.rows[~every["worst_js"].isnan(), 0].unique()
    assert torch.equal(index, counts)
    assert len(position.unique()) > 1
    assert (found["worst_js_by_head"] >= every["worst_js_by_head"] - 1e-12)[measured].all()
    assert (found["worst_tvd_by_head"][measured] <= 0.05 + 1e-9).all()
    # The same token, whatever else is in the batch.
    for place, text in enumerate(counts.tolist()):
        alone = columns_of(
            AdversarialAttention(epsilon=0.05), model, batch.select(batch.index == text)
        )
        rows = output.rows[output.rows[:, 0] == text]
        assert rows[~alone["worst_js"].isnan(), 1].tolist() == [int(position[place])]


@pytest.mark.parametrize("search", [False, True])
def test_adversaries_in_parts_are_those_of_all_rows(
    model: SelfAttentionTagger, monkeypatch: pytest.MonkeyPatch, search: bool
) -> None:
    """Parts begin and end within sentences, and one holds no row of the first of them."""
    test = AdversarialAttention(search=search, starts=2, steps=10)
    batch = sentences(LENGTHS)
    whole = columns_of(test, model, batch)
    monkeypatch.setattr("attnlight.callbacks.adversarial_attention._WEIGHTS", 7 * 2 * max(LENGTHS))
    parts = columns_of(test, model, batch)
    assert parts.keys() == whole.keys()
    for name, column in whole.items():
        torch.testing.assert_close(parts[name], column, rtol=0, atol=1e-6, equal_nan=True)


def test_importance_equals_a_loop(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(ImportanceCorrelation(), model, batch)
    for row, token in enumerate(tokens_of(model, batch)):
        gradients = {}
        for kind, held in (("", token.output.weights), ("_attached", None)):
            embeddings = model.embed(token.batch).detach().requires_grad_()
            logits = model(token.batch, weights=held, embeddings=embeddings).logits
            winner = logits[token.position].softmax(-1)[token.own.argmax()]
            (gradient,) = torch.autograd.grad(winner, embeddings)
            gradients[f"input_gradient{kind}"] = (gradient * embeddings).sum(-1)[0].abs().detach()
        others = [n for n in range(token.items) if n != token.position]
        moved = torch.zeros(token.items, dtype=torch.float64)
        for gone in others:
            left = [n for n in range(token.items) if n != gone]
            short = token.batch.apply(lambda v, k=left: v if v.ndim == 1 else v[:, k])
            with torch.no_grad():
                logits = model(short).logits[left.index(token.position)]
            moved[gone] = (logits.softmax(-1) - token.own.softmax(-1)).abs().sum() / 2
        scores = gradients | {"loo": moved}
        for name, values in scores.items():
            kept = others if name == "loo" else list(range(token.items))
            attentions = {f"tau_attention_{name}": token.weights.mean(0)}
            for head in range(2):
                attentions[f"tau_attention_{name}_heads:{head}"] = token.weights[head]
            for column, attention in attentions.items():
                expected = tau(attention[kept], values[kept])
                value = cell(found, *split(column), row)
                assert value == pytest.approx(expected, abs=1e-9, nan_ok=True), (row, column)
        expected = tau(gradients["input_gradient"][others], moved[others])
        assert float(found["tau_input_gradient_loo"][row]) == pytest.approx(expected, nan_ok=True)


def tau(one: Tensor, other: Tensor) -> float:
    """Kendall's tau-b of scores of which those within 1e-5 of the largest are one."""
    levels = []
    for scores in (one.tolist(), other.tolist()):
        level, gap = {}, 1e-5 * max(map(abs, scores), default=0.0)
        before, number = -math.inf, 0
        for score in sorted(scores):
            number += score - before > gap
            level[score] = number
            before = score
        levels.append([level[score] for score in scores])
    return float(kendalltau(*levels).statistic)


def split(column: str) -> tuple[str, str]:
    name, colon, head = column.partition(":")
    return (name[: -len("_heads")], f"_heads:{head}") if colon else (name, "")


def test_scores_leave_out_the_deleted_token_itself() -> None:
    model, batch = tagger("residual").double(), sentences((4,))
    found = columns_of(ImportanceCorrelation(keep_scores=True), model, batch)
    lists = found["scores_loo"].to_pylist()  # type: ignore[attr-defined]
    assert [[math.isnan(value) for value in scores] for scores in lists] == torch.eye(
        4
    ).bool().tolist()


@pytest.mark.parametrize("readout", READOUTS)
def test_batches_and_padding_change_nothing(readout: str) -> None:
    model = tagger(readout).double()
    tests = (
        AttentionPermutation(draws=9),
        SingleErasure(),
        DecisionFlip(draws=2),
        AdversarialAttention(epsilon=0.05),
        ImportanceCorrelation(),
    )
    batch = sentences((6, 1, 4, 9, 2))
    wide = sentences((6, 1, 4, 9, 2), extra=5)
    for test in tests:
        whole, padded = columns_of(test, model, batch), columns_of(test, model, wide)
        alone = [columns_of(test, model, one(batch, row)) for row in range(5)]
        for name, column in whole.items():
            joined = torch.cat([columns[name] for columns in alone])
            for other in (padded[name], joined):
                torch.testing.assert_close(
                    other, column, rtol=0, atol=1e-9, equal_nan=True, msg=name
                )

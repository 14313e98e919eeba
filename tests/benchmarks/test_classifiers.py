"""The benchmarks of classifiers at small sizes, where ours and theirs must agree."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.functional import leave_one_out, ranking, search_adversary
from attnlight.functional.adversary.gradient_search import _normal
from attnlight.models import FlatClassifier
from tests.benchmarks import classifiers, rivals
from tests.benchmarks.scene import (
    Scene,
    configured_tests,
    median_length_batch,
    random_texts,
    recompute_item_logits,
)
from tests.benchmarks.suite import GROUPS

WORDS, TEXTS, TOKENS = 30, 12, 9


def padded(boundary: bool = False) -> TextBatch:
    """Texts of 2 to 9 tokens, with boundary tokens two more."""
    torch.manual_seed(5)
    batch = random_texts(3, TEXTS, TOKENS + 2 * boundary, WORDS)
    lengths = 2 + torch.arange(TEXTS) % (TOKENS - 1) + 2 * boundary
    mask = torch.arange(batch.tokens.shape[1]) < lengths[:, None]
    tokens = batch.tokens.masked_fill(~mask, 0)
    if boundary:
        tokens[:, 0] = BOS
        tokens[torch.arange(TEXTS), lengths - 1] = EOS
    return TextBatch(batch.index, tokens, mask)


@pytest.fixture(scope="module")
def model() -> FlatClassifier:
    """In double precision, with peaked attention and decisions that depend on single words."""
    torch.manual_seed(0)
    model = FlatClassifier(WORDS, 2, embedding_size=6, hidden_size=4).double().eval()
    with torch.no_grad():
        model.embedding.weight *= 10
        model.attention.get_parameter("value.weight").mul_(20)
        model.decoder.weight.mul_(40)
        model.decoder.bias.sub_(model(padded()).logits[:, 1].median())
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def output(model: FlatClassifier) -> AttentionOutput:
    output: AttentionOutput = model(padded())
    return output


@pytest.mark.parametrize("drop_flipped", [False, True])
def test_decisions_change_after_the_same_number_of_erasures(
    model: FlatClassifier, output: AttentionOutput, drop_flipped: bool
) -> None:
    order = ranking(output.weights.squeeze(1), output.mask)
    ours = classifiers.flipped_after(output, order)
    theirs = rivals.erased_until_flip(model, output, order, drop_flipped=drop_flipped)
    assert theirs.tolist() == ours.tolist()
    assert len(set(ours.tolist())) > 3
    assert -1 in ours.tolist()


def test_random_orders_are_uniform_and_leave_padding_behind() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    orders = torch.stack(list(rivals.random_orders(mask, 6000)))
    counts = Counter(map(tuple, orders[:, 0].tolist()))
    assert len(counts) == 6
    assert all(order[3] == 3 and 880 < count < 1120 for order, count in counts.items())
    assert (orders[:, 1].sort(-1).values == torch.arange(4)).all()
    assert orders[:, 1, :2].max() == 1


class TestSearch:
    def test_never_ends_above_the_exact_answer(
        self, model: FlatClassifier, output: AttentionOutput
    ) -> None:
        torch.manual_seed(0)
        found = rivals.searched_attention(model, output, classifiers.EPSILON, starts=4)
        assert (found.masked_select(~output.mask.unsqueeze(1)) == 0).all()
        torch.testing.assert_close(found.sum(-1), torch.ones(TEXTS, 4).double())
        exact = classifiers.worst_js(output)
        searched = classifiers.feasible_js(output, found)
        assert (searched <= exact + 1e-12).all()
        assert searched.sum() > 0.5 * exact.sum()

    def test_ends_where_ours_does_from_the_same_starts(
        self, model: FlatClassifier, output: AttentionOutput, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        items = output.item_logits
        assert items is not None
        _, ours = search_adversary(output.weights, items, output.mask, 0.01, output.rows, steps=100)
        starts = _normal(0, output.rows, 1, 5, output.mask)
        monkeypatch.setattr(torch, "randn", lambda *size, dtype: starts)
        theirs = rivals.searched_attention(model, output, 0.01, steps=100)
        searched = classifiers.feasible_js(output, theirs)
        torch.testing.assert_close(searched, ours.squeeze(1), rtol=0, atol=1e-6)
        assert searched.max() > 0.1

    def test_attention_that_moves_the_prediction_does_not_count(
        self, output: AttentionOutput
    ) -> None:
        original, items = output.weights, output.item_logits
        assert items is not None
        top = torch.zeros_like(original).scatter(-1, original.argmax(-1, keepdim=True), 1.0)
        moved = (torch.cat([original, top], 1) @ items.squeeze(1)).softmax(-1)
        kept = (moved[:, 0] - moved[:, 1]).abs().amax(-1) <= classifiers.EPSILON
        js = classifiers.feasible_js(output, torch.cat([original, top], dim=1))
        assert ((js > 0) == kept).all()
        assert 0 < kept.sum() < len(kept)


@pytest.mark.parametrize("boundary", [False, True])
def test_deletions_move_predictions_equally_far(model: FlatClassifier, boundary: bool) -> None:
    batch = padded(boundary)
    output = model(batch)
    ours: Tensor = leave_one_out(model, batch, output)
    for rival in (model, rivals.packed(model)):
        theirs = rivals.deleted_distance(rival, batch, output)
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)
    assert ours.max() > 0.1


def test_the_scene_resembles_a_trained_model(
    model: FlatClassifier, output: AttentionOutput
) -> None:
    (drawn,) = Scene.drawn(1, texts=16, tokens=60).outputs()
    assert 0.1 < drawn.weights.amax(-1).mean() < 0.6
    assert 6 <= (drawn.logits[:, 1] > 0).sum() <= 10
    recomputed = recompute_item_logits(model, output)
    torch.testing.assert_close(recomputed.item_logits, output.item_logits)


SIZES = {"repetitions": 2, "batches": 1, "texts": 3, "tokens": 6}


@pytest.mark.parametrize(
    ("group", "sizes", "detail"),
    [
        ("cheap_tests", {"warm_ups": 0}, "`DecisionFlip` over them"),
        ("shuffling", {}, "theirs, reading out by one matrix product instead"),
        ("erasing", {}, "texts on which both agree"),
        ("adversary", {"steps": 20}, "searches that end above the exact answer"),
    ],
)
def test_a_benchmark_runs(group: str, sizes: dict[str, Any], detail: str) -> None:
    (measurement,) = GROUPS[group].function(**SIZES, **sizes).values()
    assert len(measurement.values) == 2
    assert measurement.details["texts"] == "1 batches of 3 texts of 6 tokens"
    assert detail in measurement.details


def test_a_search_above_the_exact_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classifiers, "feasible_js", lambda output, _: torch.ones(len(output.rows)))
    with pytest.raises(RuntimeError, match="above the exact answer in 6 of 6"):
        classifiers.adversary(**SIZES, steps=2)


def test_implementations_that_disagree_are_refused() -> None:
    one = torch.tensor([0.5, 0.25])
    assert classifiers.require_close(one, one + 2**-20) == 2**-20
    for other in (one + 0.001, one / 0):
        with pytest.raises(RuntimeError, match="two ways to compute the same"):
            classifiers.require_close(one, other)


def test_benchmarks_on_a_corpus() -> None:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=19, eval_batch_size=3)
    corpus.prepare()
    measurements = classifiers.leave_one_out(2, corpus, texts=3, tokens=5)
    assert [len(measurement.values) for measurement in measurements.values()] == [2, 2]
    names = ["3 texts drawn at random", "3 texts sorted by length", "3 texts of equal length"]
    assert list(measurements["leave_one_out_imdb"].details) == names
    batch = median_length_batch(corpus.dataset("test"), 3)
    assert batch.index.tolist() in [each.index.tolist() for each in corpus.test_dataloader()]
    (added,) = classifiers.permutation(2, corpus).values()
    assert len(added.values) == 2
    assert added.details["texts"] == "19"


def test_the_cheap_tests_are_those_of_the_configuration() -> None:
    names = "Predictions AttentionPermutation AdversarialAttention SingleErasure DecisionFlip"
    assert [type(test).__name__ for test in configured_tests("cheap")] == names.split()

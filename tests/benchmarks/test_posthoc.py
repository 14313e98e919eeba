"""The released algorithms find what ours find, and the benchmarks of both run."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.callbacks import AttentionPermutation
from attnlight.datamodules import PlantedEvidence
from attnlight.functional import leave_one_out, permutations, ranking, search_adversary
from attnlight.functional.adversary.gradient_search import _normal
from attnlight.models import FlatClassifier
from tests.benchmarks import leaving_out, rivals, speedups
from tests.benchmarks.cheap import attached, cheap_tests
from tests.benchmarks.measuring import Measurement
from tests.benchmarks.scene import from_states, random_texts, scene

WORDS, TEXTS, TOKENS = 30, 12, 9
CHEAP = {
    "Predictions",
    "AttentionPermutation",
    "AdversarialAttention",
    "SingleErasure",
    "DecisionFlip",
}


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
    """In double precision, with peaked attention and decisions that hang on single words."""
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
    said: AttentionOutput = model(padded())
    return said


@pytest.mark.parametrize("readout", ["sum", "scored", "product"])
def test_the_same_shuffles_move_predictions_as_far(
    model: FlatClassifier, output: AttentionOutput, readout: rivals.Readout
) -> None:
    ours = AttentionPermutation(draws=7, seed=2).measure(padded(), output, model)["median_tvd"]
    orders = permutations(output.mask.sum(-1), output.rows, 7, seed=2).unbind(1)
    theirs = rivals.shuffled_distance(model, output, orders, readout)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)
    assert ours.max() > 0.1


def test_random_orders_are_uniform_and_leave_padding_behind() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    orders = torch.stack(list(rivals.random_orders(mask, 6000)))
    counts = Counter(map(tuple, orders[:, 0].tolist()))
    assert len(counts) == 6
    assert all(order[3] == 3 and 880 < count < 1120 for order, count in counts.items())
    assert (orders[:, 1].sort(-1).values == torch.arange(4)).all()
    assert orders[:, 1, :2].max() == 1


@pytest.mark.parametrize("leaving", [False, True])
def test_decisions_change_after_as_many_erasures(
    model: FlatClassifier, output: AttentionOutput, leaving: bool
) -> None:
    order = ranking(output.weights.squeeze(1), output.mask)
    ours = speedups.flipped_after(output, order)
    theirs = rivals.erased_until_flip(model, output, order, leaving=leaving)
    assert theirs.tolist() == ours.tolist()
    assert len(set(ours.tolist())) > 3
    assert -1 in ours.tolist()


@pytest.fixture(scope="module")
def found(model: FlatClassifier, output: AttentionOutput) -> Tensor:
    """What the search ends with."""
    torch.manual_seed(0)
    return rivals.searched_attention(model, output, speedups.EPSILON, starts=4)


class TestSearch:
    def test_finds_attention(self, output: AttentionOutput, found: Tensor) -> None:
        assert found.shape == (TEXTS, 4, TOKENS)
        assert (found.masked_select(~output.mask.unsqueeze(1)) == 0).all()
        torch.testing.assert_close(found.sum(-1), torch.ones(TEXTS, 4).double())

    def test_never_ends_above_the_exact_answer(
        self, output: AttentionOutput, found: Tensor
    ) -> None:
        exact = speedups.worst_js(output)
        searched = speedups.feasible_js(output, found)
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
        searched = speedups.feasible_js(output, theirs)
        torch.testing.assert_close(searched, ours.squeeze(1), rtol=0, atol=1e-6)
        assert searched.max() > 0.1

    def test_leaves_the_model_alone(self, model: FlatClassifier, output: AttentionOutput) -> None:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        rivals.searched_attention(model.requires_grad_(True), output, 0.01, steps=2)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(value.equal(before[name]) for name, value in model.state_dict().items())
        model.requires_grad_(False)

    def test_what_moves_the_prediction_does_not_count(self, output: AttentionOutput) -> None:
        own, items = output.weights, output.item_logits
        assert items is not None
        top = torch.zeros_like(own).scatter(-1, own.argmax(-1, keepdim=True), 1.0)
        moved = (torch.cat([own, top], 1) @ items.squeeze(1)).softmax(-1)
        kept = (moved[:, 0] - moved[:, 1]).abs().amax(-1) <= speedups.EPSILON
        js = speedups.feasible_js(output, torch.cat([own, top], dim=1))
        assert ((js > 0) == kept).all()
        assert 0 < kept.sum() < len(kept)


class TestDeletion:
    @pytest.mark.parametrize("boundary", [False, True])
    def test_moves_predictions_as_far(self, model: FlatClassifier, boundary: bool) -> None:
        batch = padded(boundary)
        output = model(batch)
        ours = leave_one_out(model, batch, output)
        for rival in (model, rivals.packed(model)):
            theirs = rivals.deleted_distance(rival, batch, output)
            torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)
        assert ours.max() > 0.1

    def test_packed_sequences_give_the_same_states(self, model: FlatClassifier) -> None:
        batch = padded()
        ours, theirs = (way(batch).states[batch.mask] for way in (model, rivals.packed(model)))
        torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-12)


class TestScene:
    def test_attention_is_peaked_and_decisions_are_balanced(self) -> None:
        (output,) = scene(1, texts=16, tokens=60).outputs
        assert 0.1 < output.weights.amax(-1).mean() < 0.6
        assert 6 <= (output.logits[:, 1] > 0).sum() <= 10

    def test_item_logits_are_those_of_the_forward_pass(
        self, model: FlatClassifier, output: AttentionOutput
    ) -> None:
        again = from_states(model, output)
        torch.testing.assert_close(again.item_logits, output.item_logits)


class TestBenchmarks:
    def test_the_cheap_tests_are_those_of_the_configuration(self) -> None:
        assert {type(test).__name__ for test in attached("cheap")} == CHEAP

    def test_cheap_tests(self) -> None:
        found = cheap_tests(1, repetitions=2, warm_ups=0, batches=1, texts=2, tokens=5)
        assert len(found.values) == 2
        assert found.details["texts"] == "1 batches of 2 texts of 5 tokens"
        assert {f"`{name}` over them" for name in CHEAP} < set(found.details)

    @pytest.mark.parametrize("run", [speedups.shuffling, speedups.erasing])
    def test_speedups(self, run: Callable[..., Measurement]) -> None:
        found = run(1, repetitions=2, batches=2, texts=3, tokens=6)
        assert len(found.values) == 2
        assert {"texts", "ours", "theirs"} < set(found.details)

    def test_adversary(self) -> None:
        found = speedups.adversary(1, repetitions=2, batches=1, texts=3, tokens=6, steps=20)
        assert found.details["searches that end above the exact answer"] == "0 of 6"

    def test_a_search_above_the_exact_answer_is_no_measurement(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(speedups, "feasible_js", lambda output, _: torch.ones(len(output.rows)))
        with pytest.raises(RuntimeError, match="above the exact answer in 3 of 3"):
            speedups.adversary(1, repetitions=1, batches=1, texts=3, tokens=6, steps=2)

    def test_ways_that_disagree_are_no_measurement(self) -> None:
        one = torch.tensor([0.5, 0.25])
        assert speedups.require_close(one, one + 2**-20) == 2**-20
        with pytest.raises(RuntimeError, match="two ways to compute the same"):
            speedups.require_close(one, one + 0.001)
        with pytest.raises(RuntimeError, match="two ways to compute the same"):
            speedups.require_close(one, one / 0)

    def test_leave_one_out(self) -> None:
        corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=19)
        corpus.prepare()
        found = leaving_out.leave_one_out(1, repetitions=2, corpus=corpus, texts=3, tokens=5)
        assert [len(measurement.values) for measurement in found.values()] == [2, 2]
        names = ["3 texts drawn at random", "3 texts sorted by length", "3 texts of equal length"]
        assert list(found["leave_one_out_imdb"].details) == names

    def test_a_batch_of_like_length_is_one_that_evaluation_loads(self) -> None:
        corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=19, eval_batch_size=3)
        corpus.prepare()
        batch = leaving_out.of_like_length(corpus.dataset("test"), 3)
        loaded = [found.index.tolist() for found in corpus.test_dataloader()]
        assert batch.index.tolist() in loaded

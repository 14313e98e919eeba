"""The benchmarks of classifiers at small sizes, where ours and theirs must agree."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.functional import ranking, search_adversary
from attnlight.functional.adversary.gradient_search import normal_scores
from attnlight.models import FlatClassifier
from attnlight.probing.leave_one_out import leave_one_out
from tests.benchmarks import classifiers, rivals
from tests.benchmarks.measuring import Measured
from tests.benchmarks.scene import (
    Scene,
    configured_tests,
    median_length_batch,
    random_texts,
    recompute_item_logits,
    spread_out,
)

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
    """In double precision, with decisions that depend on single words."""
    torch.manual_seed(0)
    model = FlatClassifier(WORDS, 2, embedding_size=12, hidden_size=8).double().eval()
    return spread_out(model, [padded()]).requires_grad_(False)


@pytest.fixture(scope="module")
def output(model: FlatClassifier) -> AttentionOutput:
    output: AttentionOutput = model(padded())
    return output


def test_decisions_change_after_the_same_number_of_erasures(
    model: FlatClassifier, output: AttentionOutput
) -> None:
    order = ranking(output.weights.squeeze(1), output.mask)
    ours = classifiers.flipped_after(output, order)
    theirs = rivals.erased_until_flip(model, output, order)
    assert theirs.tolist() == ours.tolist()
    assert len(set(ours.tolist())) > 3
    assert -1 in ours.tolist()


def test_a_search_ends_where_ours_does_from_the_same_starts(
    model: FlatClassifier, output: AttentionOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = output.item_logits
    assert items is not None
    _, ours = search_adversary(output.weights, items, output.mask, 0.01, output.rows, steps=100)
    starts = normal_scores(0, output.rows, 1, 5, output.mask)
    monkeypatch.setattr(torch, "randn", lambda *size, dtype: starts)
    moved = rivals.moved_by(model, output)
    theirs = rivals.searched_attention(output.weights, output.mask, moved, 0.01, steps=100)
    assert (theirs.masked_select(~output.mask.unsqueeze(1)) == 0).all()
    searched = classifiers.feasible_js(output, theirs)
    torch.testing.assert_close(searched, ours.squeeze(1), rtol=0, atol=1e-6)
    assert searched.max() > 0.1
    assert (searched <= classifiers.worst_js(output) + 1e-12).all()


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
    (drawn,) = Scene.drawn(1, texts=16, tokens=60).outputs
    assert 0.1 < drawn.weights.amax(-1).mean() < 0.6
    assert 6 <= (drawn.logits[:, 1] > 0).sum() <= 10
    recomputed = recompute_item_logits(model, output)
    torch.testing.assert_close(recomputed.item_logits, output.item_logits)


@pytest.mark.parametrize(
    ("name", "group", "error"),
    [
        ("feasible_js", classifiers.adversary, "above the exact answer in 4 of 4"),
        ("flipped_after", classifiers.erasing, "only 0 of 2"),
    ],
)
def test_implementations_that_disagree_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, group: Callable[..., Measured], error: str
) -> None:
    monkeypatch.setattr(classifiers, name, lambda *_: torch.tensor([9, 9]))
    with pytest.raises(RuntimeError, match=error):
        group(2, batches=1, texts=2, tokens=5)


def test_the_batch_of_median_length_is_one_that_evaluation_loads() -> None:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=19, eval_batch_size=3)
    corpus.prepare()
    batch = median_length_batch(corpus.dataset("test"), 3)
    assert batch.index.tolist() in [each.index.tolist() for each in corpus.test_dataloader()]


def test_the_cheap_tests_are_those_of_the_configuration() -> None:
    names = "Predictions AttentionPermutation AdversarialAttention SingleErasure DecisionFlip"
    assert [type(test).__name__ for test in configured_tests("cheap")] == names.split()

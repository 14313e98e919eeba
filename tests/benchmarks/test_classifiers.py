"""The benchmarks of classifiers at small sizes, where ours and theirs must agree."""

from collections.abc import Callable

import pytest
import torch

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.models import FlatClassifier
from tests.benchmarks import classifiers
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


def padded() -> TextBatch:
    """Texts of 2 to 9 tokens."""
    torch.manual_seed(5)
    batch = random_texts(3, TEXTS, TOKENS, WORDS)
    mask = torch.arange(TOKENS) < (2 + torch.arange(TEXTS) % (TOKENS - 1))[:, None]
    return TextBatch(batch.index, batch.tokens.masked_fill(~mask, 0), mask)


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

"""The loops over tokens find what the tests do, and the benchmarks of the tagger run."""

from pathlib import Path

import pytest
import torch

from attnlight.callbacks import (
    AdversarialAttention,
    SingleErasure,
)
from tests.benchmarks import tokens
from tests.benchmarks.measuring import Measurement
from tests.benchmarks.suite import GROUPS
from tests.callbacks.token_loops import loops, searched
from tests.models.taggers import sentences, tagger
from tests.tasks.tagged import corpus, written


@pytest.fixture(params=tokens.READOUTS)
def scene(request: pytest.FixtureRequest) -> tokens.TokenScene:
    """Sentences, padded, and a tagger in double precision whose decisions hang on single tokens."""
    model = tagger(request.param).double().requires_grad_(False)
    return tokens.TokenScene.of(model, sentences((5, 1, 4, 6)))


def test_a_search_is_never_above_the_upper_bound(scene: tokens.TokenScene) -> None:
    test = AdversarialAttention(epsilon=0.05)
    torch.manual_seed(0)
    found = [searched(*token, test.epsilon, steps=50) for token in scene.tokens(4)]
    text = tokens.compare_searches(scene.measure(test), found)
    if scene.output.item_logits is not None:
        assert text.endswith(", 0 of 32 searches end above ours")
    assert max(map(max, found)) > 0.1


def test_what_disagrees_is_no_measurement(scene: tokens.TokenScene) -> None:
    test = SingleErasure()
    found = [loop(*t) for loop in loops(test).values() for t in scene.tokens(4)]
    columns = scene.measure(test)
    assert tokens.compare_numbers(columns, found).startswith("576 of 576")
    wrong = {name: column + 0.5 for name, column in columns.items()}
    with pytest.raises(RuntimeError, match="of 576 numbers only"):
        tokens.compare_numbers(wrong, found)
    bounds = dict.fromkeys(("worst_js_by_head", "upper_js_by_head"), torch.full((1, 2), 0.6))
    with pytest.raises(RuntimeError, match="further away"):
        tokens.compare_searches(bounds, [[0.7, 0.0]])


def test_the_benchmarks_run(tmp_path: Path) -> None:
    data = corpus(written(tmp_path), cache_dir=str(tmp_path / "cache"))
    epoch = Measurement([1.0])
    found = tokens.tagging(data, 1, sentences=3, repetitions=2, steps=3, epoch=lambda: epoch)
    assert set(found) == {benchmark.name for benchmark in GROUPS["tagging"].benchmarks}
    assert len(found["tokens_SingleErasure_study"].values) == 2
    cheap = tokens.cheap_tests(data, epochs=1)
    assert set(cheap) == {benchmark.name for benchmark in GROUPS["tagging_cheap"].benchmarks}
    details = cheap["tagging_cheap_study"].details
    assert "study, epochs of training" in details
    assert "`DecisionFlip`" in details["study, all cheap tests on 21 sentences"]

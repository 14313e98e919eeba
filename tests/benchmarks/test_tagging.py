"""The loops over tokens find what the tests do, and the benchmarks of the tagger run."""

from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch

from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    SingleErasure,
)
from attnlight.functional import search_adversary
from attnlight.functional.adversary.gradient_search import _normal
from tests.benchmarks import tagging
from tests.benchmarks.cheap import attached
from tests.benchmarks.suite import GROUPS, READOUTS, TOKEN_LOOPS
from tests.benchmarks.tagging_training import PlainTaggingLoop, tagging_epoch
from tests.benchmarks.token_rivals import Sentence
from tests.benchmarks.token_search import on_one_item, searched
from tests.benchmarks.token_tests import (
    TokenScene,
    compare_numbers,
    compare_searches,
    configured,
    loop_over,
    other_loops,
    paired,
    speedup,
)
from tests.models.taggers import sentences, tagger
from tests.tasks.tagged import arguments, corpus, task_of, trainer, written

LENGTHS = (5, 1, 4, 6)
LOOPS = [
    AttentionPermutation(draws=7, head_draws=4, seed=3),
    SingleErasure(),
    DecisionFlip(draws=3, seed=2),
    ImportanceCorrelation(),
]


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are treated as the many of a tagger's batch are."""
    monkeypatch.setattr("attnlight.models.readout.affine._FEW", 0)
    monkeypatch.setattr("attnlight.functional.erasure.flips._FEW", 0)


@pytest.fixture(params=READOUTS)
def scene(request: pytest.FixtureRequest) -> TokenScene:
    """Sentences, padded, and a tagger in double precision whose decisions hang on single tokens."""
    model = tagger(request.param).double().requires_grad_(False)
    return TokenScene.of(model, sentences(LENGTHS))


def tokens_of(scene: TokenScene) -> list[tuple[Sentence, int]]:
    parts = [scene.alone(row) for row in range(len(scene.batch))]
    own = [Sentence(part.model, part.batch) for part in parts]
    return [(sentence, token) for sentence in own for token in range(len(sentence))]


@pytest.mark.parametrize("test", LOOPS, ids=lambda test: test.name)
def test_a_loop_finds_what_the_test_does(scene: TokenScene, test: InterpretabilityTest) -> None:
    found = loop_over(test, tokens_of(scene))
    columns = scene.measure(test)
    # The minimum's other columns follow from which set it is, and equal sizes leave a choice.
    logged = {name for name in test.measures if not name.endswith("_minimal")}
    assert logged <= set(found[0])
    ours, theirs = torch.tensor(paired(columns, found), dtype=torch.float64).T
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-9, equal_nan=True)
    assert len(ours) > 16 * len(logged)
    assert ours.nan_to_num().unique().numel() > 8


@pytest.mark.parametrize("test", [LOOPS[0], LOOPS[3]], ids=lambda test: test.name)
def test_more_at_once_is_the_same(scene: TokenScene, test: InterpretabilityTest) -> None:
    tokens = tokens_of(scene)
    (other,) = other_loops(test, tokens).values()
    pairs = zip(loop_over(test, tokens), other(), strict=True)  # type: ignore[call-overload]
    for one, another in pairs:
        for name, values in one.items():
            assert another[name] == pytest.approx(values, abs=1e-12, nan_ok=True)


class TestSearch:
    def test_ends_where_ours_does_from_the_same_starts(
        self, scene: TokenScene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        part = scene.alone(3)
        output, sentence = part.output, Sentence(part.model, part.batch)
        items = output.item_logits

        def readout(weights: torch.Tensor) -> torch.Tensor:
            return part.model.readout(output, weights)

        reader = readout if items is None else items
        _, ours = search_adversary(output.weights, reader, output.mask, 0.05, output.rows, steps=60)
        starts = iter(_normal(0, output.rows, 2, 5, output.mask.repeat_interleave(2, dim=0)))
        monkeypatch.setattr(torch, "randn", lambda *size, dtype: next(starts))
        for token in range(len(sentence)):
            theirs = searched(sentence, token, 0.05, steps=60)
            assert theirs == pytest.approx(ours[token].tolist(), abs=1e-6)
        assert ours.max() > 0.1

    def test_is_never_above_what_the_test_says(self, scene: TokenScene) -> None:
        test, tokens = AdversarialAttention(epsilon=0.05), tokens_of(scene)
        torch.manual_seed(0)
        found = [searched(*token, test.epsilon, steps=50) for token in tokens]
        said = compare_searches(test, scene, tokens, found)
        if scene.output.item_logits is not None:
            assert said.endswith(", 0 of 32 searches end above ours")
        assert max(map(max, found)) > 0.1

    def test_attention_on_one_item_is_the_answer_where_the_lightest_keeps_the_prediction(
        self, scene: TokenScene
    ) -> None:
        test = AdversarialAttention(epsilon=0.2, program_instances=0)
        single = torch.tensor([on_one_item(*token, test.epsilon) for token in tokens_of(scene)])
        worst = scene.measure(test)["worst_js_by_head"].float()
        assert (single <= worst + 1e-6).all()
        assert ((single - worst).abs() < 1e-6).double().mean() > 0.1

    def test_a_search_above_the_bound_is_no_measurement(self) -> None:
        scene = TokenScene.of(tagger("residual").double(), sentences(LENGTHS))
        with torch.no_grad(), pytest.raises(RuntimeError, match="further away"):
            compare_searches(AdversarialAttention(), scene, tokens_of(scene)[:1], [[0.7, 0.0]])


def test_numbers_that_disagree_are_no_measurement(scene: TokenScene) -> None:
    test = LOOPS[1]
    found = loop_over(test, tokens_of(scene))
    columns = scene.measure(test)
    assert compare_numbers(columns, found).startswith("576 of 576")
    wrong = {name: column + 0.5 for name, column in columns.items()}
    with pytest.raises(RuntimeError, match="of 576 numbers only"):
        compare_numbers(wrong, found)


class TestBenchmarks:
    def test_the_tests_are_those_of_the_configuration(self) -> None:
        cheap = {type(test).__name__ for test in attached("cheap")} - {"Predictions"}
        assert cheap | {"ImportanceCorrelation"} == set(TOKEN_LOOPS)
        assert [type(test).__name__ for test in configured().values()] == list(TOKEN_LOOPS)

    @pytest.mark.parametrize("name", TOKEN_LOOPS)
    def test_speedup(self, scene: TokenScene, name: str) -> None:
        found = speedup(scene, configured()[name], name, 2, sentences=2, steps=3)
        assert len(found.values) == 2
        assert f"{name}, time a token" in found.details

    def test_the_tagger_is_trained_and_tested(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tagging, "configured", lambda: {"SingleErasure": SingleErasure()})
        data = corpus(written(tmp_path), cache_dir=str(tmp_path / "cache"))
        found = tagging.tagging(1, data, epochs=1, sentences=3, repetitions=1)
        names = {benchmark.name for benchmark in GROUPS["tagging"].benchmarks}
        assert set(found) == {f"tokens_SingleErasure_{readout}" for readout in READOUTS} < names
        cheap = tagging.tagging_cheap(1, data, epochs=1)
        assert set(cheap) == {benchmark.name for benchmark in GROUPS["tagging_cheap"].benchmarks}
        details = cheap["tagging_cheap_study"].details
        assert "study, epochs of training" in details
        assert "`DecisionFlip`" in details["study, all cheap tests on 21 sentences"]

    def test_epochs_are_taken_in_turn(self, tmp_path: Path) -> None:
        data = corpus(written(tmp_path / "corpus"))
        found = tagging_epoch(1, 2, *arguments(data), f"--data.cache_dir={tmp_path}/cache")
        assert len(found.values) == 2
        assert set(found.details) == {"attnlight fit, an epoch", "plain loop, an epoch"}


def test_the_plain_loop_learns_what_ours_does(tmp_path: Path) -> None:
    data = corpus(written(tmp_path / "corpus"), cache_dir=str(tmp_path / "cache"))
    none = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
    schedule = {"learning_rate": 0.2, "betas": (0.9, 0.98), "warmup_steps": 7}
    task = task_of(data, **none, **schedule)
    stand_in = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    stand_in.datamodule = data  # type: ignore[attr-defined]
    plain = PlainTaggingLoop(stand_in, task)
    plain.model.load_state_dict(task.model.state_dict())
    before = {name: weights.clone() for name, weights in task.model.state_dict().items()}
    trainer(tmp_path, max_epochs=2, limit_val_batches=0).fit(task, data)
    for _ in range(2):
        plain.epoch()
    expected = task.model.state_dict()
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-5)
    assert not torch.equal(before["decoder.decoder.weight"], expected["decoder.decoder.weight"])

"""Heads have no order: a tagger's divergence from its base after they were matched."""

from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import kendalltau
from torch import Tensor

from attnlight.callbacks import BaseDivergence
from attnlight.datamodules import ChunkingDataModule
from attnlight.records import read_metadata, read_record
from attnlight.reference import read_base
from attnlight.tasks import ChunkTagger, GuidedVariant, SeedVariant, UniformVariant
from tests.tasks.tagged import corpus, save_tagger, trainer, written

HEADS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ChunkingDataModule:
    return corpus(written(tmp_path_factory.mktemp("chunks")))


def record_of(
    folder: Path, task: Any, data: ChunkingDataModule, base: Path, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record of a test and its metadata."""
    divergence = BaseDivergence(base=str(base), figures=False, **options)
    trainer(folder, divergence).test(task, data, verbose=False)
    path = folder / "records/test/base_divergence.parquet"
    return dict(read_record(path).columns), dict(read_metadata(path))


def in_order(state: dict[str, Tensor], order: list[int]) -> dict[str, Tensor]:
    """The parameters of a tagger with its heads in another order: the same model."""
    moved = dict(state)
    for name in ("query", "key", "value"):
        blocks = state[f"attention.{name}.weight"].unflatten(0, (HEADS, -1))
        moved[f"attention.{name}.weight"] = blocks[order].flatten(0, 1)
    name = next(n for n in ("decoder.after.output.weight", "decoder.decoder.weight") if n in state)
    moved[name] = state[name].unflatten(1, (HEADS, -1))[:, order].flatten(1, 2)
    return moved


@pytest.mark.parametrize("readout", ["study", "text"])
def test_a_model_whose_heads_are_permuted_scores_0(
    readout: str, data: ChunkingDataModule, tmp_path: Path
) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS, readout=readout)
    task, order = ChunkTagger.load_from_checkpoint(base), [2, 0, 3, 1]
    task.model.load_state_dict(in_order(task.model.state_dict(), order))
    rows, about = record_of(tmp_path, task, data, base)
    assert about["heads"] == np.argsort(order).tolist()
    assert about["heads_matched_on"] == "validation"
    assert about["measures"] == ["attention_js", "prediction_tvd", "attention_js_mean"]
    for name in (*about["measures"], "attention_js_heads"):
        np.testing.assert_allclose(rows[name], 0, atol=2e-6)
    assert rows["attention_js_heads"].shape[1] == HEADS
    as_they_are, about = record_of(tmp_path, task, data, base, match_heads=False)
    assert as_they_are["attention_js"].mean() > 0.05
    assert "heads" not in about


def divergences(one: Any, two: Any, batch: Any) -> np.ndarray:
    """Of each token, head b of the second and head h of the first, at [r, b, h], by scipy."""
    with torch.no_grad():
        p, q = (model(batch).weights.double().numpy() for model in (one, two))
    found = np.zeros((len(p), HEADS, HEADS))
    for row, b, h in np.ndindex(*found.shape):
        found[row, b, h] = jensenshannon(p[row, h], q[row, b]) ** 2
    return found


def test_the_order_is_the_best_one_on_validation(data: ChunkingDataModule, tmp_path: Path) -> None:
    """Of all 24, for a model from another seed; the test split has no say."""
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS)
    other = save_tagger(tmp_path / "other.ckpt", data, heads=HEADS, seed=5)
    task, frozen = ChunkTagger.load_from_checkpoint(other).eval(), read_base(base).model
    rows, about = record_of(tmp_path, task, data, base)
    by_split = {}
    for split in ("validation", "test"):
        texts = data.dataset(split)
        each = [divergences(task.model, frozen, texts[[place]]) for place in range(len(texts))]
        by_split[split] = np.concatenate(each)
    mean = by_split["validation"].mean(0)
    sums = {o: sum(mean[b, h] for b, h in enumerate(o)) for o in permutations(range(HEADS))}
    best = list(min(sums, key=sums.__getitem__))
    assert about["heads"] == best
    expected = by_split["test"][:, range(HEADS), best]
    np.testing.assert_allclose(rows["attention_js_heads"], expected, atol=1e-6)
    np.testing.assert_allclose(rows["attention_js"], expected.mean(1), atol=1e-6)
    row = 0
    for place in range(len(data.dataset("test"))):
        with torch.no_grad():
            batch = data.dataset("test")[[place]]
            p, q = (m(batch).weights.mean(1).double() for m in (task.model, frozen))
            heads = frozen(batch).weights.double()
        for token in range(len(p)):
            far = [max(jensenshannon(i, h) ** 2 for i in np.eye(len(h))) for h in heads[token]]
            share = rows["attention_js_share"][row]
            assert share == pytest.approx(
                expected[row].mean() / np.mean(far), abs=1e-5, nan_ok=True
            )
            by_hand = jensenshannon(p[token], q[token]) ** 2
            assert rows["attention_js_mean"][row] == pytest.approx(by_hand, abs=1e-6)
            row += 1
    assert row == len(rows["index"])


def tau_of(weights: np.ndarray, base: np.ndarray) -> float:
    """Kendall's tau-b by scipy of two attentions, each with what nearly agrees made equal."""
    levels = []
    for scores in (weights.astype(float), base.astype(float)):
        level = dict.fromkeys(scores, 0)
        for low, high in pairwise(sorted(scores)):
            level[high] = level[low] + (high - low > 1e-5 * max(scores))
        levels.append([level[score] for score in scores])
    constant = any(len(set(held)) < 2 for held in levels)
    return np.nan if constant else float(kendalltau(*levels).statistic)


def test_rankings_are_those_of_scipy(data: ChunkingDataModule, tmp_path: Path) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS)
    other = save_tagger(tmp_path / "other.ckpt", data, heads=HEADS, seed=5)
    task, frozen = ChunkTagger.load_from_checkpoint(other).eval(), read_base(base).model
    plain, _ = record_of(tmp_path / "plain", task, data, base)
    assert "attention_tau" not in plain
    rows, about = record_of(tmp_path, task, data, base, rankings=True)
    assert about["tie"] == 1e-5
    np.testing.assert_array_equal(rows["attention_js"], plain["attention_js"])
    by_hand = []
    for place in range(len(data.dataset("test"))):
        with torch.no_grad():
            batch = data.dataset("test")[[place]]
            own, of_base = (m(batch).weights.numpy() for m in (task.model, frozen))
        for token in range(len(own)):
            pairs = zip(own[token][about["heads"]], of_base[token], strict=True)
            by_hand.append(np.mean([tau_of(*pair) for pair in pairs]))
    assert np.isnan(by_hand).any(), "a sentence of one token has no rank"
    np.testing.assert_allclose(rows["attention_tau"], by_hand, atol=1e-12)


def test_heads_that_rank_nothing_are_left_out_of_rankings(
    data: ChunkingDataModule, tmp_path: Path
) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS)
    torch.manual_seed(4)

    def task(head: int | None) -> UniformVariant:
        return UniformVariant(data.spec, str(base), head=head)

    options: dict[str, Any] = {"rankings": True, "match_heads": False}
    rows, _ = record_of(tmp_path / "all", task(None), data, base, **options)
    assert np.isnan(rows["attention_tau"]).all()
    variant, frozen = task(2), read_base(base).model
    rows, _ = record_of(tmp_path / "one", variant, data, base, **options)
    row, variant = 0, variant.eval()
    for place in range(len(data.dataset("test"))):
        with torch.no_grad():
            batch = data.dataset("test")[[place]]
            own, of_base = (m(batch).weights.numpy() for m in (variant.model, frozen))
        for token in range(len(own)):
            kept = [tau_of(own[token, h], of_base[token, h]) for h in (0, 1, 3)]
            close = pytest.approx(np.mean(kept), abs=1e-12, nan_ok=True)
            assert rows["attention_tau"][row] == close
            row += 1
    assert row == len(rows["attention_tau"])


def test_each_epoch_matches_its_own_heads(data: ChunkingDataModule, tmp_path: Path) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS)
    torch.manual_seed(4)
    task = SeedVariant(data.spec, str(base))
    orders = []

    class Spy(BaseDivergence):
        @property
        def name(self) -> str:
            return "base_divergence"

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            found = [divergences(pl_module.model, frozen, texts[[p]]) for p in range(len(texts))]
            mean = np.concatenate(found).mean(0)
            sums = {o: sum(mean[b, h] for b, h in enumerate(o)) for o in permutations(range(4))}
            orders.append(list(min(sums, key=sums.__getitem__)))
            super().on_validation_epoch_end(trainer, pl_module)

    texts, frozen = data.dataset("validation"), read_base(base).model
    started = trainer(tmp_path, Spy(figures=False), max_epochs=2, limit_train_batches=3)
    started.fit(task, datamodule=data)
    paths = sorted((tmp_path / "records/val").iterdir())
    assert [read_metadata(path)["heads"] for path in paths] == orders
    logged = started.callback_metrics["val/base_divergence/attention_js_mean"]
    rows = read_record(paths[-1]).columns
    assert float(logged) == pytest.approx(rows["attention_js_mean"].mean(), rel=1e-5)


def test_a_guided_model_reads_its_guide_on_both_splits(
    data: ChunkingDataModule, tmp_path: Path
) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data, heads=HEADS)
    task = GuidedVariant(data.spec, str(base))
    rows, about = record_of(tmp_path, task, data, base)
    assert about["heads"] == [0, 1, 2, 3]
    np.testing.assert_allclose(rows["attention_js"], 0, atol=1e-9)
    assert rows["prediction_tvd"].mean() > 0.05

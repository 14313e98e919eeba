"""How far a model is from its base, against scipy row by row; heads have no order."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr
from scipy.stats import entropy
from torch import Tensor

from attnlight.callbacks import BaseDivergence
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.records import read_metadata, read_record
from attnlight.reference import read_base
from attnlight.tasks import (
    AttentionClassifier,
    ChunkTagger,
    GuidedVariant,
    SeedVariant,
    UniformVariant,
)
from tests.bases import Planted, classifier, save_base
from tests.callbacks.test_base import recorded, run_test
from tests.callbacks.token_loops import tau
from tests.outside import OutsideTask, Texts, loader
from tests.tasks import tagged
from tests.tasks.tagged import save_tagger, trainer, written

HEADS = 4


@pytest.fixture(scope="module")
def corpus() -> Planted:
    return Planted()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ChunkingDataModule:
    return tagged.corpus(written(tmp_path_factory.mktemp("chunks")))


@pytest.fixture(scope="module")
def base(data: ChunkingDataModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a tagger of several heads."""
    return save_tagger(tmp_path_factory.mktemp("base") / "base.ckpt", data, heads=HEADS)


def other(corpus: Planted, **options: Any) -> AttentionClassifier:
    torch.manual_seed(5)
    sharp: dict[str, Any] = {"encoder": "none", "attention": "dot", "embedding_scale": 3.0}
    return classifier(corpus.spec, embedding_size=6, **sharp, **options)


def record_of(
    folder: Path, task: Any, data: Any, base: Path, figures: bool = False, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record of a test and its metadata."""
    test = BaseDivergence(base=str(base), **options)
    record = recorded(folder, test, figures=figures, task=task, data=data)
    return dict(record.columns), dict(record.metadata)


def of_both(model: Any, base: Any, texts: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Attention (H, N) of a model and of its base on each row of a split, a text at a time."""
    for place in range(len(texts)):
        with torch.no_grad():
            batch = texts[[place]]
            yield from zip(*(one(batch).weights.numpy() for one in (model, base)), strict=True)


def compare_with_scipy(
    rows: dict[str, Any], model: Any, base: Any, texts: Any, heads: list[int]
) -> None:
    """Every column of every row, heads of the model in the order of those of the base."""
    expected: dict[str, list[Any]] = defaultdict(list)
    for place in range(len(texts)):
        with torch.no_grad():
            ours, theirs = model(texts[[place]]), base(texts[[place]])
        p, q = ours.weights.double(), theirs.weights.double()
        expected["base_max_attention"] += q.amax(-1).mean(-1).tolist()
        expected["base_prediction"] += theirs.logits.argmax(-1).tolist()
        moved = (ours.probabilities - theirs.probabilities).abs().sum(-1) / 2
        expected["prediction_tvd"] += moved.tolist()
        for own, of_base in zip(p, q, strict=True):
            each = [jensenshannon(own[h], w) ** 2 for h, w in zip(heads, of_base, strict=True)]
            far = [max(jensenshannon(i, w) ** 2 for i in np.eye(len(w))) for w in of_base]
            share = np.mean(each) / np.mean(far) if np.mean(far) > 0 else np.nan
            expected["attention_js"].append(np.mean(each))
            expected["attention_js_share"].append(share)
            kl = [entropy(own[h], w) for h, w in zip(heads, of_base, strict=True)]
            expected["attention_kl"].append(np.mean(kl))
            # Of the released code: the mean of p log(p / q) over heads in order and items.
            expected["attention_kl_elements"].append(rel_entr(own.numpy(), of_base.numpy()).mean())
            if len(heads) > 1:
                expected["attention_js_heads"].append(each)
                mean = jensenshannon(own.mean(0), of_base.mean(0)) ** 2
                expected["attention_js_mean"].append(mean)
    for name, values in expected.items():
        atol = 1e-5 if name == "attention_js_share" else 1e-6
        rtol = 1e-6 * name.startswith("attention_kl")  # which has no largest value
        np.testing.assert_allclose(rows[name], values, rtol=rtol, atol=atol, err_msg=name)


def test_record_equals_a_loop_with_scipy(tmp_path: Path, corpus: Planted) -> None:
    base = save_base(tmp_path / "base.ckpt", corpus)
    task, frozen = other(corpus).eval(), read_base(base)
    rows, about = record_of(tmp_path, task, corpus, base, figures=True)
    assert about["base_fingerprint"] == frozen.identity.fingerprint
    assert about["base"] == str(base)
    texts = corpus.dataset("test")
    assert rows["index"].tolist() == texts.index.tolist()
    compare_with_scipy(rows, task.model, frozen.model, texts, heads=[0])
    assert rows["attention_js"].mean() > 0.05
    assert list((tmp_path / "figures/test").glob("base_divergence.*"))


@pytest.mark.parametrize("sparse", ["base", "model"])
def test_kl_is_infinite_where_the_base_gives_0_to_a_weighed_item(
    sparse: str, tmp_path: Path, corpus: Planted
) -> None:
    normalizer = {"base": "softmax", "model": "softmax"} | {sparse: "sparsemax"}
    base = save_base(tmp_path / "base.ckpt", corpus, normalizer=normalizer["base"])
    task = other(corpus, normalizer=normalizer["model"]).eval()
    rows, _ = record_of(tmp_path, task, corpus, base)
    pairs = [*of_both(task.model, read_base(base).model, corpus.dataset("test"))]
    by_hand = [entropy(own[0].astype(float), of_base[0].astype(float)) for own, of_base in pairs]
    zeros = [(pair[sparse == "base"][0] == 0).any() for pair in pairs]
    assert any(zeros)
    assert sparse == "model" or not all(zeros)
    assert np.isinf(by_hand).tolist() == [zero and sparse == "base" for zero in zeros]
    np.testing.assert_allclose(rows["attention_kl"], by_hand, rtol=0, atol=1e-6)
    length = [own.shape[1] for own, _ in pairs]
    np.testing.assert_allclose(rows["attention_kl_elements"] * length, rows["attention_kl"])


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
    np.testing.assert_allclose(rows["attention_kl"], 0, atol=1e-9)
    as_they_are, about = record_of(tmp_path, task, data, base, match_heads=False)
    assert as_they_are["attention_js"].mean() > 0.05
    assert "heads" not in about
    # As released, heads are compared in order, and KL is divided by the items of the row.
    items = np.repeat((lengths := data.dataset("test").lengths), lengths)
    np.testing.assert_allclose(rows["attention_kl_elements"] * items, as_they_are["attention_kl"])


def best_order(one: Any, two: Any, texts: Any) -> list[int]:
    """Of all orders of the heads of the first that of least divergence from the second, by scipy."""
    found = [
        [[jensenshannon(w, v) ** 2 for w in own.astype(float)] for v in of_base.astype(float)]
        for own, of_base in of_both(one, two, texts)
    ]
    mean = np.mean(found, axis=0)  # of head b of the second and head h of the first at [b, h]
    sums = {o: sum(mean[b, h] for b, h in enumerate(o)) for o in permutations(range(HEADS))}
    return list(min(sums, key=sums.__getitem__))


def test_the_order_is_the_best_one_on_validation_and_rankings_are_those_of_scipy(
    data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    """Of all 24 orders, for a model from another seed; the test split has no say."""
    other = save_tagger(tmp_path / "other.ckpt", data, heads=HEADS, seed=5)
    task, frozen = ChunkTagger.load_from_checkpoint(other).eval(), read_base(base).model
    plain, _ = record_of(tmp_path / "plain", task, data, base)
    assert "attention_tau" not in plain
    rows, about = record_of(tmp_path, task, data, base, rankings=True)
    assert about["tie"] == 1e-5
    assert about["heads"] == best_order(task.model, frozen, data.dataset("validation"))
    compare_with_scipy(rows, task.model, frozen, data.dataset("test"), about["heads"])
    np.testing.assert_array_equal(rows["attention_js"], plain["attention_js"])
    by_hand = [
        np.mean([tau(*pair) for pair in zip(own[about["heads"]], of_base, strict=True)])
        for own, of_base in of_both(task.model, frozen, data.dataset("test"))
    ]
    assert np.isnan(by_hand).any(), "a sentence of one token has no rank"
    np.testing.assert_allclose(rows["attention_tau"], by_hand, atol=1e-12)


def test_heads_that_rank_nothing_are_left_out_of_rankings(
    data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    torch.manual_seed(4)
    uniform, variant = (UniformVariant(data.spec, str(base), head=head) for head in (None, 2))
    options: dict[str, Any] = {"rankings": True, "match_heads": False}
    rows, _ = record_of(tmp_path / "all", uniform, data, base, **options)
    assert np.isnan(rows["attention_tau"]).all()
    frozen = read_base(base).model
    rows, _ = record_of(tmp_path / "one", variant, data, base, **options)
    by_hand = [
        np.mean([tau(own[head], of_base[head]) for head in (0, 1, 3)])
        for own, of_base in of_both(variant.eval().model, frozen, data.dataset("test"))
    ]
    np.testing.assert_allclose(rows["attention_tau"], by_hand, atol=1e-12)


def test_each_epoch_matches_its_own_heads(
    data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    torch.manual_seed(4)
    task = SeedVariant(data.spec, str(base))
    orders = []

    class Spy(BaseDivergence):
        name = "base_divergence"

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            orders.append(best_order(pl_module.model, frozen, texts))
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
    data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    task = GuidedVariant(data.spec, str(base))
    rows, about = record_of(tmp_path, task, data, base)
    assert about["heads"] == [0, 1, 2, 3]
    np.testing.assert_allclose(rows["attention_js"], 0, atol=1e-9)
    assert rows["prediction_tvd"].mean() > 0.05


def three_classes(corpus: Planted) -> OutsideTask:
    task = OutsideTask()
    task.model.table = torch.nn.Embedding(corpus.vocab_size, 8)
    return task


# From a folder and a corpus: the base, the task and its corpus.
REFUSED: dict[str, tuple[Callable[[Path, Planted], tuple[Any, Any, Any]], str]] = {
    "no base": (lambda f, c: (None, other(c), c), "give the checkpoint of a base as `base`"),
    "no corpus": (
        lambda f, c: (save_base(f / "base.ckpt", c), OutsideTask(), loader(Texts())),
        "needs its corpus",
    ),
    "other classes": (
        lambda f, c: (save_base(f / "base.ckpt", c), three_classes(c), c),
        "1 heads and 2 classes, the model 2 and 3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_base_is_refused(case: str, corpus: Planted, tmp_path: Path) -> None:
    base, task, data = REFUSED[case][0](tmp_path, corpus)
    with pytest.raises(InputError, match=REFUSED[case][1]):
        run_test(tmp_path, BaseDivergence(base=base and str(base)), task=task, data=data)

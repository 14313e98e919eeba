"""A guided model attends as its guide does, text by text and token by token."""

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.data.raw_text import RawText
from attnlight.errors import InputError
from attnlight.functional.random import permutations
from attnlight.models import SelfAttentionTagger
from attnlight.probing.leave_one_out import left_out_logits
from attnlight.problems import Tagging
from attnlight.reference import FrozenBase, read_base, running_split
from attnlight.tasks import AdversarialVariant, GuidedVariant
from tests.bases import Planted, attach_stub_trainer, batch_of, one_text, save, save_base, trainer
from tests.callbacks.faithfulness_loops import reduced
from tests.tasks.conftest import BOTH, TOKENS, TWO, Scene


@pytest.fixture
def base(scene: Scene, tmp_path: Path) -> Path:
    return of(scene, tmp_path)


def of(scene: Scene, folder: Path, name: str = "base", **options: Any) -> Path:
    """A base whose words alone decide, of texts; any of tokens."""
    if scene.save is save_base:
        options = {"encoder": "none", "attention": "dot"} | options
    return scene.base(folder, name, **options)


def guided(scene: Scene, base: Path, **options: Any) -> GuidedVariant:
    torch.manual_seed(2)
    return GuidedVariant(scene.corpus.spec, str(base), **options).eval()


def adversary(scene: Scene, base: Path, folder: Path) -> AdversarialVariant:
    """An untrained adversary, saved in `adversary.ckpt`."""
    torch.manual_seed(3)
    task = AdversarialVariant(scene.corpus.spec, str(base), 0.1)
    task.raw = RawText.of_corpus(scene.corpus)
    save(task, folder / "adversary.ckpt")
    return task


class Watch(pl.Callback):
    """Compares the attention of each text of each loop with its guide's, which reads it alone."""

    def __init__(self, guide: Path) -> None:
        self.guide, self.model = FrozenBase(guide), read_base(guide).model
        self.seen: dict[str, list[int]] = {}

    @torch.no_grad()
    def watch(self, trainer: Any, task: Any, outputs: Any, batch: TextBatch, place: int) -> None:
        split = running_split(trainer)
        output = task.model(batch)
        self.seen.setdefault(split, []).extend(batch.index.tolist())
        for text, index in enumerate(batch.index.tolist()):
            length = int(batch.mask[text].sum())
            own = self.model(one_text(batch, text))
            given = output.weights[output.rows[:, 0] == index]
            kept = self.guide.outputs(trainer.datamodule, split).attention(own.rows, own.mask)
            assert torch.equal(given[..., :length], kept), index
            assert not given[..., length:].any()
            torch.testing.assert_close(kept, own.weights, atol=2e-6, rtol=0)

    on_train_batch_end = on_validation_batch_end = on_test_batch_end = watch
    on_predict_batch_end = watch


@pytest.mark.parametrize("scene", ["two", "tokens", "symbols"], indirect=True)
def test_every_loop_attends_as_the_guide(scene: Scene, base: Path, tmp_path: Path) -> None:
    """Under bucketing, in the shuffled batches of two epochs, and in evaluation."""
    task, watch = guided(scene, base).train(), Watch(base)
    for verb in ("fit", "test", "predict"):
        started = trainer(tmp_path, watch, max_epochs=2)
        getattr(started, verb)(task, datamodule=scene.corpus)
    for split in ("train", "validation", "test"):  # of two epochs, or of test and of predict
        every = scene.corpus.dataset(split).index.tolist()
        assert sorted(watch.seen[split]) == sorted([*every] * 2)


class TestGuides:
    @BOTH
    def test_shuffled_attention_is_as_peaked(self, scene: Scene, base: Path) -> None:
        tasks = [guided(scene, base, guide="shuffled") for _ in range(2)]
        batch = batch_of(scene.corpus)
        for task in tasks:
            attach_stub_trainer(task, scene.corpus)
        first, again = (task.model(batch).weights for task in tasks)
        rows, mask = tasks[0].problem.instances(batch)
        own = FrozenBase(base).outputs(scene.corpus, "train").attention(rows, mask)
        assert torch.equal(first.sort(-1).values, own.sort(-1).values)
        assert torch.equal(first, again)
        assert torch.equal(first > 0, own > 0)
        assert not torch.equal(first, own)
        for row in range(len(rows)):
            length = int(mask[row].sum())
            order = permutations(torch.tensor([length]), rows[row : row + 1], 1, seed=0)[0, 0]
            assert torch.equal(first[row, :, :length], own[row][:, order])
            assert not first[row, :, length:].any()
        alone = tasks[0].model(batch.select(torch.arange(8) == 3))
        assert torch.equal(alone.weights, first[rows[:, 0] == batch.index[3]])

    @BOTH
    def test_learned_is_an_mlp_or_a_retrained_tagger(self, scene: Scene, base: Path) -> None:
        learned = guided(scene, base, guide="learned").model
        shapes = {name: p.shape for name, p in learned.named_parameters()}
        if scene.save is not save_base:
            own = read_base(base).model.named_parameters()
            assert shapes == {name: parameter.shape for name, parameter in own}
            return
        names = {name for name in shapes if "attention" in name}
        assert names == {"attention.key.weight", "attention.key.bias", "attention.value.weight"}
        for model in (learned, guided(scene, base, guide="uniform").model):
            assert type(model.encoder).__name__ == "Average"
            assert model.decoder.in_features == 4

    @BOTH
    @pytest.mark.parametrize("guide", ["adversary", "other"])
    def test_a_guide_checkpoint(self, scene: Scene, base: Path, tmp_path: Path, guide: str) -> None:
        own = adversary(scene, base, tmp_path)
        saved = str(tmp_path / "adversary.ckpt")
        task = guided(scene, base, guide=guide, guide_checkpoint=saved)
        batch = batch_of(scene.corpus)
        attach_stub_trainer(task, scene.corpus)
        weights = own.model.eval()(batch).weights
        torch.testing.assert_close(task.model(batch).weights, weights, atol=2e-6, rtol=0)
        assert set(json.loads(task.resolved_args["inherited"])) == {"base", "guide"}


@TOKENS
class TestQueryKey:
    @pytest.mark.parametrize(
        ("layers", "query_key", "kept"),
        [(1, False, []), (1, True, ["attention"]), (2, False, ["layers.0.attention"])],
    )
    def test_are_left_out_of_frozen_attention(
        self, scene: Scene, tmp_path: Path, layers: int, query_key: bool, kept: list[str]
    ) -> None:
        model = guided(scene, scene.base(tmp_path, layers=layers), query_key=query_key).model
        names = {name for name, _ in model.named_parameters()}
        found = {name for name in names if "query" in name or "key" in name}
        assert found == {f"{at}.{part}.weight" for at in kept for part in ("query", "key")}

    def test_move_what_is_given(self, scene: Scene, base: Path) -> None:
        """Against given * exp(query . key / root of size), head by head."""
        task = guided(scene, base, query_key=True)
        attach_stub_trainer(task, scene.corpus, "validation")
        batch = batch_of(scene.corpus, "validation", 5)
        kept = FrozenBase(base).outputs(scene.corpus, "validation")
        given = kept.attention(*Tagging.instances(batch))
        torch.nn.init.normal_(task.model.attention.query.weight)  # type: ignore[union-attr]
        output, layer = task.model(batch), task.model.attention
        states = task.model.norm(output.states)  # type: ignore[operator, union-attr]
        q, k = (layer(states).unflatten(-1, (2, 8)) for layer in (layer.query, layer.key))  # type: ignore[union-attr, operator]
        row = 0
        for text in range(len(batch)):
            length = int(batch.mask[text].sum())
            for place in range(length):
                for head in range(2):
                    scores = k[text, :length, head] @ q[text, place, head] / 8**0.5
                    moved = given[row, head, :length] * scores.exp()
                    torch.testing.assert_close(
                        output.weights[row, head, :length], moved / moved.sum(), atol=3e-6, rtol=0
                    )
                row += 1
        torch.nn.init.zeros_(task.model.attention.query.weight)  # type: ignore[union-attr]
        torch.testing.assert_close(task.model(batch).weights, given, atol=2e-6, rtol=0)


@TOKENS
def test_order_says_nothing_to_the_stricter_probe(scene: Scene, base: Path) -> None:
    """Of tokens that are encoded alone, and reach a tag through attention alone."""
    task = guided(scene, base, context="tokens")
    assert task.hparams["net"]["readout"] == "text"
    length = int(scene.corpus.dataset("test").lengths.max())
    batch = scene.corpus.dataset("test")[[int(scene.corpus.dataset("test").lengths.argmax())]]
    given = torch.rand(length, 2, length)
    given /= given.sum(-1, keepdim=True)
    task.model.guide = lambda _: given  # type: ignore[union-attr]
    own = task.model(batch).logits
    order = torch.randperm(length, generator=torch.Generator().manual_seed(0))
    turned = batch.apply(lambda v: v if v.ndim == 1 else v[:, order])
    task.model.guide = lambda _: given[order][:, :, order]  # type: ignore[union-attr]
    torch.testing.assert_close(task.model(turned).logits, own[order])


@TOKENS
@pytest.mark.parametrize("query_key", [False, True])
def test_leave_one_out_renormalises_the_rest(scene: Scene, base: Path, query_key: bool) -> None:
    task = guided(scene, base, query_key=query_key).double()
    attach_stub_trainer(task, scene.corpus, "validation")
    model: Any = task.model
    assert issubclass(type(model), SelfAttentionTagger)
    batch = batch_of(scene.corpus, "validation", 4)
    with torch.no_grad():
        output = model(batch)
        found = left_out_logits(model, batch, output)
        given = model.guide(batch)
        row = 0
        for text in range(len(batch)):
            length = int(batch.mask[text].sum())
            rows = slice(row, row + length)
            for gone in range(length if length > 1 else 0):
                kept = [place for place in range(length) if place != gone]
                left = given[rows][kept][:, :, kept].double()
                model.guide = lambda _, w=left: w / w.sum(-1, keepdim=True)
                expected = model(reduced(one_text(batch, text), [gone], "delete")).logits
                torch.testing.assert_close(found[rows][kept, gone], expected, atol=1e-6, rtol=1e-6)
                assert found[rows][gone, gone].isnan().all()
            row += length


class TestRefusal:
    @BOTH
    def test_adversary_of_another_base(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        other = of(scene, tmp_path, "other", seed=9)
        adversary(scene, other, tmp_path)
        for checkpoint in (tmp_path / "adversary.ckpt", other, base):
            with pytest.raises(InputError, match="is no AdversarialVariant trained against"):
                guided(scene, base, guide="adversary", guide_checkpoint=str(checkpoint))

    @TOKENS
    def test_another_problem_or_other_heads(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        classifier = save_base(tmp_path / "classifier.ckpt", Planted())
        four = of(scene, tmp_path, "four", heads=4)
        for path, message in (
            (classifier, r"the guide .*classifier\.ckpt is of classification"),
            (four, r"four\.ckpt has 4 heads, the base 2"),
        ):
            with pytest.raises(InputError, match=message):
                guided(scene, base, guide="other", guide_checkpoint=str(path))

    @TWO
    def test_guide_of_another_corpus(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        other = save_base(tmp_path / "other.ckpt", Planted(corpus_seed=2))
        task = guided(scene, base, guide="other", guide_checkpoint=str(other))
        with pytest.raises(InputError, match=r"other\.ckpt was trained on another corpus"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=scene.corpus)

    @BOTH
    def test_raw_text_after_a_test(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        task = guided(scene, base)
        task.raw = RawText.of_corpus(scene.corpus)
        trainer(tmp_path).test(task, scene.corpus, verbose=False)
        with pytest.raises(InputError, match="no raw text"):
            task.read(["the cat"], [["DT", "NN"]])

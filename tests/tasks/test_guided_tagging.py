"""A guided tagger attends as its guide does, token by token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight import compatibility
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.functional.attribution.leave_one_out import left_out_logits
from attnlight.functional.random import permutations
from attnlight.models import SelfAttentionTagger
from attnlight.problems.tagging import attended_tokens
from attnlight.reference import Reference, read_base
from attnlight.tasks import AdversarialVariant, GuidedVariant
from tests.bases import Planted, batch_of, running, save, save_base
from tests.commands import CONFIGS, QUIET, attnlight_on_two
from tests.tasks.tagged import arguments, corpus, save_tagger, trainer, written
from tests.tasks.test_guided import seen
from tests.tasks.watching import WatchTokens


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ChunkingDataModule:
    return corpus(written(tmp_path_factory.mktemp("chunks")))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, data: ChunkingDataModule) -> Path:
    return save_tagger(tmp_path_factory.mktemp("base") / "base.ckpt", data)


def guided(data: ChunkingDataModule, base: Path, **options: Any) -> GuidedVariant:
    torch.manual_seed(2)
    task = GuidedVariant(data.spec, str(base), **compatibility.arguments(options))
    return task.eval()


def test_every_token_of_every_loop_has_its_guide_s_attention(
    data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    """Under bucketing, in the shuffled batches of two epochs, and in evaluation."""
    task = guided(data, base)
    for verb in ("fit", "test", "predict"):
        started = trainer(tmp_path, WatchTokens(str(base), str(tmp_path)), max_epochs=2)
        getattr(started, verb)(task, datamodule=data)
    found = seen(tmp_path)
    for split, times in (("train", 2), ("validation", 2), ("test", 2)):  # of test and of predict
        assert sorted(found[split]) == sorted([*data.dataset(split).index.tolist()] * times)


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices_give_every_token_its_guide_s_attention(
    data: ChunkingDataModule, tmp_path: Path
) -> None:
    base = save_tagger(tmp_path / "base.ckpt", data)
    watched = [f"--trainer.callbacks+={WatchTokens.__module__}.WatchTokens"]
    watched += [f"--trainer.callbacks.guide={base}", f"--trainer.callbacks.out={tmp_path}"]
    model = [f"--model={CONFIGS}/models/tagger_guided.yaml", f"--model.base={base}"]
    start = ["-c", f"{CONFIGS}/trainer.yaml", *model, *arguments(data)]
    short = [*watched, *QUIET, "--trainer.logger=false", "--trainer.max_epochs=2"]
    place: Any = {"cwd": tmp_path, "PYTHONPATH": str(CONFIGS.parent), "ATTNLIGHT_DATA": ""}
    run = tmp_path / "e" / "r"
    attnlight_on_two(
        "fit", *start, *short, f"--root={tmp_path}", "--experiment=e", "--run=r", **place
    )
    command = ["-c", f"{run}/fit.yaml", f"--ckpt_path={run}/best.ckpt", *QUIET]
    attnlight_on_two("test", *command, **place)
    found = seen(tmp_path)
    for split in ("train", "validation"):
        assert set(found[split]) == set(data.dataset(split).index.tolist())
    assert sorted(found["test"]) == sorted(data.dataset("test").index.tolist())


class TestGuides:
    def test_shuffled_rows_are_as_peaked(self, data: ChunkingDataModule, base: Path) -> None:
        tasks = [guided(data, base, guide="shuffled", shuffle_seed=seed) for seed in (0, 0, 1)]
        batch = batch_of(data)
        for task in tasks:
            running(task, data)
        first, again, other = (task.model(batch).weights for task in tasks)
        rows, mask = attended_tokens(batch)
        own, _ = Reference(base).outputs(data, "train").read(rows, mask)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        for row in range(len(rows)):
            length = int(mask[row].sum())
            order = permutations(torch.tensor([length]), rows[row : row + 1], 1, seed=0)[0, 0]
            assert torch.equal(first[row, :, :length], own[row][:, order])
            assert not first[row, :, length:].any()
        alone = tasks[0].model(batch.select(torch.arange(8) == 3))
        assert torch.equal(alone.weights, first[rows[:, 0] == batch.index[3]])

    def test_adversary_and_other_give_their_own(
        self, data: ChunkingDataModule, base: Path, tmp_path: Path
    ) -> None:
        torch.manual_seed(3)
        own = AdversarialVariant(data.spec, str(base), 0.1)
        own.adopt_corpus(data)
        saved = save(own, tmp_path / "adversary.ckpt")
        batch = batch_of(data)
        for guide in ("adversary", "other"):
            task = guided(data, base, guide=guide, guide_checkpoint=str(saved))
            running(task, data)
            weights = own.model.eval()(batch).weights
            torch.testing.assert_close(task.model(batch).weights, weights, atol=2e-6, rtol=0)
            assert set(task.settled["inherited"]) == {"base", "guide"}

    def test_uniform_and_learned_need_no_corpus(self, data: ChunkingDataModule, base: Path) -> None:
        batch = batch_of(data)
        output = guided(data, base, guide="uniform").model(batch)
        expected = (output.mask / output.mask.sum(-1, keepdim=True)).unsqueeze(1)
        torch.testing.assert_close(output.weights, expected.expand_as(output.weights))
        learned = guided(data, base, guide="learned")
        shapes = {name: p.shape for name, p in read_base(base).model.named_parameters()}
        assert {name: p.shape for name, p in learned.model.named_parameters()} == shapes


class TestQueryKey:
    @staticmethod
    def scored(model: torch.nn.Module) -> set[str]:
        names = {name for name, _ in model.named_parameters()}
        return {name for name in names if "query" in name or "key" in name}

    def test_frozen_attention_has_none(self, data: ChunkingDataModule, base: Path) -> None:
        assert not self.scored(guided(data, base).model)
        kept = {"attention.query.weight", "attention.key.weight"}
        assert self.scored(guided(data, base, query_key=True).model) == kept

    def test_below_the_last_layer_they_stay(self, data: ChunkingDataModule, tmp_path: Path) -> None:
        deep = save_tagger(tmp_path / "b.ckpt", data, layers=2)
        found = self.scored(guided(data, deep).model)
        assert found == {"layers.0.attention.query.weight", "layers.0.attention.key.weight"}

    def test_move_what_is_given(self, data: ChunkingDataModule, base: Path) -> None:
        """Against given * exp(query . key / root of size), head by head."""
        task = guided(data, base, query_key=True)
        running(task, data, "validation")
        batch = batch_of(data, "validation", 5)
        given, _ = Reference(base).outputs(data, "validation").read(*attended_tokens(batch))
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


class TestStricterProbe:
    def test_a_token_reaches_a_tag_through_attention_alone(
        self, data: ChunkingDataModule, base: Path
    ) -> None:
        task = guided(data, base, context="tokens")
        batch = batch_of(data, "test", 6)
        rows, mask = attended_tokens(batch)
        torch.manual_seed(0)
        given = torch.rand(len(rows), 2, mask.shape[1]) * mask.unsqueeze(1)
        given[:, :, 0] = 0.0  # nobody attends to the first token
        task.model.guide = lambda _: given  # type: ignore[union-attr]
        own = task.model(batch).logits
        batch.tokens[:, 0] = 5
        for values in batch.extras.values():
            values[:, 0] = 1
        assert torch.equal(task.model(batch).logits, own)
        given[:, :, 0] = 0.1
        assert not torch.equal(task.model(batch).logits, own)

    def test_full_context_has_other_ways(self, data: ChunkingDataModule, base: Path) -> None:
        task = guided(data, base)
        batch = batch_of(data, "test", 6)
        rows, mask = attended_tokens(batch)
        given = torch.ones(len(rows), 2, mask.shape[1]) * mask.unsqueeze(1)
        given[:, :, 0] = 0.0
        task.model.guide = lambda _: given  # type: ignore[union-attr]
        own = task.model(batch).logits
        batch.tokens[:, 0] = 5
        moved = (task.model(batch).logits != own).any(-1)
        assert torch.equal(moved, rows[:, 1] == 0)  # by its own state

    def test_order_says_nothing(self, data: ChunkingDataModule, base: Path) -> None:
        task = guided(data, base, context="tokens")
        length = int(data.dataset("test").lengths.max())
        batch = data.dataset("test")[[int(data.dataset("test").lengths.argmax())]]
        given = torch.rand(length, 2, length)
        given /= given.sum(-1, keepdim=True)
        task.model.guide = lambda _: given  # type: ignore[union-attr]
        own = task.model(batch).logits
        order = torch.randperm(length, generator=torch.Generator().manual_seed(0))
        turned = batch.apply(lambda v: v if v.ndim == 1 else v[:, order])
        task.model.guide = lambda _: given[order][:, :, order]  # type: ignore[union-attr]
        torch.testing.assert_close(task.model(turned).logits, own[order])


@pytest.mark.parametrize("query_key", [False, True])
def test_leave_one_out_renormalises_what_was_given(
    data: ChunkingDataModule, base: Path, query_key: bool
) -> None:
    task = guided(data, base, query_key=query_key).double()
    running(task, data, "validation")
    model = task.model
    assert isinstance(model, SelfAttentionTagger)
    batch = batch_of(data, "validation", 4)
    with torch.no_grad():
        output = model(batch)
        found = left_out_logits(model, batch, output)
        before: Callable[..., Any] | None = model.guide
        assert before is not None
        given = before(batch)
        row = 0
        for text in range(len(batch)):
            length = int(batch.mask[text].sum())
            rows = slice(row, row + length)
            for gone in range(length if length > 1 else 0):
                kept = [place for place in range(length) if place != gone]
                short = batch.select(torch.arange(4) == text).apply(
                    lambda v, k=kept: v if v.ndim == 1 else v[:, k]
                )
                left = given[rows][kept][:, :, kept].double()
                model.guide = lambda _, w=left: w / w.sum(-1, keepdim=True)
                expected = model(short).logits
                torch.testing.assert_close(found[rows][kept, gone], expected, atol=1e-6, rtol=1e-6)
                assert found[rows][gone, gone].isnan().all()
            row += length


class TestRefusal:
    def test_guide_checkpoints(self, data: ChunkingDataModule, base: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="guide other needs a guide_checkpoint"):
            guided(data, base, guide="other")
        with pytest.raises(InputError, match="guide base takes no guide_checkpoint"):
            guided(data, base, guide_checkpoint=str(base))
        with pytest.raises(InputError, match="is no AdversarialVariant trained against"):
            guided(data, base, guide="adversary", guide_checkpoint=str(base))
        classifier = str(save_base(tmp_path / "classifier.ckpt", Planted()))
        with pytest.raises(InputError, match=r"the guide .*classifier\.ckpt is of classification"):
            guided(data, base, guide="other", guide_checkpoint=classifier)

    def test_another_number_of_heads(
        self, data: ChunkingDataModule, base: Path, tmp_path: Path
    ) -> None:
        four = str(save_tagger(tmp_path / "four.ckpt", data, heads=4))
        with pytest.raises(InputError, match=r"four\.ckpt has 4 heads, the base 2"):
            guided(data, base, guide="other", guide_checkpoint=four)

    @pytest.mark.parametrize("guide", ["uniform", "learned"])
    def test_query_key_of_nothing_frozen(
        self, data: ChunkingDataModule, base: Path, guide: str
    ) -> None:
        with pytest.raises(InputError, match=f"query_key is for .* with guide {guide} leave it"):
            guided(data, base, guide=guide, query_key=True)

    def test_sentence_of_another_length(self, data: ChunkingDataModule, base: Path) -> None:
        task = guided(data, base)
        running(task, data)
        batch = batch_of(data)
        order = batch.mask.sum(-1).argsort()  # each takes the number of one of another length
        batch = batch.apply(lambda v: v[order])
        batch.index = batch.index.flip(0)
        with pytest.raises(InputError, match=r"text \d+ (has \d+ items, but|\(position)"):
            task.model(batch)

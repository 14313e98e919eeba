"""Training on erased words: which batches change, and that devices, order and resuming do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor

from attnlight.batch import UNK, TextBatch
from attnlight.data.erased_words import ErasedWords
from attnlight.datamodules import CorpusDataModule
from attnlight.errors import InputError
from attnlight.tasks import AdversarialVariant, GuidedVariant, SeedVariant, UniformVariant
from attnlight.tasks.attention import AttentionTask
from tests.bases import SMALL, Planted, classifier, save_base, trainer
from tests.tasks.tagged import corpus as chunks
from tests.tasks.tagged import task_of, written

ALWAYS = ErasedWords(texts=1.0)


def training(
    data: CorpusDataModule, epoch: int = 0, rank: int = 0, world: int = 1
) -> list[TextBatch]:
    """The batches of an epoch of training, as a task gets them."""
    data.trainer = SimpleNamespace(
        training=True,
        current_epoch=epoch,
        global_rank=rank,
        world_size=world,
        lightning_module=None,
    )  # type: ignore[assignment]
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
    return [data.on_before_batch_transfer(batch, 0) for batch in loader]


def texts_of(batches: list[TextBatch]) -> dict[int, tuple[list[int], ...]]:
    """Tokens, evidence and label of each text, by its row."""
    found = {}
    for batch in batches:
        assert batch.labels is not None
        for row, index in enumerate(batch.index.tolist()):
            real = batch.mask[row]
            found[index] = (
                batch.tokens[row][real].tolist(),
                batch.extras["evidence"][row][real].tolist(),
                [int(batch.labels[row])],
            )
    found.pop(-1, None)
    return found


@pytest.mark.parametrize("replacement", ["delete", "unk"])
@pytest.mark.parametrize("in_sentences", [False, True])
def test_batches_are_those_of_a_loop_over_texts(in_sentences: bool, replacement: Any) -> None:
    rule = ErasedWords(replacement=replacement)
    data = Planted(in_sentences, erased_words=rule, seed=4)
    plain = texts_of([Planted().dataset("train")[list(range(61))]])
    expected, changed = {}, 0
    for index, (tokens, evidence, label) in plain.items():
        every = torch.ones(1, len(tokens), dtype=torch.bool)
        gone = rule.draw(every, torch.tensor([index]), 2, 4)[0].tolist()
        changed += any(gone)
        if replacement == "delete":
            pairs = [
                pair
                for pair, out in zip(zip(tokens, evidence, strict=True), gone, strict=True)
                if not out
            ]
        else:
            pairs = [
                (UNK, 0) if out else pair
                for pair, out in zip(zip(tokens, evidence, strict=True), gone, strict=True)
            ]
        expected[index] = ([t for t, _ in pairs], [e for _, e in pairs], label)
    assert 15 < changed < 46
    assert texts_of(training(data, epoch=2)) == expected
    assert (
        texts_of(training(Planted(in_sentences, erased_words=rule, seed=4, batch_size=1), epoch=2))
        == expected
    )
    assert texts_of(training(data, epoch=3)) != expected
    ranks = [training(data, 2, rank, 2) for rank in range(2)]
    assert texts_of(ranks[0] + ranks[1]) == expected


def test_whole_words_are_erased_with_all_their_tokens() -> None:
    data = Planted(in_sentences=True, erased_words=ErasedWords(texts=1.0, share=0.5))
    data.dataset("train")
    data.whole_words = True  # each of the four tokens of a sentence
    plain = Planted(in_sentences=True).dataset("train")
    for batch in training(data):
        for row, index in enumerate(batch.index.tolist()):
            before = plain[[index]]
            parts = [word[word > 0].tolist() for word in before.tokens[0] if word.any()]
            left = [word[word > 0].tolist() for word in batch.tokens[row] if word.any()]
            assert len(left) == len(parts) - len(parts) // 2
            assert [part for part in parts if part in left] == left


class Read(pl.Callback):
    """The number of words that each stage reads of each text."""

    def __init__(self) -> None:
        self.words: dict[str, dict[int, int]] = {}

    def _read(self, stage: str) -> Callable[..., None]:
        def read(trainer: pl.Trainer, module: Any, *arguments: Any) -> None:
            batch = next(given for given in arguments if isinstance(given, TextBatch))
            name = "sanity" if trainer.sanity_checking else f"{stage}{trainer.current_epoch}"
            counts = dict(
                zip(batch.index.tolist(), batch.mask.flatten(1).sum(-1).tolist(), strict=True)
            )
            self.words.setdefault(name, {}).update(counts)

        return read

    def __getattribute__(self, name: str) -> Any:
        stages = {
            f"on_{stage}_batch_start": stage for stage in ("train", "validation", "test", "predict")
        }
        return self._read(stages[name]) if name in stages else super().__getattribute__(name)


def task_for(data: CorpusDataModule, **options: Any) -> AttentionTask:
    torch.manual_seed(0)
    return classifier(data.spec, encoder="bilstm", dropout=0.3, **(SMALL | options))


def test_only_training_loses_words(tmp_path: Path) -> None:
    data, read = Planted(erased_words=ALWAYS), Read()
    started = trainer(tmp_path, read, max_epochs=2, num_sanity_val_steps=9)
    task = task_for(data)
    started.fit(task, data)
    started.test(task, data, verbose=False)
    started.predict(task, data, return_predictions=False)
    for name, found in read.words.items():
        split = {"train": "train", "sanit": "validation", "valid": "validation"}.get(
            name[:5], "test"
        )
        texts = data.dataset(split)
        whole = dict(zip(texts.index.tolist(), texts.lengths.tolist(), strict=True))
        assert found.keys() == whole.keys()
        assert (found == whole) == (split != "train"), name
        assert all(0 < count <= whole[index] for index, count in found.items())
    assert {"train0", "train1", "sanity", "validation0", "validation1"} <= read.words.keys()
    assert len(read.words) == 7
    assert read.words["train0"] != read.words["train1"]
    assert data.label_counts == Planted().label_counts
    assert data.fingerprint == Planted().fingerprint


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    def weights(task: AttentionTask) -> dict[str, Tensor]:
        return task.model.state_dict()

    def fitted(epochs: int, start: Path | None = None, **erased: Any) -> AttentionTask:
        data = Planted(erased_words=ErasedWords(**erased) if erased else None)
        pl.seed_everything(3, verbose=False)
        task = task_for(data)
        started = trainer(tmp_path, max_epochs=epochs)
        started.fit(task, data, ckpt_path=start)
        started.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return task

    whole = weights(fitted(3, texts=0.9))
    fitted(2, texts=0.9)
    resumed = weights(fitted(3, tmp_path / "2.ckpt", texts=0.9))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    plain = weights(fitted(3))
    assert any(not torch.equal(whole[name], plain[name]) for name in whole)


def test_taggers_keep_the_tokens_that_they_predict(tmp_path: Path) -> None:
    folder = written(tmp_path / "chunks", train=12, test=4)
    with pytest.raises(InputError, match="whose tags are predicted: set its replacement to unk"):
        chunks(folder, erased_words=ErasedWords())
    data = chunks(folder, erased_words=ErasedWords(texts=1.0, share=0.5, replacement="unk"))
    plain = {int(index): row for row, index in enumerate(data.dataset("train").index)}
    for batch in training(data):
        assert batch.labels is not None
        for row, index in enumerate(batch.index.tolist()):
            before = data.dataset("train")[[plain[index]]]
            assert before.labels is not None
            size = int(before.mask.sum())
            assert torch.equal(batch.labels[row, :size], before.labels[0])
            changed = batch.tokens[row, :size] != before.tokens[0]
            assert int((batch.tokens[row, :size] == UNK).sum()) >= size // 2 >= int(changed.sum())
            assert (batch.extras["pos"][row, :size][changed] == 0).all()
    trainer(tmp_path, max_epochs=1).fit(task_of(data), data)


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        (AdversarialVariant, {"lambda_": 0.1}, True),
        (GuidedVariant, {}, True),
        (GuidedVariant, {"guide": "uniform"}, False),
        (SeedVariant, {}, False),
        (UniformVariant, {}, False),
    ],
)
@pytest.mark.parametrize("replacement", ["delete", "unk"])
def test_variants_that_read_a_base_of_complete_texts_are_refused(
    tmp_path: Path, kind: Any, options: dict[str, Any], refused: bool, replacement: Any
) -> None:
    data = Planted(erased_words=ErasedWords(replacement=replacement))
    base = save_base(tmp_path / "base.ckpt", data)
    variant, started = kind(data.spec, str(base), **options), trainer(tmp_path, max_steps=2)
    if not refused:
        started.fit(variant, data)
        return
    with pytest.raises(
        InputError, match=f"{kind.__name__} is trained on .* leave erased_words out"
    ):
        started.fit(variant, data)

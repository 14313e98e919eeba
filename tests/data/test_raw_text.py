"""What a checkpoint knows of its corpus: raw text is read as the corpus was."""

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from attnlight.batch import UNK
from attnlight.data.raw_text import RawText
from attnlight.datamodules import CorpusDataModule, PlantedEvidence, TextDataModule
from attnlight.storage.checkpoint_file import CHECKPOINT_KEY
from attnlight.storage.checkpoints import AtomicCheckpointIO
from attnlight.tasks import AttentionClassifier
from tests.bases import classifier
from tests.data.local import write_corpus

TEXTS = [
    "Dr. Who is good. I like it! Bad plot...",
    "",
    "  \n ",
    "no final stop",
    "One line\nand more.\n\nA title\n\nBody 😀 text. Good",
    "Bad! " * 9,
    "Worse. A sentence of far more than six words, that is, a long one.",
]
FORMS = ["none", "nested", "flat"]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    columns = {"text": TEXTS, "label": [1, 0, 1, 0, 1, 0, 0]}
    return write_corpus(tmp_path / "corpus", ["neg", "pos"], train=columns, test=columns)


def corpus(texts: Path, form: str, **options: Any) -> TextDataModule:
    return TextDataModule(
        path=str(texts),
        sentences=form,  # type: ignore[arg-type]
        boundary_tokens=False,
        splitting="punctuation",
        validation="test",
        cache_dir=str(texts.parent / "cache"),
        **options,
    )


def task_of(data: CorpusDataModule, **options: Any) -> AttentionClassifier:
    sizes = {"embedding_size": 6, "hidden_size": 3, "encoder": "bigru"}
    return classifier(data.spec, hierarchical=data.nested, **(sizes | options))


def trained(data: CorpusDataModule, path: Path) -> AttentionClassifier:
    """A task that has seen one batch, saved to the path."""
    torch.manual_seed(0)
    task = task_of(data)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_train_batches=1,
        limit_val_batches=0,
        max_epochs=1,
        plugins=[AtomicCheckpointIO()],
    )
    task.raw = RawText.of_corpus(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(workers|logging interval)")
        trainer.fit(task, datamodule=data)
    trainer.save_checkpoint(path)
    return task


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cap_test", [False, True])
def test_raw_text_is_read_as_the_test_split_was(texts: Path, form: str, cap_test: bool) -> None:
    limits: dict[str, Any] = {}
    if form != "none":
        limits = {"max_sentences": 2, "max_sentence_tokens": 6, "cap_test": cap_test}
    elif cap_test:
        limits = {"truncate": 5}
    data = corpus(texts, form, **limits)
    task = task_of(data)
    task.raw = RawText.of_corpus(data)
    batch, expected = task.encode(TEXTS), data.dataset("test")[list(range(len(TEXTS)))]
    assert batch.index.tolist() == list(range(len(TEXTS)))
    assert torch.equal(batch.tokens, expected.tokens)
    assert torch.equal(batch.mask, expected.mask)
    assert batch.tokens.ndim == (3 if form == "nested" else 2)
    for number, text in enumerate(TEXTS):  # alone it is the same text
        alone = task.encode([text])
        assert torch.equal(alone.tokens[alone.mask], batch.tokens[number][batch.mask[number]])
    assert task.encode([""]).tokens.flatten().tolist() == [UNK]


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_reads_raw_text_alone(texts: Path, tmp_path: Path, form: str) -> None:
    data = corpus(texts, form, truncate=9 if form == "none" else None)
    task = trained(data, tmp_path / "last.ckpt")
    loaded = AttentionClassifier.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.raw.sentences == task.raw.sentences
    assert (loaded.raw.sentences is None) == (form == "none")
    expected = data.dataset("test")[list(range(len(TEXTS)))]
    assert torch.equal(loaded.encode(TEXTS).tokens, expected.tokens)
    task.eval()
    with torch.no_grad():
        output = task.model(expected)
    torch.testing.assert_close(loaded.classify(TEXTS), output.probabilities, atol=2e-6, rtol=0)
    torch.testing.assert_close(loaded.read(TEXTS).weights, output.weights, atol=2e-6, rtol=0)


def test_a_planted_text_is_read_in_its_sentences(tmp_path: Path) -> None:
    sizes = {"train_size": 40, "validation_size": 10, "test_size": 12}
    data = PlantedEvidence(sentence_length=4, **sizes)
    trained(data, tmp_path / "last.ckpt")
    loaded = AttentionClassifier.load_from_checkpoint(tmp_path / "last.ckpt")
    dataset = data.dataset("test")
    raw = [" ".join(dataset.words(position)) for position in range(12)]
    assert torch.equal(loaded.encode(raw).tokens, dataset[list(range(12))].tokens)


def test_a_checkpoint_from_before_sentences_reads_flat_texts(texts: Path, tmp_path: Path) -> None:
    data = corpus(texts, "none")
    path = tmp_path / "last.ckpt"
    trained(data, path)
    held = torch.load(path, weights_only=True)
    del held[CHECKPOINT_KEY]["sentences"]
    torch.save(held, path)
    assert AttentionClassifier.load_from_checkpoint(path).encode(TEXTS).tokens.ndim == 2


def test_another_version_of_the_splitter_is_told(
    texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(texts, "nested")
    task = task_of(data)
    task.raw = RawText.of_corpus(data)
    monkeypatch.setattr("attnlight.data.sentences.version", lambda name: "9.9")
    with pytest.warns(UserWarning, match=r"but 9\.9 is installed"):
        assert len(task.encode(TEXTS)) == len(TEXTS)


def test_a_corpus_without_sentences_takes_them_away(texts: Path) -> None:
    task = task_of(corpus(texts, "flat"))
    task.raw = RawText.of_corpus(corpus(texts, "flat"))
    assert task.raw.sentences is not None
    assert task.raw.sentences["nested"] is False
    task.raw = RawText.of_corpus(corpus(texts, "none"))
    assert task.raw.sentences is None

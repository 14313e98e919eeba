"""What a checkpoint knows of its corpus: raw text is read as the corpus was."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.batch import UNK
from attnlight.data.raw_text import RawText
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.tasks import AttentionClassifier
from tests.bases import classifier, save
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
    assert len(task.encode([])) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_reads_raw_text_alone(texts: Path, tmp_path: Path, form: str) -> None:
    data = corpus(texts, form, truncate=9 if form == "none" else None)
    torch.manual_seed(0)
    task = task_of(data)
    task.raw = RawText.of_corpus(data)
    save(task, tmp_path / "last.ckpt")
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

"""Training translation networks: what search finds, logged and restored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

import attnlight
from attnlight.batch import TextBatch
from attnlight.callbacks import Predictions
from attnlight.datamodules import SymbolSequences
from attnlight.tasks import Translator
from attnlight.tasks.translation import SIGNATURE
from tests.bases import trainer

SIZES: dict[str, Any] = {"train_size": 1000, "validation_size": 30, "test_size": 30}
NET = {"embedding_size": 16, "hidden_size": 32, "dropout": 0.0, "teacher_forcing": 1.0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Translator, SymbolSequences, Path]:
    """A network that copies four symbols."""
    folder = tmp_path_factory.mktemp("copy")
    corpus = SymbolSequences(
        symbols=4, max_length=4, batch_size=25, cache_dir=str(folder / "cache"), **SIZES
    )
    corpus.prepare()
    pl.seed_everything(0)
    optimizer: Any = {"name": "adam", "learning_rate": 1e-2}
    task = Translator(corpus.spec, net=NET, optimizer=optimizer)  # type: ignore[arg-type]
    fit = trainer(folder, max_epochs=6)
    fit.fit(task, datamodule=corpus)
    fit.save_checkpoint(folder / "copy.ckpt")
    return task, corpus, folder


def test_a_copy_is_learned_and_found_by_search(
    trained: tuple[Translator, SymbolSequences, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    task, corpus, folder = trained
    logged = trainer(folder).test(task, datamodule=corpus, verbose=False)[0]
    batch = corpus.dataset("test")[[*range(30)]]
    found, right = task.translate(batch), 0
    for place, words in enumerate(found):
        right += words == corpus.dataset("test").words(place)
    assert right > 24
    assert logged["test/exact"] == pytest.approx(right / 30)
    assert logged["test/accuracy"] > 0.9
    assert 60 < logged["test/bleu"] <= 100
    assert f"test/bleu: {SIGNATURE}|torchmetrics:" in capsys.readouterr().out
    assert task.translate(batch, beams=3)[0] == found[0]


def test_a_checkpoint_restores_words_and_search(
    trained: tuple[Translator, SymbolSequences, Path],
) -> None:
    task, corpus, folder = trained
    task.hparams["beams"] = task.beams = 2
    fit = trainer(folder, max_epochs=1)
    fit.strategy.connect(task)
    fit.save_checkpoint(folder / "beams.ckpt")
    task.hparams["beams"] = task.beams = 1
    again = Translator.load_from_checkpoint(folder / "beams.ckpt")
    assert (again.beams, again.problem.name) == (2, "translation")
    batch = corpus.dataset("test")[[0, 1, 2]]
    assert again.translate(batch) == task.translate(batch)
    with torch.no_grad():
        assert torch.equal(again.model.eval()(batch).logits, task.model.eval()(batch).logits)


def test_unknown_words_of_a_target_are_matched_by_none() -> None:
    spec = {"vocab_size": 8, "classes": ["[EOS]", "[UNK]", "a", "b"], "features": {}}
    task = Translator(spec | {"target": "tokens"}, net=NET)  # type: ignore[arg-type]
    assert task._words([2, 1, 3, 0, -100]) == ["a", "[UNK]", "b"]
    assert task._words([2, 1, 0], "?") == ["a", "?"]


# Translations and references, and BLEU of sacrebleu 2.6.0, `BLEU(tokenize="none", smooth_method="none")`,
# whose signature is nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:2.6.0.
TRANSLATIONS = (
    (
        "ein mann in einem blauen hemd steht auf einer leiter und putzt ein fenster .",
        "ein mann in einem blauen hemd steht auf einer leiter und reinigt ein fenster .",
    ),
    ("zwei hunde spielen im schnee .", "zwei hunde spielen zusammen im schnee ."),
    (
        "eine frau liest ein buch , während sie wartet",
        "eine frau liest eine zeitung , während sie auf den bus wartet .",
    ),
    ("kinder", "kinder spielen draußen"),
)
SACREBLEU = 49.54456479764977


def test_bleu_is_that_of_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    words = sorted({word for pair in TRANSLATIONS for text in pair for word in text.split()})
    classes = ["[EOS]", "[UNK]", *words]
    spec = {"vocab_size": 8, "classes": classes, "features": {}, "target": "tokens"}
    task = Translator(spec, net=NET)  # type: ignore[arg-type]

    def numbers(side: int) -> torch.Tensor:
        rows = [[classes.index(w) for w in pair[side].split()] + [0] for pair in TRANSLATIONS]
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[-100] * (longest - len(row))] for row in rows])

    monkeypatch.setattr("attnlight.tasks.translation.translate", lambda *_, **__: numbers(0))
    tokens = torch.full((4, 3), 4)
    batch = TextBatch(torch.arange(4), tokens, tokens > 0, target=numbers(1))
    monkeypatch.setattr(task, "validation_step", lambda *_: {})
    task.test_step(batch, 0)
    assert 100 * task.test_bleu.compute().item() == pytest.approx(SACREBLEU, abs=1e-5)
    assert task.test_exact.compute() == 0
    assert SIGNATURE == "nrefs:1|case:mixed|eff:no|tok:none|smooth:none"


@torch.no_grad()
def test_a_translation_without_an_end_is_cut_alike_in_every_batch() -> None:
    """Beside longer sources, which widen the batch, too."""
    spec = {"vocab_size": 8, "classes": ["[EOS]", "[UNK]", "a", "b"], "features": {}}
    task = Translator(spec | {"target": "tokens"}, net=NET)  # type: ignore[arg-type]
    task.model.decoder.bias[0] = -1e4
    tokens = torch.tensor([[4, 5] + [0] * 38, [6] * 40])
    batch = TextBatch(torch.arange(2), tokens, tokens > 0)
    alone = replace(batch.select(torch.tensor([0])), tokens=tokens[:1, :2], mask=tokens[:1, :2] > 0)
    assert task.translate(alone) == task.translate(batch)[:1]
    assert [len(words) for words in task.translate(batch)] == [100, 100]


def test_a_text_is_explained_by_its_own_translation(
    trained: tuple[Translator, SymbolSequences, Path],
) -> None:
    task, _, _ = trained
    explanations = attnlight.explain(task, ["s1 s0 s2"])
    (words,) = task.translate(task.encode(["s1 s0 s2"]))
    assert words[:2] == ["s1", "s0"]
    assert [each.prediction for each in explanations] == [*words, "[EOS]"]
    before = [" ".join(["…", *words[:step]]) for step in range(len(words) + 1)]
    assert [each.query for each in explanations] == before
    assert all(each.item is None for each in explanations)
    assert all(each.items == ["s1", "s0", "s2"] for each in explanations)
    assert all(sum(each.attention) == pytest.approx(1, abs=1e-5) for each in explanations)


def test_its_own_translation_is_no_label(
    trained: tuple[Translator, SymbolSequences, Path],
) -> None:
    task, _, _ = trained
    results = attnlight.run(task, ["s1 s0 s2", "s3"], [Predictions()])
    assert "label" not in results.table("predictions")

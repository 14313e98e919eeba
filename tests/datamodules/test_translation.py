"""Generated symbols, and tables of texts and their translations with links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from attnlight.callbacks import AlignmentError
from attnlight.datamodules import SymbolSequences, TranslationDataModule
from attnlight.datamodules.translation import read_links
from attnlight.errors import InputError
from attnlight.tasks import Translator
from tests.bases import trainer

SIZES: dict[str, Any] = {"train_size": 300, "validation_size": 20, "test_size": 20}


def symbols(task: Any, cache: Path, **options: Any) -> SymbolSequences:
    drawn = {"symbols": 9, "max_length": 5} | SIZES | options
    return SymbolSequences(task=task, cache_dir=str(cache), batch_size=64, **drawn)


@pytest.mark.parametrize("task", ["copy", "reverse", "flip"])
def test_targets_and_links_of_symbols(task: str, tmp_path: Path) -> None:
    corpus = symbols(task, tmp_path)
    dataset = corpus.dataset("train")
    batch = dataset[[*range(300)]]
    assert batch.target is not None
    assert batch.links is not None
    lengths = set()
    for place in range(300):
        words = dataset.words(place)
        lengths.add(len(words))
        expected = {
            "copy": words,
            "reverse": words[::-1],
            "flip": [w for n in range(0, len(words), 2) for w in words[n : n + 2][::-1]],
        }[task]
        target = batch.target[place]
        names = [corpus.classes[number] for number in target[target >= 0]]
        assert names == [*expected, "[EOS]"]
        for step, row in enumerate(batch.links[place]):
            linked = row.nonzero().flatten().tolist()
            if step >= len(words):
                assert linked == []
                continue
            assert row[linked].tolist() == [2]
            assert words[linked[0]] == names[step]
            order = {"copy": step, "reverse": len(words) - 1 - step}
            assert linked[0] == order.get(task, min(step ^ 1, len(words) - 1))
    assert lengths == {1, 2, 3, 4, 5}
    again = symbols(task, tmp_path / "other").dataset("train")[[*range(300)]]
    assert torch.equal(again.target, batch.target)
    assert not torch.equal(
        symbols(task, tmp_path, data_seed=1).dataset("train")[[0, 1, 2]].tokens,
        dataset[[0, 1, 2]].tokens,
    )


def test_symbols_refuse_what_cannot_be_drawn(tmp_path: Path) -> None:
    for options, said in (
        ({"symbols": 1}, "symbols is 1; it must be at least 2"),
        ({"min_length": 6}, "max_length is 5; it must be at least 6"),
        ({"test_size": 0}, "test_size is 0; it must be at least 1"),
    ):
        with pytest.raises(InputError, match=said):
            symbols("copy", tmp_path, **options)
    with pytest.raises(InputError, match="expected copy, reverse or flip"):
        symbols("mirror", tmp_path)


ROWS = [
    ("Ein Hund schläft", "A dog sleeps", "0-0 1-1 2-2"),
    ("Das ist gut .", "That is good", "0-0 1?1 2-2 7-1"),
    ("Ein Hund", "A", "0-0 1?0"),
    ("", "nothing", ""),
    ("nichts", "  ", "0-0"),
]


def table(folder: Path, rows: Any = ROWS) -> Path:
    for split in ("train", "validation", "test"):
        frame = pd.DataFrame(rows, columns=["de", "en", "links"])
        frame.to_csv(folder / f"{split}.csv", index=False)
    return folder


def corpus_of(folder: Path, **options: Any) -> TranslationDataModule:
    named: dict[str, Any] = {"source": "de", "target": "en", "alignment": "links"} | options
    return TranslationDataModule(
        path=str(folder), cache_dir=str(folder / "cache"), batch_size=8, **named
    )


def test_each_side_has_its_vocabulary_and_links_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = corpus_of(table(tmp_path))
    described = json.loads((corpus.prepare() / "corpus.json").read_text())
    said = "train 3 (2 dropped; 1 links past the end of a side, dropped), validation 3 (2 dropped"
    assert said in capsys.readouterr().err
    counts = described["splits"]["train"]
    assert (counts["rows"], counts["dropped_by"], counts["links_dropped"]) == (3, {"empty": 2}, 1)
    assert corpus.classes[:2] == ["[EOS]", "[UNK]"]
    assert sorted(corpus.classes[2:]) == ["a", "dog", "good", "is", "sleeps", "that"]
    assert "hund" in corpus.parsed_tokenizer.get_vocab()
    assert "dog" not in corpus.parsed_tokenizer.get_vocab()
    batch = corpus.dataset("test")[[0, 1, 2]]
    assert batch.target is not None
    assert batch.links is not None
    named = [[corpus.classes[n] for n in row[row >= 0]] for row in batch.target]
    assert named == [
        ["a", "dog", "sleeps", "[EOS]"],
        ["that", "is", "good", "[EOS]"],
        ["a", "[EOS]"],
    ]
    assert batch.links[1].tolist() == [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    assert batch.links[2, 0].tolist() == [2, 1, 0, 0]
    assert batch.target.shape == batch.links.shape[:2]


def test_rare_words_of_the_target_are_one_class(tmp_path: Path) -> None:
    corpus = corpus_of(table(tmp_path), min_document_frequency=2)
    assert corpus.classes == ["[EOS]", "[UNK]", "a"]
    batch = corpus.dataset("train")[[0]]
    assert batch.target is not None
    assert batch.target.tolist() == [[2, 1, 1, 0]]


def test_a_target_vocabulary_of_one_word_is_learned_and_of_none_refused(tmp_path: Path) -> None:
    rows = [("Ein Hund schläft", "a", "0-0"), ("Das", "a a", "0-0 0-1")] * 4
    with pytest.raises(InputError, match="no word occurs in min_document_frequency = 9"):
        corpus_of(table(tmp_path, rows), min_document_frequency=9).prepare()
    corpus = corpus_of(tmp_path)
    assert corpus.classes == ["[EOS]", "[UNK]", "a"]
    net: Any = {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0, "teacher_forcing": 1.0}
    optimizer: Any = {"name": "adam", "learning_rate": 0.03}
    torch.manual_seed(0)
    task = Translator(corpus.spec, net=net, optimizer=optimizer)
    fit = trainer(tmp_path, AlignmentError(methods=["attention"]), max_epochs=30)
    fit.fit(task, datamodule=corpus)
    logged = fit.test(task, datamodule=corpus, verbose=False)[0]
    assert (logged["test/exact"], logged["test/accuracy"]) == (1.0, 1.0)
    assert task.translate(corpus.dataset("test")[[0, 1]]) == [["a"], ["a", "a"]]


def test_bad_tables(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"row 0 of split train of .* has the link '0_0'; expected i-j"
    ):
        corpus_of(table(tmp_path, [("ein", "a", "0_0")])).prepare()
    with pytest.raises(InputError, match="english"):
        corpus_of(table(tmp_path), target="english").prepare()
    empty = corpus_of(table(tmp_path, [("", "a", ""), ("b", "", "")]))
    with pytest.raises(InputError, match="rows with an empty side"):
        empty.prepare()


def test_read_links() -> None:
    assert read_links("0-1 2?0 5-0 0-9", 3, 2, "row 0") == ([1, 0, 2, 0, 2, 1], 2)


def test_english_to_german(real: Path, tmp_path: Path) -> None:
    corpus = TranslationDataModule(
        path="./deceptive_en_de",
        local="deceptive_en_de",
        alignment="alignment",
        subset={"train": 500},
        cache_dir=str(tmp_path),
    )
    batch = corpus.dataset("validation")[[0]]
    assert corpus.dataset("validation").words(0)[:4] == ["A", "group", "of", "men"]
    assert batch.links is not None
    linked = [tuple(pair) for pair in batch.links[0].nonzero().tolist()]
    assert linked == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 5), (5, 6), (6, 7), (7, 7), (8, 9)]

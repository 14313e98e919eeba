"""Marks of tokens in one's own corpora, by words or columns, against loops over the files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.callbacks import ImpermissibleMass
from attnlight.data.raw_text import RawText
from attnlight.datamodules import ChunkingDataModule, PairDataModule, TextDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from attnlight.tasks.objectives import deceive
from attnlight.tasks.options import Objective
from tests.bases import SMALL, classifier, trainer
from tests.data.local import write_corpus
from tests.pairs import pair_task
from tests.tasks.tagged import task_of

LIST = ["She", "he", "unseen"]  # of a corpus in lower case; the last one is in no text
COLUMN = "impermissible"
WORDS = {COLUMN: LIST}
# Sentences by text; the first has every kind of text: both words, one, none, nothing else.
TEXTS = [
    ["He met the nurse .", "Then she left ."],
    ["The doctor met her .", "SHE sat .", "It was late ."],
    ["Nobody came .", "The nurse left ."],
    ["He !", "She !"],
    ["The nurse sat .", "The doctor met he ."],
    ["A doctor left early .", "She came ."],
]
SIZES = {"train": 24, "validation": 9, "test": 13}
Change = Callable[[list[int]], list[int]]


def is_marked(word: str) -> bool:
    return word.lower() in {"she", "he"}


def texts(split: str) -> list[list[str]]:
    """The sentences of each text of a split; test has words that training has not."""
    found = [TEXTS[row % len(TEXTS)] for row in range(SIZES[split])]
    return [*found[:-1], ["Late she ran .", "Unknown he !"]] if split == "test" else found


def words_of(text: list[str]) -> list[str]:
    return " ".join(text).split()


def tables(folder: Path, change: Change = lambda marks: marks) -> Path:
    """A parquet file for each split, with texts, and lists of tokens and of marks."""
    columns = {}
    for split in SIZES:
        tokens = list(map(words_of, texts(split)))
        columns[split] = {
            "text": [" ".join(words) for words in tokens],
            "tokens": tokens,
            COLUMN: [change([int(is_marked(word)) for word in words]) for words in tokens],
            "query": ["who left ?"] * len(tokens),
            "label": [row % 2 for row in range(len(tokens))],
        }
    return write_corpus(folder, ["neg", "pos"], **columns)


def conll(folder: Path, change: Change = lambda marks: marks) -> Path:
    """A column file for each split: word, mark, and a tag that is B-NP for every second word."""
    folder.mkdir(exist_ok=True)
    for split in SIZES:
        blocks = []
        for words in map(words_of, texts(split)):
            rows = zip(words, change([int(is_marked(word)) for word in words]), strict=True)
            tagged = (f"{w} {m} {'B-NP' if i % 2 else 'O'}" for i, (w, m) in enumerate(rows))
            blocks.append("\n".join(tagged))
        (folder / f"{split}.txt").write_text("\n\n".join(blocks) + "\n")
    return folder


FILES = {split: f"{split}.txt" for split in SIZES}
CHUNKS: dict[str, Any] = {"word_column": 0, "label_column": -1, "pos_column": None, **FILES}
# The kind of datamodule and its options.
KINDS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "classifier": (TextDataModule, {}),
    "sentences": (TextDataModule, {"sentences": "nested", "boundary_tokens": False}),
    "pairs": (PairDataModule, {"passage": "text"}),
    "tagger": (ChunkingDataModule, {"revision": None, **CHUNKS}),
}
BOTH = pytest.mark.parametrize("by", ["words", "column"])
EACH = pytest.mark.parametrize("name", list(KINDS))


def corpus(
    name: str, by: str, folder: Path, change: Change = lambda marks: marks, **options: Any
) -> CorpusDataModule:
    """A corpus whose tokens are marked by words or by a column of numbers."""
    (kind, given), tagger = KINDS[name], name == "tagger"
    files = (conll if tagger else tables)(folder / "c", change)
    marks = {"mark_columns": {COLUMN: 1}} if tagger else {"tokens": "tokens", "extras": [COLUMN]}
    given = given | ({"marks": WORDS} if by == "words" else marks)
    given |= {"batch_size": 4, "eval_batch_size": 4, "cache_dir": str(folder / "cache")}
    data: CorpusDataModule = kind(str(files), **(given | options))
    return data


def task(name: str, data: CorpusDataModule, **options: Any) -> AttentionTask:
    if name == "tagger":
        return task_of(data, **options)
    if name == "pairs":
        return pair_task(data.spec, **options)
    return classifier(data.spec, hierarchical=name == "sentences", **SMALL, **options)


def items_of(name: str, text: list[str]) -> list[bool]:
    """Whether each item that attention weighs is marked."""
    if name == "sentences":
        return [any(map(is_marked, sentence.split())) for sentence in text]
    return list(map(is_marked, words_of(text)))


@EACH
@BOTH
def test_tokens_are_marked_as_in_the_files(name: str, by: str, tmp_path: Path) -> None:
    data = corpus(name, by, tmp_path)
    marked = 0
    for split in SIZES:
        dataset = data.dataset(split)
        assert dataset.extras == [COLUMN]
        batch = dataset[list(range(len(dataset)))]
        assert batch.extras[COLUMN].shape == batch.tokens.shape
        for text, row in enumerate(dataset.index.tolist()):
            there = batch.attendable()[text]
            expected = list(map(is_marked, words_of(texts(split)[row])))
            assert (batch.extras[COLUMN][text][there] > 0).tolist() == expected
            assert not batch.extras[COLUMN][text][~there].any()
            marked += sum(expected)
    assert marked > 40


@EACH
def test_deceptive_attention_and_its_mass(name: str, tmp_path: Path) -> None:
    data = corpus(name, "column" if name in ("pairs", "tagger") else "words", tmp_path)
    torch.manual_seed(0)
    trained = task(name, data, objective={"lambda_deceive": 1.0})
    run = trainer(tmp_path, ImpermissibleMass(figures=False), max_epochs=1)
    run.fit(trained, data)
    assert float(run.callback_metrics["train/deceive"]) > 0
    run.test(trained, data, verbose=False)
    record = read_record(tmp_path / "records/test/impermissible_mass.parquet").columns
    dataset = data.dataset("test")
    found, undefined = 0, 0
    for text in range(len(dataset)):  # each alone, without padding
        batch = dataset[[text]]
        with torch.no_grad():
            output = trained.model.eval()(batch)
        items = items_of(name, texts("test")[int(dataset.index[text])])
        penalty, _ = deceive(output, batch, Objective(1.0))
        for row, (index, position) in enumerate(output.rows.tolist()):
            place = (record["index"] == index) & (record["position"] == position)
            weights = output.weights[row][:, output.mask[row]].numpy()
            mass = [sum(head[items].tolist()) for head in weights]
            assert place.sum() == 1
            if not any(items):
                assert np.isnan(record["mass"][place]).all()
                undefined += 1
                continue
            assert float(record["mass"][place][0]) == pytest.approx(np.mean(mass), abs=1e-5)
            assert float(record["max_mass"][place][0]) == pytest.approx(max(mass), abs=1e-5)
            expected = 0 if all(items) else np.mean([-np.log(1 - value) for value in mass])
            assert float(penalty[row]) == pytest.approx(expected, abs=1e-4)
            found += 1
    assert len(record["index"]) == found + undefined
    assert found > 8
    assert undefined


@EACH
def test_columns_by_words_change_only_the_fingerprint(name: str, tmp_path: Path) -> None:
    marked, plain, rare = (
        corpus(name, "words", tmp_path, **options)
        for options in ({}, {"marks": None}, {"min_document_frequency": 17})
    )
    assert plain.fingerprint == corpus(name, "words", tmp_path, marks={}).fingerprint
    assert plain.fingerprint != marked.fingerprint
    assert "marks" not in plain.recipe()
    assert plain.tokenizer_json == marked.tokenizer_json
    assert '"she"' in marked.tokenizer_json
    assert '"she"' not in rare.tokenizer_json
    for split in SIZES:
        before, after = plain.dataset(split).table, marked.dataset(split).table
        assert after.select(before.column_names).equals(before)
        assert set(after.column_names) - set(before.column_names) == {COLUMN}
        assert rare.dataset(split).table[COLUMN].equals(after[COLUMN])  # also of unknown words


def test_marks_for_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_corpus(tmp_path / "other", train={"text": ["a b", "c"], "label": ["neg", "pos"]})
    trained = TextDataModule(str(other), test=None, cache_dir=str(tmp_path / "cache"))
    encoding = RawText(trained.tokenizer_json, ["neg", "pos"], "v2-0")
    data, plain = corpus("classifier", "words", tmp_path), corpus("classifier", "words", tmp_path)
    plain.prepare()
    said = capsys.readouterr().err
    for split, size in SIZES.items():
        count = sum(any(map(is_marked, words_of(text))) for text in texts(split))
        assert re.search(rf"{split} {size} \({count} with impermissible tokens", said)
    data.evaluate_as(encoding, "mine")
    assert data.dataset("test").table[COLUMN].equals(plain.dataset("test").table[COLUMN])
    assert data.unknown_share("test") > 0.95
    assert data.fingerprint != plain.fingerprint


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({COLUMN: ["shee"]}, r"none of the words of marks.impermissible \(shee\).* mean 'she'"),
    ({COLUMN: ["she", "she said"]}, "marks.impermissible has 'she said', which is 2 tokens"),
    ({COLUMN: [" "]}, "marks.impermissible has ' ', which is 0 tokens"),
    ({COLUMN: []}, r"marks.impermissible is \[\]; expected a list of words"),
    ({COLUMN: "she"}, "marks.impermissible is 'she'; expected a list of words"),
    ({"tokens": ["she"]}, "marks names tokens, which is a reserved column"),
]


@EACH
def test_mistakes_in_lists(name: str, tmp_path: Path) -> None:
    for marks, sentence in MISTAKES if name == "classifier" else MISTAKES[:1]:
        with pytest.raises(InputError, match=sentence) as caught:
            corpus(name, "words", tmp_path, marks=marks).prepare()
        assert "\n" not in str(caught.value)


def fitted(name: str, data: CorpusDataModule, folder: Path) -> None:
    trained = task(name, data, objective={"lambda_deceive": 1.0})
    trainer(folder, max_epochs=1).fit(trained, data)


@EACH
def test_a_corpus_without_marks_is_refused(name: str, tmp_path: Path) -> None:
    data = corpus(name, "words", tmp_path, marks={"impermisible": LIST})
    with pytest.raises(InputError, match=r"column impermissible along.* mean 'impermisible'"):
        fitted(name, data, tmp_path)
    data = corpus(name, "words", tmp_path, marks=None)
    with pytest.raises(InputError, match=r"`marks`.*columns of this one: none"):
        fitted(name, data, tmp_path)
    run = trainer(tmp_path, ImpermissibleMass())
    with pytest.raises(InputError, match=r"impermissible_mass needs.*`impermissible`.*`marks`"):
        run.test(task(name, data), data, verbose=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mark_columns": {COLUMN: 0}, "word_column": 1}, "column 0 of .* no lists of numbers"),
        ({"mark_columns": {COLUMN: 0}}, "pos_column and mark_columns must be different columns"),
        ({"mark_columns": {COLUMN: "marks"}}, "mark_columns must all be names, or, in column f"),
        ({"mark_columns": {"tags": 1}}, "mark_columns names tags, which is a reserved column"),
        ({"mark_columns": {"case": 1}}, "mark_columns names case, which is a reserved column"),
        ({"marks": WORDS}, r"marks names impermissible, which .* has already"),
    ],
)
def test_columns_that_are_no_marks(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        corpus("tagger", "column", tmp_path, case=True, **options).prepare()


def test_marks_of_names_and_parquet_columns_of_a_tagger(tmp_path: Path) -> None:
    rows = {"tokens": [["a", "b"], ["c"]], "tags": [["O", "B-NP"], ["O"]]}
    columns = rows | {COLUMN: [[True, False], [True]]}  # type: ignore[dict-item]
    folder = write_corpus(tmp_path / "c", train=columns, validation=columns, test=columns)
    options: dict[str, Any] = {"label_column": "tags", "revision": None, "sentence_chunk": "NP"}
    for target, expected in (("tokens", [[1, 0], [1, 0]]), ("sentence", [[0, 1, 0], [0, 1, 0]])):
        marks = {"hidden": COLUMN}
        data = ChunkingDataModule(str(folder), target=target, mark_columns=marks, **options)
        assert data.dataset("test")[[0, 1]].extras["hidden"].tolist() == expected

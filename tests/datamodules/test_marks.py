"""Marks of tokens in corpora of one's own, from lists of words and from columns of numbers.

Texts, texts in sentences, pairs and tagged sentences, each by a few files: what is marked, what the
penalty and the test make of it, and what is refused, against loops over the files.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.callbacks import ImpermissibleMass
from attnlight.data.encoding import Encoding
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


def is_marked(word: str) -> bool:
    return word.lower() in {"she", "he"}


def texts(split: str) -> list[list[str]]:
    """The sentences of each text of a split; test has words that training has not."""
    found = [TEXTS[row % len(TEXTS)] for row in range(SIZES[split])]
    return [*found[:-1], ["Late she ran .", "Unknown he !"]] if split == "test" else found


@dataclass
class Kind:
    """A kind of corpus: how it is made from files, its task, and the marks of its items."""

    by_words: Callable[..., CorpusDataModule]
    by_column: Callable[..., CorpusDataModule]
    task: Callable[..., AttentionTask]

    @staticmethod
    def items(text: list[str]) -> list[bool]:
        return [is_marked(word) for word in " ".join(text).split()]


class InSentences(Kind):
    @staticmethod
    def items(text: list[str]) -> list[bool]:
        return [any(map(is_marked, sentence.split())) for sentence in text]


def table(folder: Path, passage: str = "text") -> Path:
    """A CSV file for each split, with a query of each text."""
    folder.mkdir(exist_ok=True)
    for split in SIZES:
        with (folder / f"{split}.csv").open("w", newline="") as stream:
            rows = [
                (" ".join(t), "who left ?", ["neg", "pos"][i % 2])
                for i, t in enumerate(texts(split))
            ]
            csv.writer(stream).writerows([(passage, "query", "label"), *rows])
    return folder


def lists(folder: Path, change: Callable[[list[int]], list[int]] = lambda marks: marks) -> Path:
    """A parquet file for each split, with lists of tokens and of marks."""
    columns = {}
    for split in SIZES:
        tokens = [" ".join(text).split() for text in texts(split)]
        columns[split] = {
            "tokens": tokens,
            COLUMN: [change([int(is_marked(word)) for word in words]) for words in tokens],
            "query": ["who left ?"] * len(tokens),
            "label": [row % 2 for row in range(len(tokens))],
        }
    return write_corpus(folder, ["neg", "pos"], **columns)


def conll(folder: Path, change: Callable[[list[int]], list[int]] = lambda marks: marks) -> Path:
    """A column file for each split: word, mark, and a tag that is B-NP for every second word."""
    folder.mkdir(exist_ok=True)
    for split in SIZES:
        blocks = []
        for text in texts(split):
            words = " ".join(text).split()
            marks = change([int(is_marked(word)) for word in words])
            rows = zip(words, marks, strict=True)
            blocks.append(
                "\n".join(f"{w} {m} {'B-NP' if i % 2 else 'O'}" for i, (w, m) in enumerate(rows))
            )
        (folder / f"{split}.txt").write_text("\n\n".join(blocks) + "\n")
    return folder


def of_texts(kind: type[Any], **fixed: Any) -> Callable[..., CorpusDataModule]:
    def made(folder: Path, **options: Any) -> CorpusDataModule:
        common = {"batch_size": 4, "eval_batch_size": 4, "cache_dir": str(folder.parent / "cache")}
        data: CorpusDataModule = kind(str(folder), **(common | fixed | options))
        return data

    return made


SENTENCES = {"sentences": "nested", "boundary_tokens": False, "validation": "validation"}
FILES = {split: f"{split}.txt" for split in SIZES}
CHUNKS = {"word_column": 0, "label_column": -1, "pos_column": None, "revision": None, **FILES}
READY = {"tokens": "tokens", "extras": [COLUMN]}
KINDS = {
    "classifier": Kind(
        of_texts(TextDataModule),
        of_texts(TextDataModule, **READY),
        lambda spec, **o: classifier(spec, **SMALL, **o),
    ),
    "sentences": InSentences(
        of_texts(TextDataModule, **SENTENCES),
        of_texts(TextDataModule, **SENTENCES, **READY),
        lambda spec, **o: classifier(spec, hierarchical=True, **SMALL, **o),
    ),
    "pairs": Kind(
        of_texts(PairDataModule, passage="text"), of_texts(PairDataModule, **READY), pair_task
    ),
    "tagger": Kind(
        of_texts(ChunkingDataModule, **CHUNKS),
        of_texts(ChunkingDataModule, **CHUNKS, mark_columns={COLUMN: 1}),
        lambda spec, **o: task_of(type("Corpus", (), {"spec": spec})(), **o),  # type: ignore[arg-type]
    ),
}
BOTH = pytest.mark.parametrize("by", ["words", "column"])
EACH = pytest.mark.parametrize("name", list(KINDS))


def corpus(name: str, by: str, folder: Path, **options: Any) -> CorpusDataModule:
    kind = KINDS[name]
    if by == "column":
        return kind.by_column((conll if name == "tagger" else lists)(folder / "c"), **options)
    files = (conll if name == "tagger" else table)(folder / "c")
    return kind.by_words(files, **({"marks": WORDS} | options))


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
        for row, text in zip(dataset.index.tolist(), range(len(dataset)), strict=True):
            there = batch.attendable()[text]
            expected = [is_marked(word) for word in " ".join(texts(split)[row]).split()]
            assert (batch.extras[COLUMN][text][there] > 0).tolist() == expected
            assert not batch.extras[COLUMN][text][~there].any()
            marked += sum(expected)
    assert marked > 40


@EACH
@BOTH
def test_deceptive_attention_and_its_mass(name: str, by: str, tmp_path: Path) -> None:
    data = corpus(name, by, tmp_path)
    torch.manual_seed(0)
    task = KINDS[name].task(data.spec, objective={"lambda_deceive": 1.0})
    run = trainer(tmp_path, ImpermissibleMass(figures=False), max_epochs=2)
    run.fit(task, data)
    assert float(run.callback_metrics["train/deceive"]) > 0
    run.test(task, data, verbose=False)
    record = read_record(tmp_path / "records/test/impermissible_mass.parquet").columns
    dataset = data.dataset("test")
    found, undefined = 0, 0
    for text in range(len(dataset)):  # each alone, without padding
        batch = dataset[[text]]
        with torch.no_grad():
            output = task.model.eval()(batch)
        items = KINDS[name].items(texts("test")[int(dataset.index[text])])
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
            if all(items):
                assert float(penalty[row]) == 0
            else:
                expected = np.mean([-np.log(1 - value) for value in mass])
                assert float(penalty[row]) == pytest.approx(expected, abs=1e-4)
            found += 1
    assert len(record["index"]) == found + undefined
    assert found > 8
    assert undefined


@EACH
def test_columns_by_words_change_only_the_fingerprint(name: str, tmp_path: Path) -> None:
    plain = corpus(name, "words", tmp_path, marks=None)
    marked = corpus(name, "words", tmp_path)
    assert plain.fingerprint == corpus(name, "words", tmp_path, marks={}).fingerprint
    assert plain.fingerprint != marked.fingerprint
    assert "marks" not in plain.recipe()
    assert plain.tokenizer_json == marked.tokenizer_json
    for split in SIZES:
        before, after = plain.dataset(split).table, marked.dataset(split).table
        assert after.select(before.column_names).equals(before)
        assert set(after.column_names) - set(before.column_names) == {COLUMN}


@EACH
def test_words_outside_the_vocabulary_are_marked(name: str, tmp_path: Path) -> None:
    known = corpus(name, "words", tmp_path)
    unknown = corpus(name, "words", tmp_path, min_document_frequency=17)
    vocabulary = unknown.tokenizer_json
    assert '"she"' in known.tokenizer_json
    assert '"she"' not in vocabulary
    for split in SIZES:
        columns = [data.dataset(split).table[COLUMN] for data in (known, unknown)]
        assert columns[0].equals(columns[1])


def test_a_corpus_read_for_another_model_is_marked(tmp_path: Path) -> None:
    other = write_corpus(tmp_path / "other", train={"text": ["a b", "c"], "label": ["neg", "pos"]})
    trained = TextDataModule(str(other), test=None, cache_dir=str(tmp_path / "cache"))
    encoding = Encoding("v2-0", trained.tokenizer_json, ("neg", "pos"))
    data, plain = corpus("classifier", "words", tmp_path), corpus("classifier", "words", tmp_path)
    data.evaluate_as(encoding, "mine")
    assert data.dataset("test").table[COLUMN].equals(plain.dataset("test").table[COLUMN])
    assert data.unknown_share("test") > 0.95
    assert data.fingerprint != plain.fingerprint


def test_counts_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus("classifier", "words", tmp_path).prepare()
    said = capsys.readouterr().err
    counts = {s: sum(any(map(is_marked, " ".join(t).split())) for t in texts(s)) for s in SIZES}
    for split, size in SIZES.items():
        assert re.search(rf"{split} {size} \({counts[split]} with impermissible tokens", said)


def mistakes() -> Iterator[tuple[dict[str, Any], str]]:
    yield {COLUMN: ["shee"]}, r"none of the words of marks.impermissible \(shee\).* mean 'she'"
    yield {COLUMN: ["she", "she said"]}, "marks.impermissible has 'she said', which is 2 tokens"
    yield {COLUMN: [" "]}, "marks.impermissible has ' ', which is 0 tokens"
    yield {COLUMN: []}, r"marks.impermissible is \[\]; expected a list of words"
    yield {COLUMN: "she"}, "marks.impermissible is 'she'; expected a list of words"
    yield {"tokens": ["she"]}, "marks names tokens, which is a reserved column"


@EACH
@pytest.mark.parametrize(("marks", "sentence"), list(mistakes()))
def test_mistakes_in_lists(name: str, marks: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        corpus(name, "words", tmp_path, marks=marks).prepare()
    assert "\n" not in str(caught.value)


def fitted(name: str, data: CorpusDataModule, folder: Path) -> None:
    task = KINDS[name].task(data.spec, objective={"lambda_deceive": 1.0})
    trainer(folder, max_epochs=1).fit(task, data)


@EACH
def test_a_corpus_without_marks_is_refused(name: str, tmp_path: Path) -> None:
    data = corpus(name, "words", tmp_path, marks={"impermisible": LIST})
    with pytest.raises(
        InputError, match=r"column impermissible along.*did you mean 'impermisible'"
    ):
        fitted(name, data, tmp_path)
    data = corpus(name, "words", tmp_path, marks=None)
    with pytest.raises(InputError, match=r"`marks`.*columns of this one: none"):
        fitted(name, data, tmp_path)
    task, run = KINDS[name].task(data.spec), trainer(tmp_path, ImpermissibleMass())
    with pytest.raises(InputError, match=r"impermissible_mass needs.*`impermissible`.*`marks`"):
        run.test(task, data, verbose=False)


@EACH
@BOTH
@pytest.mark.parametrize("mark", [0, 1])
def test_everything_or_nothing_is_marked(name: str, by: str, mark: int, tmp_path: Path) -> None:
    vocabulary = {word for text in [*TEXTS, *texts("test")] for word in " ".join(text).split()}
    if by == "words":
        words = sorted(vocabulary) if mark else ["unknown"]  # in a test text alone
        data = corpus(name, by, tmp_path, marks={COLUMN: words})
    else:
        write = conll if name == "tagger" else lists
        data = KINDS[name].by_column(write(tmp_path / "c", lambda marks: [mark] * len(marks)))
    with pytest.raises(
        InputError, match="in each of the 24 training texts the column impermissible"
    ):
        fitted(name, data, tmp_path)


@EACH
def test_a_column_of_another_length(name: str, tmp_path: Path) -> None:
    if name == "tagger":
        rows = {"tokens": [["a", "b"]], "tags": [["O", "B-NP"]], COLUMN: [[1]]}
        write_corpus(tmp_path / "c", train=rows, test=rows)
        data: CorpusDataModule = ChunkingDataModule(
            str(tmp_path / "c"), None, None, None, "tokens", "tags", None, {COLUMN: COLUMN}
        )
    else:
        data = KINDS[name].by_column(lists(tmp_path / "c", lambda marks: marks[1:]))
    with pytest.raises(InputError, match=r"impermissible must have a (value|number) for each"):
        data.prepare()


def test_columns_of_a_tagger_that_are_no_marks(tmp_path: Path) -> None:
    files = conll(tmp_path / "c")
    made = KINDS["tagger"].by_column
    with pytest.raises(InputError, match=r"column 0 of .* holds no lists of numbers"):
        made(files, mark_columns={COLUMN: 0}, word_column=1).prepare()
    for columns, sentence in (
        ({COLUMN: 0}, "pos_column and mark_columns must be different columns"),
        ({COLUMN: "marks"}, "mark_columns must all be names, or, in column files, numbers"),
        ({"tags": 1}, "mark_columns names tags, which is a reserved column"),
        ({"case": 1}, "mark_columns names case, which is a reserved column"),
    ):
        with pytest.raises(InputError, match=sentence):
            made(files, mark_columns=columns, case=True)
    with pytest.raises(InputError, match=r"marks names impermissible, which .* has already"):
        made(files, marks=WORDS).prepare()


def test_marks_of_names_and_parquet_columns_of_a_tagger(tmp_path: Path) -> None:
    rows = {
        "tokens": [["a", "b"], ["c"]],
        "tags": [["O", "B-NP"], ["O"]],
        COLUMN: [[True, False], [True]],
    }
    write_corpus(tmp_path / "c", train=rows, validation=rows, test=rows)
    options: dict[str, Any] = {"label_column": "tags", "pos_column": None, "revision": None}
    made = of_texts(ChunkingDataModule, **options, mark_columns={"hidden": COLUMN})
    for target, expected in (("tokens", [[1, 0], [1, 0]]), ("sentence", [[0, 1, 0], [0, 1, 0]])):
        data = made(tmp_path / "c", target=target, sentence_chunk="NP")
        assert data.dataset("test")[[0, 1]].extras["hidden"].tolist() == expected

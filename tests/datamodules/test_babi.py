import re
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import jsonargparse
import numpy as np
import pyarrow.parquet
import pytest
import yaml
from tokenizers import Tokenizer

from attnlight.__main__ import main
from attnlight.batch import BOS, EOS
from attnlight.data.babi import PLACES, WORDS, BabiTask, Question, generate_questions
from attnlight.data.dataset import TokenDataset
from attnlight.data.encoding import Encoding
from attnlight.data.sources import Source
from attnlight.datamodules import BabiStories, CorpusDataModule, PairDataModule
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from tests.commands import CONFIGS, CPU, QUIET
from tests.data.local import write_corpus

TASKS: tuple[BabiTask, ...] = (1, 2, 3)
SPLITS = ("train", "validation", "test")
COLUMNS = ("story", "question", "answer", "supporting_ids")
SIZES = {"train_size": 400, "validation_size": 53, "test_size": 101}


def questions_of(corpora: Path, task: BabiTask) -> Source:
    return Source(path=str(corpora / f"babi_qa{task}"), split="train+test")


def real_questions(corpora: Path, task: BabiTask) -> list[Question]:
    """All 2,000, the training split first."""
    folder = corpora / f"babi_qa{task}" / "data"
    tables = [pyarrow.parquet.read_table(file) for file in sorted(folder.glob("*"), reverse=True)]
    rows = pyarrow.concat_tables(tables).to_pylist()
    return [Question(*(row[column] for column in COLUMNS)) for row in rows]


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[.?]", text)


def read(dataset: TokenDataset, position: int, vocabulary: dict[str, int]) -> dict[str, Any]:
    """One question in words: ids are looked up in the vocabulary, boundaries are checked."""
    names = {number: word for word, number in vocabulary.items()}
    batch = dataset[[position]]
    assert batch.query is not None
    assert batch.labels is not None
    found = {"label": int(batch.labels[0]), "index": int(batch.index[0])}
    for name, ids in (("passage", batch.tokens[0]), ("query", batch.query[0])):
        assert (int(ids[0]), int(ids[-1])) == (BOS, EOS)
        found[name] = [names[number] for number in ids[1:-1].tolist()]
    evidence = batch.extras["evidence"][0]
    assert not evidence[[0, -1]].any()
    return found | {"evidence": evidence[1:-1].tolist()}


def expected(question: Question, index: int, released: bool = False) -> dict[str, Any]:
    sentences = [words(sentence) for sentence in question.passage]
    evidence = [
        int(position in question.evidence)
        for position, sentence in enumerate(sentences)
        for _ in sentence
    ]
    end = -1 if released else None
    return {
        "index": index,
        "label": (WORDS if released else PLACES).index(question.answer),
        "passage": list(chain.from_iterable(sentences))[:end],
        "query": words(question.query)[:end],
        "evidence": evidence[:end],
    }


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_the_prepared_corpus_is_the_generated_one(task: BabiTask, released: bool) -> None:
    data = BabiStories(task, **SIZES, corpus_seed=3, released=released)
    vocabulary = Tokenizer.from_str(data.tokenizer_json).get_vocab()
    assert data.classes == list(WORDS if released else PLACES)
    for number, (split, size) in enumerate(zip(SPLITS, SIZES.values(), strict=True)):
        dataset = data.dataset(split)
        assert len(dataset) == size
        for index, question in enumerate(islice(generate_questions(task, 3, number), size)):
            assert read(dataset, index, vocabulary) == expected(question, index, released)


def test_the_classes_of_the_released_code_are_the_words_of_all_tasks() -> None:
    questions = chain(*(islice(generate_questions(task, 0, 0), 500) for task in TASKS))
    used = {word for row in questions for text in (*row.passage, row.query) for word in words(text)}
    assert set(WORDS) == used - {"?"}
    assert len(WORDS) == 36


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_real_questions_are_the_test_split(task: BabiTask, released: bool, corpora: Path) -> None:
    """With the vocabulary and the classes of the generated ones, and no word unknown."""
    data = BabiStories(task, **SIZES, test=questions_of(corpora, task), released=released)
    generated = BabiStories(task, **SIZES, released=released)
    assert data.tokenizer_json == generated.tokenizer_json
    assert data.classes == generated.classes
    for split in ("train", "validation"):
        assert data.dataset(split).table.equals(generated.dataset(split).table)
    vocabulary = Tokenizer.from_str(data.tokenizer_json).get_vocab()
    questions = real_questions(corpora, task)
    assert len(data.dataset("test")) == len(questions) == 2000
    for index, question in enumerate(questions):
        assert read(data.dataset("test"), index, vocabulary) == expected(question, index, released)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_of_generated_stories_reads_real_ones(task: BabiTask, corpora: Path) -> None:
    """As `attnlight test RUN --data babi_1` does, with the encoding of the checkpoint."""
    trained = BabiStories(task, **SIZES)
    encoding = Encoding(
        trained.fingerprint, trained.tokenizer_json, tuple(trained.classes), paired=True
    )
    file = yaml.safe_load((CONFIGS / f"data/babi_{task}.yaml").read_text())
    real = PairDataModule(**file["init_args"] | {"path": str(corpora / f"babi_qa{task}")})
    other = BabiStories(task, **SIZES, corpus_seed=1)
    vocabulary = Tokenizer.from_str(trained.tokenizer_json).get_vocab()
    questions = real_questions(corpora, task)[1000:]
    drawn = list(islice(generate_questions(task, 1, 2), SIZES["test_size"]))
    for data, wanted in ((real, questions), (other, drawn)):
        own = data.fingerprint
        data.evaluate_as(encoding, "other")
        assert data.fingerprint != own
        assert data.tokenizer_json == trained.tokenizer_json
        assert data.classes == list(PLACES)
        assert len(data.dataset("test")) == len(wanted)
        for index, question in enumerate(wanted):
            assert read(data.dataset("test"), index, vocabulary) == expected(question, index)


def test_a_run_on_generated_stories_is_tested_on_real_ones(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line: `test RUN` reads all 2,000, `--data babi_1` those of its test split."""
    monkeypatch.setattr(sys, "argv", ["attnlight"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    sizes = [f"--data.{name}={size}" for name, size in SIZES.items()]
    small = ["--model.net.embedding_size=6", "--model.net.hidden_size=4", "--trainer.max_epochs=1"]
    command = ["fit", "--model=pair_average_additive", "--data=babi_stories_1", *small, *sizes]
    run = tmp_path / "e/r"
    place = ["--root=.", "--experiment=e", "--run=r", "-c", f"{CONFIGS}/trainer.yaml"]
    assert main([*command, *place, *CPU, *QUIET]) == 0
    task = AttentionTask.load_from_checkpoint(run / "best.ckpt")
    questions = real_questions(corpora, 1)
    for options, name, wanted in (
        ([], "test", questions),
        (["--data=babi_1"], "test-babi_1", questions[1000:]),
    ):
        again = ["test", "-c", f"{run}/fit.yaml", f"--ckpt_path={run}/best.ckpt", *options]
        assert main([*again, "-c", f"{CONFIGS}/tests/predictions.yaml", *CPU, *QUIET]) == 0
        record = read_record(run / f"records/{name}/predictions.parquet")
        assert [task.classes[label] for label in record.columns["label"]] == [
            question.answer for question in wanted
        ]
        passages = [" ".join(question.passage) for question in wanted]
        probabilities = task.classify(passages, [question.query for question in wanted])
        np.testing.assert_allclose(record.columns["probabilities"], probabilities, atol=2e-6)


def test_more_questions_leave_the_first_as_they_are() -> None:
    few, many = BabiStories(2, **SIZES), BabiStories(2, **SIZES | {"train_size": 450})
    for split in SPLITS:
        table, first = (data.dataset(split).table for data in (many, few))
        for column in ("text", "query_text", "label", "evidence"):  # ids are by frequency
            assert table[column][: len(first)].equals(first[column])


def test_what_decides_the_content_decides_the_fingerprint(corpora: Path) -> None:
    different = [
        BabiStories(1),
        BabiStories(2),
        BabiStories(1, corpus_seed=1),
        *(BabiStories(1, **{f"{split}_size": 7}) for split in SPLITS),
        BabiStories(1, released=True),
        BabiStories(1, test=questions_of(corpora, 1), released=True),
        BabiStories(1, test=questions_of(corpora, 1)),
        BabiStories(1, test=questions_of(corpora, 2)),
    ]
    assert len({data.fingerprint for data in different}) == len(different)
    assert BabiStories(1, seed=1, batch_size=7).fingerprint == BabiStories(1).fingerprint
    real = questions_of(corpora, 1)
    assert BabiStories(1, test=real, test_size=7).fingerprint == different[-2].fingerprint


def test_classes_are_all_places_however_few_are_asked_about() -> None:
    data = BabiStories(1, train_size=10, validation_size=10, test_size=10)
    assert len(set(data.dataset("train").table["label"].to_pylist())) < 6
    assert data.classes == list(PLACES)
    assert len(data.label_counts) == 6


@pytest.mark.parametrize("option", ["train_size", "validation_size", "test_size"])
def test_splits_have_questions(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} is 0; it must be at least 1"):
        BabiStories(**{option: 0})


def test_there_are_three_tasks() -> None:
    with pytest.raises(InputError, match="task is 4; expected one of: 1, 2, 3"):
        BabiStories(4)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="corpus_seed is -1; it must be at least 0"):
        BabiStories(1, corpus_seed=-1)


@pytest.mark.parametrize("released", [False, True])
def test_a_test_source_has_the_columns_of_the_release(released: bool, tmp_path: Path) -> None:
    source = Source(path=str(write_corpus(tmp_path, test={"story": [["A."]], "query": ["Who?"]})))
    data = BabiStories(1, train_size=20, validation_size=5, test=source, released=released)
    with pytest.raises(InputError, match="has no column 'answer'; it has story, query"):
        data.prepare()


@pytest.mark.parametrize("task", TASKS)
def test_configs_train_on_generated_stories_and_test_on_real_ones(
    task: BabiTask, corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    parser = jsonargparse.ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    content = yaml.safe_load((CONFIGS / f"data/babi_stories_{task}.yaml").read_text())
    content["init_args"] |= {"train_size": 500, "validation_size": 50}
    data = parser.instantiate_classes(parser.parse_object({"data": content})).data
    assert isinstance(data, BabiStories)
    assert data.batch_size == 50
    assert {name: len(data.dataset(name)) for name in SPLITS} == {
        "train": 500,
        "validation": 50,
        "test": 2000,
    }
    answers = [PLACES.index(question.answer) for question in real_questions(corpora, task)]
    assert data.dataset("test").table["label"].to_pylist() == answers
    without = {key: value for key, value in content["init_args"].items() if key != "test"}
    assert len(BabiStories(**without).dataset("test")) == 1000


def test_every_argument_shows_its_meaning() -> None:
    parser = jsonargparse.ArgumentParser()
    parser.add_class_arguments(BabiStories, "data")
    shown = parser.format_help()
    for option in ("task", "train_size", "corpus_seed", "test", "batch_size", "cache_dir"):
        assert f"--data.{option}" in shown
    assert "Number of training questions" in shown

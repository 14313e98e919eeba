"""Generated stories as a corpus, beside the released ones."""

import re
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from attnlight.batch import BOS, EOS
from attnlight.data.babi import CODES, PEOPLE, PLACES, WORDS, BabiTask, Question, generate_questions
from attnlight.data.dataset import TokenDataset
from attnlight.data.sources import Source
from attnlight.datamodules import BabiStories, CorpusDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.data.test_babi import TASKS
from tests.data.test_babi import real as real_questions
from tests.datamodules.reading import SPLITS, vocabulary_of

SIZES = {"train_size": 200, "validation_size": 53, "test_size": 101}
EVERY = 7  # of 1,000 released questions this one is compared, and the next seventh


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[.?]", text)


def expected(question: Question, index: int, released: bool = False) -> dict[str, Any]:
    sentences = [words(sentence) for sentence in question.passage]
    evidence = [[int(n in question.evidence)] * len(words) for n, words in enumerate(sentences)]
    end = -1 if released else None
    return {
        "index": index,
        "label": (WORDS if released else PLACES).index(question.answer),
        "passage": list(chain.from_iterable(sentences))[:end],
        "query": words(question.query)[:end],
        "evidence": list(chain.from_iterable(evidence))[:end],
    }


def check(
    data: CorpusDataModule, split: str, questions: list[Question], released: bool, every: int = 1
) -> None:
    """Questions of a split in words: ids are looked up in the vocabulary, boundaries are checked."""
    dataset: TokenDataset = data.dataset(split)
    assert len(dataset) == len(questions)
    names = {number: word for word, number in vocabulary_of(data).items()}
    for index in range(0, len(questions), every):
        batch: Any = dataset[[index]]
        found = {"label": int(batch.labels[0]), "index": int(batch.index[0])}
        for name, ids in (("passage", batch.tokens[0]), ("query", batch.query[0])):
            assert (int(ids[0]), int(ids[-1])) == (BOS, EOS)
            found[name] = [names[number] for number in ids[1:-1].tolist()]
        evidence = batch.extras["evidence"][0]
        assert not evidence[[0, -1]].any()
        found["evidence"] = evidence[1:-1].tolist()
        assert found == expected(questions[index], index, released)


@pytest.mark.parametrize(
    ("task", "released"),
    [(1, True), (1, False), (2, False), pytest.param(3, False, marks=pytest.mark.slow)],
)
def test_generated_and_real_questions_alike(task: BabiTask, released: bool, corpora: Path) -> None:
    """With the vocabulary and the classes of the generated ones, and no word unknown."""
    options: dict[str, Any] = SIZES | {"corpus_seed": 3, "released": released}
    generated = BabiStories(task, **options)
    source = Source(path=str(corpora / f"babi_qa{task}"), split="test")
    data = BabiStories(task, **options, test=source)
    for number, (split, size) in enumerate(zip(SPLITS, SIZES.values(), strict=True)):
        check(generated, split, [*islice(generate_questions(task, 3, number), size)], released)
    assert data.tokenizer_json == generated.tokenizer_json
    assert data.classes == generated.classes == list(WORDS if released else PLACES)
    for split in SPLITS[:2]:
        assert data.dataset(split).table.equals(generated.dataset(split).table)
    check(data, "test", real_questions(task, corpora)[1000:], released, EVERY)


def test_the_classes_of_the_released_code_are_the_words_of_all_tasks() -> None:
    questions = chain(*(islice(generate_questions(task, 0, 0), 500) for task in TASKS))
    used = {word for row in questions for text in (*row.passage, row.query) for word in words(text)}
    assert set(WORDS) == used - {"?"}
    assert len(WORDS) == 36


def test_the_corpus_to_copy_by_hand() -> None:
    data = BabiStories("copy", **SIZES, sentences="nested")
    names = {number: word for word, number in vocabulary_of(data).items()}
    assert {*CODES, *PEOPLE} <= {*names.values()}
    assert data.classes == list(CODES)
    for split in SPLITS:
        batch: Any = data.dataset(split)[list(range(20))]
        for row in range(20):
            facts = [[names[number] for number in fact] for fact in batch.tokens[row].tolist()]
            *_, person, mark = [names[n] for n in batch.query[row][batch.query_mask[row]].tolist()]
            expected = ["The", "code", "of", person, "is", data.classes[batch.labels[row]], "."]
            source = facts.index(expected)
            assert mark == "?"
            assert batch.extras["evidence"][row].tolist() == [
                [int(n == source)] * len(fact) for n, fact in enumerate(facts)
            ]


def test_the_release_has_no_task_to_copy() -> None:
    with pytest.raises(InputError, match="leave it out of task copy"):
        BabiStories("copy", released=True)


def test_classes_are_all_places_however_few_are_asked_about() -> None:
    data = BabiStories(1, train_size=10, validation_size=10, test_size=10)
    assert len(set(data.dataset("train").table["label"].to_pylist())) < 6
    assert data.classes == list(PLACES)
    assert len(data.label_counts) == 6


@pytest.mark.parametrize("released", [False, True])
def test_a_test_source_has_the_columns_of_the_release(released: bool, tmp_path: Path) -> None:
    source = Source(path=str(write_corpus(tmp_path, test={"story": [["A."]], "query": ["Who?"]})))
    data = BabiStories(1, train_size=20, validation_size=5, test=source, released=released)
    lacking = "'answer' or 'question' or 'supporting_ids'"
    with pytest.raises(InputError, match=f"has no column {lacking}; it has story, query"):
        data.prepare()

"""Pairs of passage and query: every row of the real corpora read again in plain Python."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.raw_text import RawText
from attnlight.data.word2vec import CorpusText
from attnlight.datamodules import CorpusDataModule, PairDataModule, TextDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.datamodules.reading import (
    SPLITS,
    check_vocabulary,
    ids_of,
    parsed,
    prepared,
    sizes,
    summary,
    table,
    vocabulary_of,
)

COLUMNS = {"passage": "story", "label": "answer", "evidence": "facts", "candidates": "options"}
STORY = ["Ann went home .", "Bob ran .", "Ann sat down ."]
TRAIN = {
    "story": [STORY[:2], STORY, ["Bob sat ."], ["Bob ran .", "Ann ran home ."]],
    "query": ["where is Ann ?", "who ran ?", "who sat ?", "where is Bob ?"],
    "answer": ["home", "Bob", "Bob", "home"],
    "facts": [[0], [1], [0], [1, 0]],
    "options": [["home", "garden"], ["Bob", "Ann"], ["Ann", "Bob"], ["home"]],
}
TEXTS = [" ".join(story) for story in TRAIN["story"]]


def written(folder: Path, **columns: list[Any]) -> Path:
    """The corpus with other columns."""
    train = TRAIN | columns
    return write_corpus(folder, train=train, test={name: train[name][:2] for name in train})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return written(tmp_path / "corpus")


def module(path: Path, **options: Any) -> PairDataModule:
    settings: dict[str, Any] = {**COLUMNS, "lowercase": False, **options}
    return PairDataModule(str(path), cache_dir=str(path.parent / "cache"), **settings)


def plain(path: Path, **options: Any) -> PairDataModule:
    return PairDataModule(str(path), cache_dir=str(path.parent / "cache"), **options)


def bounded(data: CorpusDataModule, words: Iterable[str]) -> list[int]:
    return [BOS, *ids_of(data, words), EOS]


class TestPreparedPairs:
    def test_columns(self, corpus: Path) -> None:
        data = module(corpus)
        rows = prepared(data, "train")
        assert rows["text"][:] == TEXTS
        assert rows["query_text"][:] == TRAIN["query"]
        for row in rows:
            assert row["tokens"] == bounded(data, row["text"].split())
            assert row["query"] == bounded(data, row["query_text"].split())
        assert data.classes == ["Bob", "home", "Ann", "garden"]  # labels, then other candidates
        allowed = [[data.classes.index(name) for name in names] for names in TRAIN["options"]]
        assert rows["allowed"][:] == allowed
        marks = [[0, 1, 1, 1, 1, 0, 0, 0, 0], [0, *[0] * 4, *[1] * 3, *[0] * 4, 0]]
        assert rows["evidence"][:2] == marks
        assert rows["evidence"][3] == [0, *[1] * 7, 0]
        assert summary(data)["extras"] == ["evidence"]
        assert data.dataset("train").query_words(1) == ["[BOS]", "who", "ran", "?", "[EOS]"]
        assert data.dataset("train").words(0) == ["[BOS]", *TEXTS[0].split(), "[EOS]"]
        assert data.spec["query"] is True

    def test_the_vocabulary_counts_passages_and_queries(self, corpus: Path) -> None:
        documents = [text.split() for text in [*TEXTS, *TRAIN["query"]]]
        for least in (1, 4):
            check_vocabulary(module(corpus, min_document_frequency=least), documents, least)

    def test_word_vectors_see_the_queries(self, corpus: Path) -> None:
        data = module(corpus)
        sentences = list(CorpusText([(data.tokenizer_json, [data.dataset("train")])]))
        both = zip(TEXTS, TRAIN["query"], strict=True)
        assert sentences == [text.split() for pair in both for text in pair]

    def test_answers_and_evidence_are_optional(self, corpus: Path) -> None:
        data = module(corpus, candidates=None, evidence=None)
        batch = data.dataset("train")[[0, 1]]
        assert batch.allowed_classes is None
        assert batch.extras == {}
        assert data.classes == ["Bob", "home"]

    def test_a_passage_may_be_a_text(self, tmp_path: Path, corpus: Path) -> None:
        paths = (written(tmp_path / "texts", story=TEXTS), corpus)
        texts, listed = (module(path, evidence=None) for path in paths)
        for split in ("train", "test"):
            assert prepared(texts, split)[:] == prepared(listed, split)[:]
        assert texts.tokenizer_json == listed.tokenizer_json

    def test_truncated_passages(self, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
        data, lost = module(corpus, truncate=4), 0
        rows = zip(prepared(data, "train"), TRAIN["story"], TRAIN["facts"], strict=True)
        for row, story, facts in rows:
            words = [(word, n in facts) for n, text in enumerate(story) for word in text.split()]
            assert row["tokens"] == bounded(data, [word for word, _ in words[:4]])
            assert row["evidence"] == [0, *[int(fact) for _, fact in words[:4]], 0]
            lost += any(fact for _, fact in words[4:])
        counts = summary(data)["splits"]
        assert counts["train"]["evidence_cut"] == lost == 2
        assert counts["test"]["evidence_cut"] == 1
        assert "train 4 (2 cut before the end of their evidence)" in capsys.readouterr().err

    def test_length_limits_are_of_passages(self, corpus: Path) -> None:
        data = module(corpus, test_fraction=0, max_tokens=7)
        assert data.dataset("train").index.tolist() == [0, 2, 3]


class TestAnotherCorpus:
    def test_is_encoded_as_that_of_the_model(self, corpus: Path, tmp_path: Path) -> None:
        data = module(corpus)
        encoding = RawText.of_corpus(data)
        encoding.paired = True
        rows: dict[str, list[Any]] = {
            "passage": [["Ann ran .", "Eve sat ."], ["Bob sat ."]],
            "query": ["who ran ?", "who slept ?"],
            "label": ["Ann", "Bob"],
            "candidates": [["Bob", "Ann"], ["garden", "Bob"]],
            "evidence": [[0], []],
        }
        folder = write_corpus(tmp_path / "other", test=rows)
        other = plain(folder, candidates="candidates", evidence="evidence")
        other.evaluate_as(encoding, "other")
        assert (other.classes, other.spec) == (data.classes, data.spec)
        batch: Any = other.dataset("test")[[0, 1]]
        assert [data.classes[label] for label in batch.labels] == rows["label"]
        for allowed, names in zip(batch.allowed_classes, rows["candidates"], strict=True):
            assert {data.classes[n] for n in allowed.nonzero().flatten()} == set(names)
        assert batch.query[1].tolist() == bounded(data, ["who", "[UNK]", "?"])
        assert batch.extras["evidence"].tolist() == [[0, 1, 1, 1, 0, 0, 0, 0], [0] * 8]
        counts = summary(other)["splits"]["test"]
        assert (counts["tokens"], counts["unknown_tokens"]) == (9 + 6, 2)  # Eve and slept

    def test_single_texts_and_pairs_are_not_mixed(self, corpus: Path) -> None:
        one, two = (RawText("{}", ["Ann", "Bob"], "v2-0") for _ in range(2))
        two.paired = True
        texts = TextDataModule(str(corpus), tokens="story", label="answer")
        for data, encoding, message in (
            (module(corpus), one, "trained on single texts, but .* holds passages with"),
            (texts, two, "trained on passages with queries, but .* single texts"),
        ):
            with pytest.raises(InputError, match=message):
                data.evaluate_as(encoding, "other")


def test_raw_pairs_are_encoded_as_the_corpus_was(corpus: Path) -> None:
    data = module(corpus)
    raw = RawText(**json.loads(json.dumps(asdict(RawText.of_corpus(data)))))  # as stored
    batch = raw.encode(TEXTS, queries=TRAIN["query"], candidates=TRAIN["options"])
    expected = data.dataset("train")[[0, 1, 2, 3]]
    for name in ("tokens", "mask", "query", "query_mask", "allowed_classes"):
        assert torch.equal(getattr(batch, name), getattr(expected, name)), name
    assert raw.encode(TEXTS, queries=TRAIN["query"]).allowed_classes is None
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"queries": ["who ?"]}, "2 texts have 1 queries; expected one for each"),
        ({"queries": ["who ?", "  "]}, "row 1 of the given texts has the query '  ', which has"),
        ({"candidates": [["Bob"]]}, "2 texts have 1 candidates"),
        ({"candidates": [["Bob"], []]}, "a text has no candidates"),
        ({"candidates": [["Bob"], ["gardn"]]}, r"'gardn' is not .* \(did you mean 'garden'"),
    ]
    for options, message in mistakes:
        with pytest.raises(InputError, match=message):
            raw.encode(["Ann ran .", "Bob ran ."], **options)


HOME: dict[str, Any] = {"classes": {"Bob": "Bob", "home": "home"}}
OTHERS = [["home"], ["Bob"], ["Bob", None], ["home"]]
# Other columns or options, and the message.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"by": "qury"}, r"^split train of .* 'qury' \(did you mean 'query'\?\); .*: set query to"),
    ({"passage": "text"}, "no column 'text'; .*: set passage to the right one$"),
    (
        {"passage": "text", "by": "ask"},
        "'text' or 'ask'; .*: set passage and query to the right ones$",
    ),
    ({"candidates": "choices"}, "no column 'choices'.*: set candidates to the right one$"),
    ({"evidence": "fact"}, r"\(did you mean 'facts'\?\).*: set evidence to the right one$"),
    ({"by": "facts"}, "column facts of split train of .* holds list.*; expected text$"),
    (
        {"passage": "query", "by": "query"},
        "column query of .* expected lists of sentences, as evidence",
    ),
    ({"query": ["who ?", "", "a", "b"]}, "^row 1 .* has the query '', which has no token"),
    ({"query": ["who ?", None, "a", "b"]}, "^row 1 .* has the query '', which has no token"),
    ({"options": [["home"], ["Ann"], ["Bob"], ["home"]]}, "^row 1 .* 'Bob', .* its options: Ann$"),
    ({"options": [["home"], ["Bob"], None, ["home"]]}, "row 2 .* its options: there are none$"),
    ({"options": OTHERS, **HOME}, "row 2 of .* candidate 'None', .* the classes Bob, home$"),
    ({"options": [["home", "hime"], *OTHERS[1:]], **HOME}, r"row 0 .* 'hime', .* mean 'home'\?\)$"),
    ({"options": list("abcd")}, "column options .* string; expected lists of answers"),
    ({"facts": [0, 1, 0, 1]}, "column facts .* holds int64; expected lists of positions"),
    ({"facts": [[0], [1, 3], [0], [1]]}, r"^row 1 .* 3 sentences; .* sentence 3 \(from 0\)$"),
    ({"facts": [[0], [-1], [0], [1]]}, r"row 1 .* names sentence -1 \(from 0\)$"),
    (
        {"passage": ["story", "query"], "by": "query"},
        "column story of .* holds list.*; expected text$",
    ),
    ({"line_breaks": True}, "line_breaks needs raw text; column story of .* holds lists"),
    ({"by": "evidence"}, "evidence is a reserved column"),
    ({"tokens": "a", "extras": ["evidence"]}, "evidence is a reserved column"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_in_a_corpus(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    columns = {name: value for name, value in changes.items() if name in TRAIN}
    options = {"query" if name == "by" else name: changes[name] for name in changes.keys() - TRAIN}
    with pytest.raises(InputError, match=message):
        module(written(tmp_path / "corpus", **columns), **options).prepare()


def test_dropped_rows_need_no_candidate(tmp_path: Path) -> None:
    options = [["home", "Bob"], ["Bob"], ["Bob", "person"], ["Eve"]]
    folder = written(tmp_path / "c", answer=["home", "Bob", "Bob", "nowhere"], options=options)
    data = module(folder, classes={"place": "home", "person": ["Bob"]})
    assert data.dataset("train").index.tolist() == [0, 1, 2]
    assert prepared(data, "train")["allowed"][:] == [[0, 1], [1], [1, 1]]


def test_columns_stay_aligned_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlight.data.columns.READ_ROWS", 7)
    monkeypatch.setattr("attnlight.data.documents.ENCODE_CHARACTERS", 40)
    random, names = np.random.default_rng(8), ["a", "b", "c", "other"]
    answers = random.choice(names, 50).tolist()
    columns: dict[str, list[Any]] = {
        "story": [[f"s{row} w ."] * random.integers(1, 5) for row in range(50)],
        "query": [f"q{row} " * random.integers(1, 9) for row in range(50)],
        "answer": answers,
        "facts": [[0]] * 50,
        "options": [[answer, *random.choice(names[:3], 2)] for answer in answers],
    }
    folder = write_corpus(tmp_path / "corpus", train=columns)
    data = module(folder, test=None, classes={name: name for name in names[:3]})
    kept = [row for row in range(50) if answers[row] != "other"]
    stored = prepared(data, "train")[:]
    assert stored["index"] == kept != list(range(50))
    assert stored["text"] == [" ".join(columns["story"][row]) for row in kept]
    assert stored["query_text"] == [columns["query"][row] for row in kept]
    for position, row in enumerate(kept):
        assert stored["query"][position] == bounded(data, columns["query"][row].split())
        assert [data.classes[n] for n in stored["allowed"][position]] == columns["options"][row]
        assert sum(stored["evidence"][position]) == 3


def test_pairs_in_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = {"passage": list("aabb"), "query": list("xyxy"), "label": [0, 1, 0, 1]}
    test = {"passage": ["a", "a ", "x", "b", "c"], "query": ["x", "z", "a", " y", "x"]}
    folder = write_corpus(tmp_path / "c", train=train, test=test | {"label": [0, 1, 0, 1, 0]})
    assert summary(plain(folder))["splits"]["test"]["also_in"] == {"train": 2}
    assert "test 5 (2 also in train)" in capsys.readouterr().err


@pytest.mark.parametrize("named", [False, True])
def test_candidates_are_labels_or_names_of_classes(named: bool, tmp_path: Path) -> None:
    names, numbers = ["no", "yes", "maybe"], [[0, 1], [1, 2], [1], [0]]
    columns: dict[str, Any] = {"passage": list("abcd"), "query": list("efgh")}
    columns["c"] = [[names[n] for n in row] for row in numbers] if named else numbers
    columns["label"] = [0, 1, 1, 0]
    data = plain(write_corpus(tmp_path / "c", names, train=columns), candidates="c", test=None)
    assert data.classes == names
    assert prepared(data, "train")["allowed"][:] == numbers


# A real corpus, read again with pandas and a regular expression.


def tokens(text: str, digits: bool = False) -> list[str]:
    found = re.findall(r"\w+|[^\w\s]", text)
    return [re.sub(r".*\d.*", "qqq", token) for token in found] if digits else found


def test_snli(part: tuple[Path, bool]) -> None:
    data, (real, whole) = parsed("snli"), part
    assert data.classes == ["entailment", "neutral", "contradiction"]
    splits = {split: table(real / "snli", split).to_dict("records") for split in SPLITS}
    assert sizes(data) == {split: len(rows) for split, rows in splits.items()}
    counts = {"train": 21_601, "validation": 9842, "test": 9824}
    assert sizes(data) == counts or not whole
    steps = {"train": 1, "validation": 5, "test": 5}
    texts = {
        (split, column): [tokens(row[name].lower(), digits=True) for row in rows[:: steps[split]]]
        for split, rows in splits.items()
        for name, column in (("premise", "tokens"), ("hypothesis", "query"))
    }
    check_vocabulary(data, texts["train", "tokens"] + texts["train", "query"], 3)
    vocabulary = vocabulary_of(data)
    for (split, column), words in texts.items():
        stored = prepared(data, split)
        ids = [[BOS, *(vocabulary.get(word, UNK) for word in text), EOS] for text in words]
        assert stored[column][:: steps[split]] == ids
        assert stored["label"][:] == [row["label"] for row in splits[split]]
        assert stored["index"][:] == list(range(len(splits[split])))
    batch = data.dataset("test")[list(range(50))]
    assert batch.allowed_classes is None
    assert batch.extras == {}

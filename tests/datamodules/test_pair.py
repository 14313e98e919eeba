"""Pairs of passage and query: every row of the real corpora read again in plain Python."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typing_extensions import override

from attnlight.batch import BOS, EOS, PAD, SPECIAL_TOKENS, UNK
from attnlight.data.encoding import Encoding
from attnlight.data.raw_text import RawText
from attnlight.data.samplers import OnceSampler
from attnlight.data.sources import Source
from attnlight.data.word2vec import CorpusText
from attnlight.datamodules import CorpusDataModule, PairDataModule, TextDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.datamodules.test_text import from_config, prepared, summary

Rows = list[dict[str, Any]]
COLUMNS = {"passage": "story", "label": "answer", "evidence": "facts", "candidates": "options"}
STORY = ["Ann went home .", "Bob ran .", "Ann sat down ."]
TRAIN = {
    "story": [STORY[:2], STORY, ["Bob sat ."], ["Bob ran .", "Ann ran home ."]],
    "query": ["where is Ann ?", "who ran ?", "who sat ?", "where is Bob ?"],
    "answer": ["home", "Bob", "Bob", "home"],
    "facts": [[0], [1], [0], [1, 0]],
    "options": [["home", "garden"], ["Bob", "Ann"], ["Ann", "Bob"], ["home"]],
}
TEST = {name: column[:2] for name, column in TRAIN.items()}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    return write_corpus(tmp_path / "corpus", train=TRAIN, test=TEST)


def module(path: Path, **options: Any) -> PairDataModule:
    settings: dict[str, Any] = {**COLUMNS, "lowercase": False, **options}
    return PairDataModule(str(path), cache_dir=str(path.parent / "cache"), **settings)


def changed(folder: Path, **columns: list[Any]) -> Path:
    """The corpus with other columns."""
    test = {name: column[:2] for name, column in columns.items()}
    return write_corpus(folder, train=TRAIN | columns, test=TEST | test)


def ids_of(data: CorpusDataModule, words: list[str]) -> list[int]:
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    return [vocabulary.get(word, UNK) for word in words]


class TestPreparedPairs:
    def test_columns(self, corpus: Path) -> None:
        data = module(corpus)
        rows = prepared(data, "train")
        assert rows["text"][:] == [" ".join(story) for story in TRAIN["story"]]
        assert rows["query_text"][:] == TRAIN["query"]
        for row in rows:
            assert row["tokens"] == [BOS, *ids_of(data, row["text"].split()), EOS]
            assert row["query"] == [BOS, *ids_of(data, row["query_text"].split()), EOS]
        assert data.classes == ["Bob", "home", "Ann", "garden"]  # labels, then other candidates
        allowed = [[data.classes.index(name) for name in names] for names in TRAIN["options"]]
        assert rows["allowed"][:] == allowed
        marks = [[0, 1, 1, 1, 1, 0, 0, 0, 0], [0, *[0] * 4, *[1] * 3, *[0] * 4, 0]]
        assert rows["evidence"][:2] == marks
        assert rows["evidence"][3] == [0, *[1] * 7, 0]
        assert summary(data)["extras"] == ["evidence"]
        assert data.spec["query"] is True

    def test_the_vocabulary_counts_passages_and_queries(self, corpus: Path) -> None:
        data = module(corpus)
        texts = [" ".join(story) for story in TRAIN["story"]] + TRAIN["query"]
        counts = Counter(word for text in texts for word in set(text.split()))
        expected = sorted(counts, key=lambda word: (-counts[word], word))
        vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
        assert sorted(vocabulary, key=vocabulary.get) == [*SPECIAL_TOKENS, *expected]
        often = json.loads(module(corpus, min_document_frequency=4).tokenizer_json)
        assert set(often["model"]["vocab"]) - set(SPECIAL_TOKENS) == {
            word for word, count in counts.items() if count >= 4
        }

    def test_a_batch(self, corpus: Path) -> None:
        dataset = module(corpus).dataset("train")
        batch = dataset[[2, 0, -1 - 3]]
        assert batch.index.tolist() == [2, 0, -1]
        assert batch.query is not None
        assert batch.query_mask is not None
        assert batch.allowed_classes is not None
        stored = [dataset.table["query"][row].as_py() for row in (2, 0, 3)]
        longest = max(map(len, stored))
        assert batch.query.tolist() == [row + [PAD] * (longest - len(row)) for row in stored]
        assert batch.query_mask.tolist() == [
            [n < len(row) for n in range(longest)] for row in stored
        ]
        assert batch.allowed_classes.tolist() == [
            [True, False, True, False],
            [False, True, False, True],
            [False, True, False, False],
        ]
        assert batch.query.dtype == torch.int64
        for row, alone in enumerate((2, 0, 3)):
            single = dataset[alone]
            assert single.query is not None
            assert single.query[0].tolist() == batch.query[row][batch.query_mask[row]].tolist()

    def test_words_and_shapes(self, corpus: Path) -> None:
        dataset = module(corpus).dataset("train")
        assert dataset.query_words(1) == ["[BOS]", "who", "ran", "?", "[EOS]"]
        assert dataset.words(0) == ["[BOS]", *" ".join(STORY[:2]).split(), "[EOS]"]
        sizes = [
            [len(row["tokens"]), len(row["query"])] for row in prepared(module(corpus), "train")
        ]
        assert dataset.shapes.tolist() == sizes
        assert dataset.shapes.dtype == np.int32

    def test_word_vectors_see_the_queries(self, corpus: Path) -> None:
        data = module(corpus)
        sentences = list(CorpusText([(data.tokenizer_json, [data.dataset("train")])]))
        texts = zip(TRAIN["story"], TRAIN["query"], strict=True)
        expected = [text.split() for story, query in texts for text in (" ".join(story), query)]
        assert sentences == expected

    def test_answers_and_evidence_are_optional(self, corpus: Path) -> None:
        data = module(corpus, candidates=None, evidence=None)
        batch = data.dataset("train")[[0, 1]]
        assert batch.allowed_classes is None
        assert batch.extras == {}
        assert data.classes == ["Bob", "home"]

    def test_a_passage_may_be_a_text(self, tmp_path: Path, corpus: Path) -> None:
        texts = {split: [" ".join(story) for story in rows["story"]]
                 for split, rows in (("train", TRAIN), ("test", TEST))}  # fmt: skip
        folder = write_corpus(
            tmp_path / "texts",
            train=TRAIN | {"story": texts["train"]},
            test=TEST | {"story": texts["test"]},
        )
        options: dict[str, Any] = {"evidence": None}
        plain, listed = module(folder, **options), module(corpus, **options)
        for split in ("train", "test"):
            assert prepared(plain, split)[:] == prepared(listed, split)[:]
        assert plain.tokenizer_json == listed.tokenizer_json

    def test_truncated_passages_keep_their_columns_aligned(
        self, corpus: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = module(corpus, truncate=4)
        lost = 0
        for row, story, facts in zip(
            prepared(data, "train"), TRAIN["story"], TRAIN["facts"], strict=True
        ):
            words = [(word, n in facts) for n, text in enumerate(story) for word in text.split()]
            assert row["tokens"] == [BOS, *ids_of(data, [word for word, _ in words[:4]]), EOS]
            assert row["evidence"] == [0, *[int(fact) for _, fact in words[:4]], 0]
            lost += any(fact for _, fact in words[4:])
        assert lost == 2
        counts = summary(data)["splits"]
        assert counts["train"]["evidence_cut"] == lost
        assert counts["test"]["evidence_cut"] == 1
        assert "train 4 (2 cut before the end of their evidence)" in capsys.readouterr().err

    def test_length_limits_are_of_passages(self, corpus: Path) -> None:
        data = module(corpus, test=None, max_tokens=7)
        assert data.dataset("train").index.tolist() == [0, 2, 3]

    def test_fingerprints(self, corpus: Path) -> None:
        options: list[dict[str, Any]] = [
            {},
            {"evidence": None},
            {"candidates": None},
            {"query": "answer"},
            {"passage": "query", "evidence": None},
        ]
        assert len({module(corpus, **some).fingerprint for some in options}) == len(options)
        assert module(corpus, batch_size=3).fingerprint == module(corpus).fingerprint


class TestLoaders:
    def test_batches_hold_similar_lengths_and_each_pair_once(self, tmp_path: Path) -> None:
        random = np.random.default_rng(3)
        sizes = random.integers(1, 30, (200, 2))
        columns = {
            "passage": ["a " * n for n, _ in sizes],
            "query": ["b " * m for _, m in sizes],
            "label": [0, 1] * 100,
        }
        folder = write_corpus(tmp_path / "c", train=columns, validation=columns, test=columns)
        options: dict[str, Any] = {"batch_size": 10, "eval_batch_size": 7}
        data = PairDataModule(str(folder), cache_dir=str(tmp_path / "cache"), **options)
        for loader in (data.train_dataloader(), data.test_dataloader()):
            seen = []
            for batch in loader:
                assert batch.query_mask is not None
                lengths = torch.stack([batch.mask.sum(1), batch.query_mask.sum(1)], 1).numpy()
                assert (lengths == sizes[batch.index] + 2).all()
                assert lengths[:, 0].max() - lengths[:, 0].min() <= 9
                seen += batch.index.tolist()
            assert sorted(seen) == list(range(200))
        ranks = [OnceSampler(data.dataset("test").shapes, 7, rank, 2) for rank in range(2)]
        positions = [place for sampler in ranks for batch in sampler for place in batch]
        assert sorted(positions) == list(range(200))

    def test_workers_read_the_same_batches(self, corpus: Path) -> None:
        loaders = [
            module(corpus, num_workers=n, eval_batch_size=1).test_dataloader() for n in (0, 2)
        ]
        for one, other in zip(*loaders, strict=True):
            assert one.index.tolist() == other.index.tolist()
            assert torch.equal(one.query, other.query)
            assert torch.equal(one.allowed_classes, other.allowed_classes)

    @pytest.mark.slow
    def test_two_processes_prepare_one_corpus(self, corpus: Path) -> None:
        code = (
            "import json, sys; from attnlight.datamodules import PairDataModule\n"
            "data = PairDataModule(sys.argv[1], cache_dir=sys.argv[2], **json.loads(sys.argv[3]))\n"
            "print(data.prepare())"
        )
        cache = corpus.parent / "cache"
        command = [sys.executable, "-c", code, str(corpus), str(cache), json.dumps(COLUMNS)]
        runs = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        outputs = [run.communicate(timeout=120) for run in runs]
        assert [run.returncode for run in runs] == [0, 0], outputs
        assert len({out for out, _ in outputs}) == 1
        assert sum("prepared in" in err for _, err in outputs) == 1
        assert os.path.samefile(outputs[0][0].strip(), module(corpus, lowercase=True).prepare())


class TestAnotherCorpus:
    def test_is_encoded_as_that_of_the_model(self, corpus: Path, tmp_path: Path) -> None:
        data = module(corpus)
        encoding = Encoding(data.fingerprint, data.tokenizer_json, tuple(data.classes), paired=True)
        other_rows = {
            "passage": [["Ann ran .", "Eve sat ."], ["Bob sat ."]],
            "query": ["who ran ?", "who slept ?"],
            "label": ["Ann", "Bob"],
            "candidates": [["Bob", "Ann"], ["garden", "Bob"]],
            "evidence": [[0], []],
        }
        other = PairDataModule(
            str(write_corpus(tmp_path / "other", test=other_rows)),
            candidates="candidates",
            evidence="evidence",
            cache_dir=str(tmp_path / "cache"),
        )
        other.evaluate_as(encoding, "other")
        dataset = other.dataset("test")
        assert (other.classes, other.spec) == (data.classes, data.spec)
        batch = dataset[[0, 1]]
        assert batch.labels is not None
        assert batch.query is not None
        assert batch.allowed_classes is not None
        assert [data.classes[label] for label in batch.labels] == other_rows["label"]
        for row, names in enumerate(other_rows["candidates"]):
            found = {data.classes[n] for n in batch.allowed_classes[row].nonzero().flatten()}
            assert found == set(names)
        assert batch.query[1].tolist() == [BOS, *ids_of(data, ["who", "[UNK]", "?"]), EOS]
        assert batch.extras["evidence"].tolist() == [[0, 1, 1, 1, 0, 0, 0, 0], [0] * 8]
        counts = summary(other)["splits"]["test"]
        assert (counts["tokens"], counts["unknown_tokens"]) == (9 + 6, 2)  # Eve and slept

    def test_single_texts_and_pairs_are_not_mixed(self, corpus: Path) -> None:
        pairs, texts = module(corpus), TextDataModule(str(corpus), tokens="story", label="answer")
        one = Encoding("v2-0", "{}", ("Ann", "Bob"))
        with pytest.raises(
            InputError, match=r"trained on single texts, but .* holds passages with"
        ):
            pairs.evaluate_as(one, "pairs")
        two = Encoding.from_checkpoint(
            {"corpus": "v2-0", "tokenizer": "{}", "classes": ["Ann"]}, {"query": True}
        )
        assert two is not None
        with pytest.raises(
            InputError, match=r"trained on passages with queries, but .* single texts"
        ):
            texts.evaluate_as(two, "texts")


class TestRawPairs:
    @pytest.fixture
    def raw(self, corpus: Path) -> RawText:
        """As a checkpoint stores it."""
        return RawText(**json.loads(json.dumps(asdict(RawText.of_corpus(module(corpus))))))

    def test_are_encoded_as_the_corpus_was(self, corpus: Path, raw: RawText) -> None:
        texts = [" ".join(story) for story in TRAIN["story"]]
        batch = raw.encode(texts, queries=TRAIN["query"], candidates=TRAIN["options"])
        expected = module(corpus).dataset("train")[[0, 1, 2, 3]]
        for name in ("tokens", "mask", "query", "query_mask", "allowed_classes"):
            assert torch.equal(getattr(batch, name), getattr(expected, name)), name
        assert raw.encode(texts, queries=TRAIN["query"]).allowed_classes is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"queries": ["who ?"]}, "2 texts have 1 queries; expected one for each"),
            (
                {"queries": ["who ?", "  "]},
                "row 1 of the given texts has the query '  ', which has",
            ),
            ({"candidates": [["Bob"]]}, "2 texts have 1 candidates"),
            ({"candidates": [["Bob"], []]}, "a text has no candidates"),
            ({"candidates": [["Bob"], ["gardn"]]}, r"'gardn' is not .* \(did you mean 'garden'"),
        ],
    )
    def test_mistakes(self, raw: RawText, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            raw.encode(["Ann ran .", "Bob ran ."], **options)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            {},
            {"query": "qury"},
            r"^split train of .* has no column 'qury' \(did you mean 'query'\?\); it has story, query, answer, facts, options: set query to the right one$",
        ),
        ({}, {"passage": "text"}, "no column 'text'; .*: set passage to the right one$"),
        ({}, {"candidates": "choices"}, "no column 'choices'.*: set candidates to the right one$"),
        ({}, {"evidence": "fact"}, r"\(did you mean 'facts'\?\).*: set evidence to the right one$"),
        ({}, {"query": "facts"}, "column facts of split train of .* holds list.*; expected text$"),
        ({}, {"passage": "query"}, "column query of .* expected lists of sentences, as evidence"),
        (
            {"query": ["who ?", "", "where ?", "where ?"]},
            {},
            "^row 1 of split train of .* has the query '', which has no token; remove the row",
        ),
        (
            {"query": ["who ?", None, "where ?", "where ?"]},
            {},
            "^row 1 of split train of .* has the query '', which has no token; remove the row",
        ),
        (
            {"options": [["home"], ["home", "Ann"], ["Bob"], ["home"]]},
            {},
            "^row 1 of split train of .* has the answer 'Bob', which is not among its options: home, Ann$",
        ),
        (
            {"options": [["home"], ["Bob"], None, ["home"]]},
            {},
            "row 2 of .* which is not among its options: there are none$",
        ),
        (
            {"options": [["home"], ["Bob"], ["Bob", None], ["home"]]},
            {"classes": {"Bob": "Bob", "home": "home"}},
            "row 2 of .* has the candidate 'None', which is not among the classes Bob, home$",
        ),
        (
            {"options": [["home", "hime"], ["Bob"], ["Bob"], ["home"]]},
            {"classes": {"Bob": "Bob", "home": "home"}},
            r"row 0 .* candidate 'hime', which .* classes Bob, home \(did you mean 'home'\?\)$",
        ),
        (
            {"options": ["a", "b", "c", "d"]},
            {},
            "column options .* string; expected lists of answers",
        ),
        ({"facts": [0, 1, 0, 1]}, {}, "column facts .* holds int64; expected lists of positions"),
        (
            {"facts": [[0], [1, 3], [0], [1]]},
            {},
            r"^row 1 of split train .* has 3 sentences; its facts names sentence 3 \(from 0\)$",
        ),
        ({"facts": [[0], [-1], [0], [1]]}, {}, r"row 1 .* names sentence -1 \(from 0\)$"),
        ({}, {"passage": ["story", "query"]}, "column story of .* holds list.*; expected text$"),
        ({}, {"line_breaks": True}, "line_breaks needs raw text; column story of .* holds lists"),
    ],
)
def test_mistakes_in_a_corpus(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    folder = changed(tmp_path / "corpus", **columns)
    with pytest.raises(InputError, match=message):
        module(folder, **options).prepare()


@pytest.mark.parametrize(
    "options", [{"query": "evidence"}, {"tokens": "a", "extras": ["evidence"]}]
)
def test_evidence_is_a_reserved_name(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="evidence is a reserved column"):
        PairDataModule("a/b", evidence="facts", **options)


def test_dropped_rows_need_no_candidate(tmp_path: Path) -> None:
    columns = {
        "answer": ["home", "Bob", "Bob", "nowhere"],
        "options": [["home", "Bob"], ["Bob"], ["Bob", "person"], ["Eve"]],
    }
    data = module(changed(tmp_path / "c", **columns), classes={"place": "home", "person": ["Bob"]})
    assert data.dataset("train").index.tolist() == [0, 1, 2]
    assert prepared(data, "train")["allowed"][:] == [[0, 1], [1], [1, 1]]


def test_columns_stay_aligned_over_chunks_and_dropped_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlight.data.columns.READ_ROWS", 7)
    monkeypatch.setattr("attnlight.data.documents.ENCODE_CHARACTERS", 40)
    random = np.random.default_rng(8)
    names = ["a", "b", "c", "other"]
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
        assert stored["query"][position][1:-1] == ids_of(data, columns["query"][row].split())
        assert [data.classes[n] for n in stored["allowed"][position]] == columns["options"][row]
        assert sum(stored["evidence"][position]) == 3


def test_pairs_that_occur_in_two_splits_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = {"passage": list("aabb"), "query": list("xyxy"), "label": [0, 1, 0, 1]}
    test = {"passage": ["a", "a ", "x", "b", "c"], "query": ["x", "z", "a", " y", "x"]}
    folder = write_corpus(tmp_path / "c", train=train, test=test | {"label": [0, 1, 0, 1, 0]})
    data = PairDataModule(str(folder), cache_dir=str(tmp_path / "cache"))
    assert summary(data)["splits"]["test"]["also_in"] == {"train": 2}
    assert "test 5 (2 also in train)" in capsys.readouterr().err


def test_candidates_are_labels_or_names_of_classes(tmp_path: Path) -> None:
    names = ["no", "yes", "maybe"]
    columns = {"passage": list("abcd"), "query": list("efgh"), "label": [0, 1, 1, 0]}
    for options in ([[0, 1], [1, 2], [1], [0]], [["no", "yes"], ["yes", "maybe"], ["yes"], ["no"]]):
        folder = write_corpus(
            tmp_path / f"{type(options[0][0]).__name__}", names, train={**columns, "c": options}
        )
        data = PairDataModule(
            str(folder), candidates="c", test=None, cache_dir=str(tmp_path / "cache")
        )
        assert data.classes == names
        assert prepared(data, "train")["allowed"][:] == [[0, 1], [1, 2], [1], [0]]


@dataclass(frozen=True)
class Generated(Source):
    """Rows that a seed determines."""

    seed: int = 0

    @override
    def identity(self, column_file: bool = False) -> dict[str, Any]:
        return {"seed": self.seed}

    @override
    def load(self, scratch: Path, advice: str = "") -> datasets.Dataset:
        random = np.random.default_rng(self.seed)
        people = random.choice(["Ann", "Bob"], 20).tolist()
        return datasets.Dataset.from_dict(
            {
                "story": [["Eve sat .", f"{person} ran ."] for person in people],
                "query": ["who ran ?"] * 20,
                "answer": people,
                "facts": [[1]] * 20,
            }
        )


class GeneratedPairs(CorpusDataModule):
    """A corpus of generated rows, as `PairDataModule` says."""

    paired = True

    def __init__(self, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        splits = {name: Generated(seed=seed + n) for n, name in enumerate(("train", "validation"))}
        columns: dict[str, Any] = COLUMNS | {"candidates": None, "test": None}
        self.pairs = PairDataModule("generated", **columns, **splits, **kwargs)

    @override
    def recipe(self) -> dict[str, Any]:
        return self.pairs.recipe()

    @override
    def build(self, folder: Path) -> None:
        self.pairs.build(folder)


def test_rows_may_be_generated(tmp_path: Path) -> None:
    data = GeneratedPairs(3, cache_dir=str(tmp_path))
    for number, split in enumerate(("train", "validation")):
        rows, source = prepared(data, split), Generated(seed=3 + number).load(tmp_path)
        assert rows["text"][:] == [" ".join(story) for story in source["story"]]
        assert [data.classes[label] for label in rows["label"]] == source["answer"][:]
        assert rows["evidence"][:] == [[0, 0, 0, 0, 1, 1, 1, 0]] * 20
    assert GeneratedPairs(3).fingerprint == data.fingerprint != GeneratedPairs(4).fingerprint
    assert data.spec["query"] is True


# The real corpora, read again with pyarrow and a regular expression.


def source_rows(folder: Path, split: str) -> Rows:
    rows: Rows = pq.read_table(folder / "data" / f"{split}-00000-of-00001.parquet").to_pylist()
    return rows


def tokens(text: str, digits: bool = False) -> list[str]:
    found = re.findall(r"\w+|[^\w\s]", text)
    return [re.sub(r".*\d.*", "qqq", token) for token in found] if digits else found


def check_vocabulary(
    data: CorpusDataModule, documents: list[list[str]], least: int
) -> dict[str, int]:
    counts = Counter(word for document in documents for word in set(document))
    words = sorted((w for w in counts if counts[w] >= least), key=lambda w: (-counts[w], w))
    vocabulary: dict[str, int] = json.loads(data.tokenizer_json)["model"]["vocab"]
    assert vocabulary == {word: n for n, word in enumerate([*SPECIAL_TOKENS, *words])}
    return vocabulary


def continues(story: list[str], other: list[str]) -> bool:
    return story[: len(other)] == other or other[: len(story)] == story


@pytest.mark.parametrize("task", [1, 2, 3])
def test_babi(corpora: Path, monkeypatch: pytest.MonkeyPatch, task: int) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    data = from_config(f"babi_{task}")
    source = {split: source_rows(corpora / f"babi_qa{task}", split) for split in ("train", "test")}
    source["validation"] = source["train"]
    train, validation, test = (data.dataset(split) for split in ("train", "validation", "test"))
    assert sorted([*train.index, *validation.index]) == list(range(1000))
    assert test.index.tolist() == list(range(1000))
    assert 120 <= len(validation) <= 150
    kept = [source["train"][row] for row in train.index]
    texts = [tokens(" ".join(row["story"])) for row in kept] + [
        tokens(row["question"]) for row in kept
    ]
    vocabulary = check_vocabulary(data, texts, 1)
    assert len(vocabulary) == {1: 25, 2: 39, 3: 40}[task]  # "?" and the published ones
    for split, rows in source.items():
        dataset, stored = data.dataset(split), prepared(data, split)[:]
        assert dataset.extras == ["evidence"]
        for position, number in enumerate(dataset.index):
            row = rows[number]
            sentences = [tokens(sentence) for sentence in row["story"]]
            words = [word for sentence in sentences for word in sentence]
            question = tokens(row["question"])
            ids = [[vocabulary.get(word, UNK) for word in text] for text in (words, question)]
            assert stored["tokens"][position] == [BOS, *ids[0], EOS]
            assert stored["query"][position] == [BOS, *ids[1], EOS]
            assert stored["text"][position] == " ".join(row["story"])
            assert dataset.query_words(position)[1:-1] == question
            assert data.classes[stored["label"][position]] == row["answer"]
            marks = [n in row["supporting_ids"] for n, part in enumerate(sentences) for _ in part]
            assert stored["evidence"][position] == [0, *map(int, marks), 0]
        counts = summary(data)["splits"][split]
        assert (counts["rows"], counts["evidence_cut"]) == (len(dataset), 0)
    for number in validation.index:
        story = source["train"][number]["story"]
        assert not any(continues(story, row["story"]) for row in kept)


def test_snli(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    data = from_config("snli")
    assert data.classes == ["entailment", "neutral", "contradiction"]
    splits = {
        split: source_rows(corpora / "snli", split) for split in ("train", "validation", "test")
    }
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 21_601,
        "validation": 9842,
        "test": 9824,
    }
    texts = {
        split: [
            [tokens(row[name].lower(), digits=True) for row in rows]
            for name in ("premise", "hypothesis")
        ]
        for split, rows in splits.items()
    }
    vocabulary = check_vocabulary(data, [*texts["train"][0], *texts["train"][1]], 3)
    for split, rows in splits.items():
        stored = prepared(data, split)[:]
        for column, words in zip(("tokens", "query"), texts[split], strict=True):
            ids = [[BOS, *(vocabulary.get(word, UNK) for word in text), EOS] for text in words]
            assert stored[column] == ids
        assert stored["label"] == [row["label"] for row in rows]
        assert stored["query_text"] == [row["hypothesis"] for row in rows]
        assert stored["index"] == list(range(len(rows)))
    batch = data.dataset("test")[list(range(50))]
    assert batch.allowed_classes is None
    assert batch.extras == {}


def test_snli_drops_pairs_without_a_gold_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"premise": ["a man"] * 4, "hypothesis": ["he"] * 4, "label": [0, -1, 2, 1]}
    names = ["entailment", "neutral", "contradiction"]
    write_corpus(tmp_path / "snli", names, train=columns, validation=columns, test=columns)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(tmp_path))
    data = from_config("snli")
    assert data.dataset("train").index.tolist() == [0, 2, 3]
    assert prepared(data, "test")["label"][:] == [0, 2, 1]

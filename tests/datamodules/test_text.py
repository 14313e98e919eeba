"""Corpora of texts: what is prepared, what is refused, and every shipped configuration."""

import re
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS, UNK
from attnlight.data.sources import Source
from attnlight.errors import InputError
from tests.commands import CONFIGS
from tests.data.local import write_corpus
from tests.datamodules.reading import (
    SPLITS,
    check_vocabulary,
    ids_of,
    module,
    parsed,
    prepared,
    sizes,
    summary,
    table,
    vocabulary_of,
)
from tests.datamodules.test_rationales import CONFIGURED as RATIONALES
from tests.datamodules.test_sentences import PAIRS as IN_SENTENCES

TEXTS = ["a good film", "a bad film", "good good good", "", "so bad", "a good plot 42"]
LABELS = [1, 0, 1, 0, 0, 1]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    test = {"text": ["good unseen", "bad"], "label": [1, 0]}
    train = {"text": TEXTS, "label": LABELS}
    return write_corpus(tmp_path / "corpus", ["neg", "pos"], train=train, test=test)


def test_prepared_corpus(corpus: Path) -> None:
    data = module(corpus)
    # by falling number of texts, then alphabetical: a and good are in 3, bad and film in 2
    expected = [*SPECIAL_TOKENS, "a", "good", "bad", "film", "42", "plot", "so"]
    assert sorted(vocabulary_of(data), key=vocabulary_of(data).__getitem__) == expected
    assert data.vocab_size == len(expected)
    assert (data.classes, data.label_counts) == (["neg", "pos"], [3, 3])
    rows = prepared(data, "train")
    assert rows["text"][:] == TEXTS
    assert rows["index"][:] == list(range(6))
    assert rows["tokens"][3] == [BOS, UNK, EOS]
    assert data.dataset("train").words(3) == ["[BOS]", "[UNK]", "[EOS]"]
    assert data.dataset("test").words(0) == ["[BOS]", "good", "unseen", "[EOS]"]
    assert prepared(data, "test")["tokens"][0] == [BOS, expected.index("good"), UNK, EOS]
    files = {"corpus.json", "manifest.json", "tokenizer.json", ".passed.json"}
    assert {path.name for path in data.prepare().iterdir()} == {*files, "test", "train"}
    counts = {"rows": 6, "dropped": 0, "dropped_by": {}, "empty": 1}
    assert summary(data)["splits"]["train"] == counts
    left = {p.parent.name for p in (corpus.parent / "cache").rglob("*.arrow")}
    assert left == {"train", "test"}  # no copy of the local corpus


def test_index_is_the_source_s_row_and_vocabulary_of_the_training_texts(
    corpus: Path,
) -> None:
    data = module(corpus, min_tokens=2, validation_fraction=0.4, split_seed=2, test_fraction=0)
    train, validation = data.dataset("train").index, data.dataset("validation").index
    assert sorted([*train, *validation]) == [0, 1, 2, 4, 5]
    assert len(validation) == 2
    for split in ("train", "validation"):
        rows = prepared(data, split)
        assert rows["text"][:] == [TEXTS[row] for row in rows["index"][:]]
        assert rows["label"][:] == [LABELS[row] for row in rows["index"][:]]
    check_vocabulary(data, [text.split() for text in prepared(data, "train")["text"]])


def test_every_split_may_have_a_source_of_its_own(corpus: Path, tmp_path: Path) -> None:
    rows = {"sentence": ["x y", "z", "w"], "mood": ["up", "down", "odd"]}
    other = str(write_corpus(tmp_path / "other", train=rows))
    classes: Any = {"neg": ["down"], "pos": ["up"]}
    source = Source(path=other, text="sentence", label="mood", classes=classes)
    data = module(corpus, train=source, validation=Source(split="train[:2]"), test="test")
    assert data.classes == ["neg", "pos"]
    assert prepared(data, "train")["label"][:] == [1, 0]
    assert prepared(data, "validation")["text"][:] == TEXTS[:2]
    assert data.vocab_size == len(SPECIAL_TOKENS) + 3


ONE: Any = Source(classes={"neg": [0]}, split="test[:1]")
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": "body"}, "split train of .* has no column 'body'; it has text, label"),
    ({"label": "stars"}, "split train of .* has no column 'stars'; it has text, label"),
    ({"validation": "dev"}, "corpus has no split 'dev'"),
    ({"classes": {"neg": [0], "pos": [5]}}, "lists 5 for 'pos', which is not a label of split"),
    ({"classes": {"neg": [0]}}, "train split of .* has only one class"),
    ({"min_tokens": 100}, "no text of split train of .*corpus is left after min_tokens: 100"),
    ({"min_document_frequency": 7}, "no word occurs in min_document_frequency = 7"),
    ({"train": "train[3:5]"}, "train split of .* has only one class"),
    ({"subset": {"test": 3}}, "subset of test is 3, but split test of .* has only 2 texts"),
    ({"test": ONE}, r"no text of split test\[:1\] .* left after classes"),
    ({"validation": "dev", "validation_fraction": 0.1}, "not both"),
    ({"subset": {"dev": 3}}, "subset names dev"),
    ({"extras": ["marks"]}, "set tokens to their column"),
    ({"extras": ["length"], "tokens": "words"}, "extras names length"),
    ({"min_document_frequency": 0}, "min_document_frequency is 0"),
    ({"max_vocabulary": 0}, "max_vocabulary is 0"),
    ({"min_tokens": 3, "max_tokens": 2}, "no text can satisfy both"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_wrong_options_and_corpora(corpus: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        module(corpus, **options).prepare()
    left = [path.name for path in (corpus.parent / "cache").glob("*") if path.suffix != ".lock"]
    assert left == []


@pytest.mark.parametrize("truncate", [None, 2])
def test_removed_tokens_leave_a_corpus_without_them(truncate: int | None, tmp_path: Path) -> None:
    words = [["a", "he", "b"], ["she", "a"], ["he"], ["b", "c", "c"]]
    marks = [[0, 1, 0], [2, 0], [1], [0, -1, 0]]
    numbers = [[1, 2, 3], [4, 5], [6], [7, 8, 9]]
    kept = [[mark <= 0 for mark in row] for row in marks]
    less = [list(compress(*row)) for row in zip(words, kept, strict=True)]
    rest = [list(compress(*row)) for row in zip(numbers, kept, strict=True)]
    made = []
    for name, options, columns in (
        ("all", {"remove": "marks"}, {"tokens": words, "n": numbers, "marks": marks}),
        ("less", {}, {"tokens": less, "n": rest}),
    ):
        rows = columns | {"label": [0, 1, 0, 1]}
        path = write_corpus(tmp_path / name, train=rows, test=rows)
        given: dict[str, Any] = {"tokens": "tokens", "extras": ["n"], "truncate": truncate}
        made.append(module(path, **given, **options))
    removed, plain = made
    assert removed.tokenizer_json == plain.tokenizer_json
    assert removed.dataset("train").table.equals(plain.dataset("train").table)
    assert removed.dataset("test").table["words"].to_pylist() == less
    assert removed.dataset("test").words(0) == ["[BOS]", *less[0], "[EOS]"]
    assert removed.dataset("test").extras == ["n"]
    assert removed.recipe().keys() - plain.recipe().keys() == {"remove"}


MARKED: dict[str, list[Any]] = {"tokens": [["a", "b"], ["c"]], "text": ["a b", "c"]}
MARKED |= {"label": [0, 1], "marks": [[0, 1], [0]], "short": [[0], [0]], "large": [[1, 300], [1]]}
MARKED |= {"none": [[0, None], [0]], "missing": [[0, 0], None], "strings": [["1", "0"], ["1"]]}
TOKENS = {"tokens": "tokens"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**TOKENS, "remove": "mraks"}, "mraks.*did you mean 'marks'"),
        ({"remove": "marks"}, "remove needs token lists"),
        ({**TOKENS, "remove": "short"}, "row 0 of .* has 2 tokens; short must have"),
        ({**TOKENS, "extras": ["none"]}, "row 0 of .* has 2 tokens; none must have"),
        ({**TOKENS, "extras": ["missing"]}, "row 1 of .* has 1 tokens; missing must have"),
        ({**TOKENS, "extras": ["large"]}, "column large of .* cannot be stored as int8"),
        ({**TOKENS, "remove": "text"}, "column text of .* expected a list of numbers"),
        ({**TOKENS, "extras": ["strings"]}, "column strings of .* expected a list of numbers"),
        ({"tokens": "text"}, "column text of .* expected a list of strings"),
        ({"tokens": "marks"}, "column marks of .* expected a list of strings"),
        ({"text": "label", "label": "label"}, "column label of .* holds int64; expected text"),
    ],
)
def test_mistakes_in_columns(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "corpus", train=MARKED, test=MARKED)
    with pytest.raises(InputError, match=words):
        module(path, **options).prepare()


def test_only_frequent_words_and_no_special_tokens_have_ids(tmp_path: Path) -> None:
    texts = ["x [UNK] [PAD] [BOS]", "y x y y", "z x"]
    rows = {"text": texts, "label": [0, 1, 0]}
    path = write_corpus(tmp_path / "corpus", train=rows, test=rows)
    data = module(path, lowercase=False, max_vocabulary=2)
    assert list(vocabulary_of(data)) == [*SPECIAL_TOKENS, "x", "y"]
    check_vocabulary(module(path, truncate=2), [["x", "[unk]"], ["y", "x"], ["z", "x"]])


# The real corpora, read again with pandas and a regular expression.


def words(text: str, markup: bool = False) -> list[str]:
    return re.findall(r"\w+", (re.sub("<[^<>]*>", " ", text) if markup else text).lower())


def test_sst(real: Path) -> None:
    data = parsed("sst")
    assert sizes(data) == {"train": 6920, "validation": 872, "test": 1821}
    assert data.classes == ["negative", "positive"]
    assert data.vocab_size == 13_826  # as Jain & Wallace's
    for split in SPLITS:
        rows = table(real / "sst5", split)
        kept = rows[rows["label"] != 2]
        assert data.dataset(split).index.tolist() == kept.index.tolist()
        assert data.dataset(split).labels.tolist() == (kept["label"] > 2).astype(int).tolist()
        assert data.dataset(split).lengths.tolist() == [len(words(t)) + 2 for t in kept["text"]]
    check_vocabulary(data, map(words, prepared(data, "train")["text"]))


# Folder, labels kept, share of validation, sizes; least texts of a word, where tokens are words;
# shortest and longest text; share of the test texts that is used.
ALL = (0, 10**9)
REAL: dict[str, tuple[str, list[int], float, tuple[int, ...], int | None, Any, float]] = {
    "imdb": ("imdb", [0, 1], 0.2, (17_214, 4304, 4344), 10, (7, 399), 0.2),
    "imdb_all": ("imdb", [0, 1], 0.1, (22_500, 2500, 25_000), 2, ALL, 1),
    "20_newsgroups_sports": ("20_newsgroups", [9, 10], 0.2, (847, 212, 716), 2, (7, 499), 1),
    "20_newsgroups": ("20_newsgroups", [*range(20)], 0.2, (8803, 2201, 7309), 2, (1, 10**9), 1),
    "ag_news_pair": ("ag_news", [0, 2], 0.15, (9120, 1610, 3800), None, ALL, 1),
    "ag_news": ("ag_news", [0, 1, 2, 3], 0.15, (18_182, 3208, 7600), None, ALL, 1),
    "yelp": ("yelp_review_full", [0, 1, 2, 3, 4], 0.1, (7199, 800, 1999), None, ALL, 1),
}


@pytest.mark.parametrize("name", REAL)
def test_configs_read_their_corpora(part: tuple[Path, bool], name: str) -> None:
    folder, labels, share, counts, least, limits, tested = REAL[name]
    real, whole = part
    data, sources = parsed(name), {split: table(real / folder, split) for split in SPLITS[::2]}
    markup, kept = data.rules.markup, {}
    for split, rows in sources.items():
        lengths = rows["text"].map(lambda text: len(words(text, markup)))
        kept[split] = np.flatnonzero(rows["label"].isin(labels) & lengths.between(*limits))
    train, validation, test = (data.dataset(split).index.tolist() for split in SPLITS)
    assert sorted(train + validation) == kept["train"].tolist()
    assert len(validation) == round(share * len(kept["train"]))
    assert set(test) <= set(kept["test"].tolist())
    assert len(test) == round(tested * len(kept["test"]))
    assert sizes(data) == dict(zip(SPLITS, counts, strict=True)) or not whole
    source = sources["test"]["label"][test].tolist()
    assert [labels[number] for number in data.dataset("test").labels] == source
    cut, digits = data.rules.truncate, data.rules.digits
    if least is not None:
        texts = (words(text, markup)[:cut] for text in prepared(data, "train")["text"])
        digit = re.compile(r"\d")
        check_vocabulary(
            data, ([digits if digits and digit.search(w) else w for w in t] for t in texts), least
        )
        return
    text = prepared(data, "test")["text"][0].lower()
    shown = [re.sub(r"\w*\d\w*", "qqq", token) for token in re.findall(r"\w+|[^\w\s]", text)]
    assert prepared(data, "test")["tokens"][0] == [BOS, *ids_of(data, shown[:cut]), EOS]


def test_every_data_config_is_tested_here() -> None:
    contents = {path.stem: path.read_text() for path in CONFIGS.glob("data/*.yaml")}
    texts = {stem for stem, content in contents.items() if "TextDataModule" in content}
    elsewhere = {stem for stem in texts if "sentences: " in contents[stem]}
    forms = ("sentences", "flat")
    assert elsewhere == {f"{name}_{form}" for name in [*IN_SENTENCES, "yahoo"] for form in forms}
    elsewhere |= {stem for stem in texts if stem.startswith("deceptive_")}  # tests/test_configs.py
    elsewhere |= {"counterfactual_imdb"}  # test_edits.py
    elsewhere |= {"sst_minilm"}  # tests/data/test_pieces.py
    elsewhere |= {"sst_phrases"}  # as sst but for the name of a split
    assert texts - elsewhere == {"sst", *REAL, *RATIONALES}

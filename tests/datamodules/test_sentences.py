"""Corpora whose texts are split into sentences."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencex
import torch

from attnlight.batch import SPECIAL_TOKENS, TextBatch
from attnlight.datamodules import CorpusDataModule, TextDataModule
from tests.data.local import write_corpus, write_yahoo
from tests.datamodules import reading
from tests.datamodules.reading import (
    SPLITS,
    ids_of,
    parsed,
    prepared,
    summary,
    table,
    vocabulary_of,
)

# Sentences of 2, 3 and 2 words; of 1 and 4; none; of 2.
TRAIN = ["Good film. A bad plot! Good plot.", "Bad. So bad a film.", " ", "No stop"]
TEST = ["Good. Bad. Film. A good bad film plot."]
NESTED: dict[str, Any] = {"sentences": "nested", "boundary_tokens": False, "splitting": "words"}
LIMITS: dict[str, Any] = {"max_sentences": 2, "max_sentence_tokens": 2}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    train = {"text": TRAIN, "label": [1, 0, 0, 1]}
    validation = {"text": TRAIN[:2], "label": [1, 0]}
    test = {"text": [*TEST, "bad"], "label": [1, 0]}
    names = ["neg", "pos"]
    return write_corpus(tmp_path / "c", names, train=train, validation=validation, test=test)


def module(path: Path, **options: Any) -> TextDataModule:
    return reading.module(path, **(NESTED | options))


def spelled(data: CorpusDataModule, batch: TextBatch) -> list[list[list[str]]]:
    """The words of each sentence of each text of a nested batch."""
    words = {number: word for word, number in vocabulary_of(data).items()}
    return [
        [[words[int(n)] for n in s[m]] for s, m in zip(tokens, mask, strict=True) if m.any()]
        for tokens, mask in zip(batch.tokens, batch.mask, strict=True)
    ]


def test_batches_hold_the_sentences_of_each_text(corpus: Path) -> None:
    data = module(corpus, batch_size=2)
    assert data.nested
    batch = data.dataset("train")[[0, 1, 2, 3]]
    assert batch.tokens.shape == batch.mask.shape == (4, 3, 4)
    assert spelled(data, batch) == [
        [["good", "film"], ["a", "bad", "plot"], ["good", "plot"]],
        [["bad"], ["so", "bad", "a", "film"]],
        [["[UNK]"]],
        [["no", "stop"]],
    ]
    assert not batch.tokens[~batch.mask].any()
    assert data.dataset("train").words(1) == ["Bad", "So", "bad", "a", "film"]
    none = dict.fromkeys(("dropped", "cut", "cut_sentences", "cut_tokens"), 0)
    counts = {"rows": 4, "dropped_by": {}, "empty": 1} | none
    assert summary(data)["splits"]["train"] == counts
    batches = list(data.train_dataloader())
    assert sorted(torch.cat([batch.index for batch in batches]).tolist()) == [0, 1, 2, 3]
    assert sorted(batch.tokens.shape[1] for batch in batches) == [1, 3]  # by sentences


def test_limits_cut_all_but_test_texts(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = module(corpus, **LIMITS)
    expected = [[["good", "film"], ["a", "bad"]], [["bad"], ["so", "bad"]]]
    assert spelled(data, data.dataset("train")[[0, 1]]) == expected
    assert data.dataset("train").words(0) == ["Good", "film", "A", "bad"]
    assert data.dataset("train").words(2) == ["[UNK]"]
    # "plot" and the sentence "Good plot." of the first text; "a film" of the second
    cut, counts = {"cut": 2, "cut_sentences": 1, "cut_tokens": 5}, summary(data)["splits"]
    for split in ("train", "validation"):
        assert counts[split] | cut == counts[split]
    (whole,) = spelled(data, data.dataset("test")[[0]])
    assert whole == [["good"], ["bad"], ["film"], ["a", "good", "bad", "film", "[UNK]"]]
    assert counts["test"]["cut"] == 0
    assert "plot" not in vocabulary_of(data)  # it stood behind the cut alone
    line = capsys.readouterr().err
    assert "train 4 (1 empty, kept as one unknown token; 2 cut by 1 sentences and 5 tokens)" in line
    assert "test 2; prepared" in line


def test_test_texts_are_cut_where_asked(corpus: Path) -> None:
    data = module(corpus, **LIMITS, cap_test=True)
    assert spelled(data, data.dataset("test")[[0]]) == [[["good"], ["bad"]]]
    counts = summary(data)["splits"]["test"]
    assert (counts["cut_sentences"], counts["cut_tokens"]) == (2, 1 + 5)


def test_flat_batches_are_the_same_sentences_from_the_same_files(corpus: Path) -> None:
    nested, flat = module(corpus, **LIMITS), module(corpus, **LIMITS, sentences="flat")
    assert not flat.nested
    assert nested.prepare() == flat.prepare()
    for split in SPLITS:
        whole = list(range(len(nested.dataset(split))))
        apart, together = nested.dataset(split)[whole], flat.dataset(split)[whole]
        assert together.tokens.ndim == 2
        assert torch.equal(apart.tokens[apart.mask], together.tokens[together.mask])
        assert torch.equal(apart.mask.flatten(1).sum(-1), together.mask.sum(-1))
        for row in whole:
            assert nested.dataset(split).words(row) == flat.dataset(split).words(row)


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (
            {"title": ["good film", "bad"], "body": ["a plot. Bad", None]},
            {"text": ["title", "body"]},
            [[["good", "film"], ["a", "plot"], ["bad"]], [["bad"]]],
        ),
        (
            {"text": ["good film\\n\\nA plot", "bad"]},
            {"line_breaks": True},
            [[["good", "film"], ["a", "plot"]], [["bad"]]],
        ),
        ({"text": ["good\\n\\nA plot", "bad"]}, {}, [[["good", "n", "na", "plot"]], [["bad"]]]),
    ],
)
def test_what_ends_sentences(tmp_path: Path, columns: Any, options: Any, expected: Any) -> None:
    rows = columns | {"label": [1, 0]}
    data = module(write_corpus(tmp_path / "c", ["neg", "pos"], train=rows, test=rows), **options)
    assert spelled(data, data.dataset("train")[[0, 1]]) == expected


def test_columns_of_token_lists_follow_sentences_and_their_limits(tmp_path: Path) -> None:
    tokens = ["Good", "film", ".", "A", "bad", "don't", "plot", "!", "Late", ".", "Good", "."]
    columns: dict[str, Any] = {"tokens": [tokens, [], ["No", "stop"]] * 2, "label": [1, 0, 1] * 2}
    columns["marks"] = [[number + 0.5 for number in range(len(row))] for row in columns["tokens"]]
    folder = write_corpus(tmp_path / "c", train=columns, validation=columns, test=columns)
    options: dict[str, Any] = {"tokens": "tokens", "extras": ["marks"], "max_sentences": 2}
    options["max_sentence_tokens"] = 3
    nested, flat = (module(folder, **options, sentences=form) for form in ("nested", "flat"))
    cut = [[0.5, 1.5], [3.5, 4.5, 5.5]]  # "don" and "t" begin in one element
    whole = [[0.5, 1.5, 0, 0, 0], [3.5, 4.5, 5.5, 5.5, 6.5], [8.5] + [0] * 4, [10.5] + [0] * 4]
    found = nested.dataset("train")[[0, 1, 2]].extras["marks"].tolist()
    assert [s[: len(c)] for s, c in zip(found[0], cut, strict=True)] == cut
    assert found[2][0][:2] == [0.5, 1.5]
    assert not np.any(found[1])
    assert nested.dataset("test")[[0]].extras["marks"][0].tolist() == whole
    assert flat.dataset("train")[[0]].extras["marks"][0].tolist() == [*cut[0], *cut[1]]


def words_of(text: str, most: int | None = None, longest: int | None = None) -> list[list[str]]:
    """Lower-cased words and signs of each sentence, cut."""
    found = [re.findall(r"\w+|[^\w\s]", part.lower()) for part in sentencex.segment("en", text)]
    return [words[:longest] for words in found if words][:most] or [["[UNK]"]]


PAIRS = ["yelp", "ag_news", "yahoo_2topics", "20_newsgroups"]


@pytest.mark.parametrize("name", PAIRS)
def test_configs_read_their_corpora(part: tuple[Path, bool], name: str) -> None:
    data, flat = (parsed(f"{name}_{form}") for form in ("sentences", "flat"))
    assert data.fingerprint == flat.fingerprint
    assert (data.nested, flat.nested) == (True, False)
    options = data.recipe()["sentences"]
    most, longest = options["max_sentences"], options["max_tokens"]
    for split in SPLITS:
        source = "test" if split == "test" else "train"
        texts, dataset = table(data.sources["test"].folder, source)["text"], data.dataset(split)
        limits = (most, longest) if split != "test" or options["cap_test"] else ()
        for position in range(0, len(dataset), 41 if part[1] else 5):
            text = texts[dataset.index[position]]
            expected = words_of(text.replace("\\n", "\n") if data.line_breaks else text, *limits)
            batch = dataset[position]
            found = [s[m].tolist() for s, m in zip(batch.tokens[0], batch.mask[0], strict=True)]
            assert found == [ids_of(data, words) for words in expected]
            surface = [word.lower() for word in dataset.words(position)]
            assert surface == list(chain(*expected)) or expected == [["[UNK]"]]
        if limits and most:
            assert (dataset.shapes <= (most, longest)).all()
    found = np.zeros(data.vocab_size, np.int64)
    for row in prepared(data, "train")["tokens"]:
        found[list(set(row))] += 1
    assert found[len(SPECIAL_TOKENS) :].min() == 5


@pytest.mark.parametrize("form", ["sentences", "flat"])
def test_yahoo_as_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    write_yahoo(tmp_path)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(tmp_path))
    data = parsed(f"yahoo_{form}")
    assert len(data.classes) == 10
    batch = data.dataset("test")[[0]]
    assert batch.tokens.ndim == (3 if form == "sentences" else 2)
    assert data.dataset("test").words(0) == ["Why", "?", "I", "ask", "Because", "9", ".", "So", "."]
    if form == "sentences":
        assert batch.mask[0].sum(-1).tolist() == [2, 2, 3, 2]

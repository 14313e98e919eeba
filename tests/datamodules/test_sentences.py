"""Corpora whose texts are split into sentences."""

import json
import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import sentencex
import torch
from jsonargparse import ArgumentParser

from attnlight.batch import SPECIAL_TOKENS, UNK, TextBatch
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus, write_yahoo

CONFIGS = Path(__file__).parents[2] / "configs" / "data"
# Sentences of 2, 3 and 2 words; of 1 and 4; none; of 2.
TRAIN = ["Good film. A bad plot! Good plot.", "Bad. So bad a film.", " ", "No stop"]
TEST = ["Good. Bad. Film. A good bad film plot."]
NESTED: dict[str, Any] = {"sentences": "nested", "boundary_tokens": False, "splitting": "words"}


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    train = {"text": TRAIN, "label": [1, 0, 0, 1]}
    validation = {"text": TRAIN[:2], "label": [1, 0]}
    test = {"text": [*TEST, "bad"], "label": [1, 0]}
    return write_corpus(
        tmp_path / "corpus", ["neg", "pos"], train=train, validation=validation, test=test
    )


def module(path: Path, **options: Any) -> TextDataModule:
    common = {"cache_dir": str(path.parent / "cache"), "validation": "validation"}
    return TextDataModule(path=str(path), **(common | NESTED | options))


def spelled(data: CorpusDataModule, batch: TextBatch) -> list[list[list[str]]]:
    """The words of each sentence of each text of a nested batch."""
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    found = []
    for tokens, mask in zip(batch.tokens, batch.mask, strict=True):
        sentences = [s[m].tolist() for s, m in zip(tokens, mask, strict=True) if m.any()]
        found.append([[words[number] for number in sentence] for sentence in sentences])
    return found


def counts(data: CorpusDataModule) -> dict[str, Any]:
    splits: dict[str, Any] = json.loads((data.prepare() / "corpus.json").read_text())["splits"]
    return splits


def test_batches_hold_the_sentences_of_each_text(corpus: Path) -> None:
    data = module(corpus)
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
    assert counts(data)["train"] == {
        "rows": 4,
        "dropped": 0,
        "dropped_by": {},
        "empty": 1,
        "cut": 0,
        "cut_sentences": 0,
        "cut_tokens": 0,
    }


def test_limits_cut_training_and_validation_texts(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = module(corpus, max_sentences=2, max_sentence_tokens=2)
    assert spelled(data, data.dataset("train")[[0, 1]]) == [
        [["good", "film"], ["a", "bad"]],
        [["bad"], ["so", "bad"]],
    ]
    # "plot" and the sentence "Good plot." of the first text; "a film" of the second
    cut = {"cut": 2, "cut_sentences": 1, "cut_tokens": 5}
    for split in ("train", "validation"):
        assert counts(data)[split] | cut == counts(data)[split]
    (whole,) = spelled(data, data.dataset("test")[[0]])
    assert whole == [["good"], ["bad"], ["film"], ["a", "good", "bad", "film", "[UNK]"]]
    assert counts(data)["test"]["cut"] == 0
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    assert "plot" not in vocabulary  # it stood behind the cut alone
    line = capsys.readouterr().err
    assert "train 4 (1 empty, kept as one unknown token; 2 cut by 1 sentences and 5 tokens)" in line
    assert "test 2; prepared" in line


def test_test_texts_are_cut_where_asked(corpus: Path) -> None:
    data = module(corpus, max_sentences=2, max_sentence_tokens=2, cap_test=True)
    assert spelled(data, data.dataset("test")[[0]]) == [[["good"], ["bad"]]]
    assert counts(data)["test"]["cut_sentences"] == 2
    assert counts(data)["test"]["cut_tokens"] == 1 + 5


def test_flat_batches_are_the_same_sentences_from_the_same_files(corpus: Path) -> None:
    limits: dict[str, Any] = {"max_sentences": 2, "max_sentence_tokens": 3}
    nested, flat = module(corpus, **limits), module(corpus, **limits, sentences="flat")
    assert not flat.nested
    assert nested.prepare() == flat.prepare()
    for split in ("train", "validation", "test"):
        whole = list(range(len(nested.dataset(split))))
        apart, together = nested.dataset(split)[whole], flat.dataset(split)[whole]
        assert together.tokens.ndim == 2
        assert torch.equal(apart.tokens[apart.mask], together.tokens[together.mask])
        assert torch.equal(apart.mask.flatten(1).sum(-1), together.mask.sum(-1))
        for row in whole:
            assert nested.dataset(split).words(row) == flat.dataset(split).words(row)


def test_columns_do_not_share_a_sentence(tmp_path: Path) -> None:
    columns = {"title": ["good film", "bad"], "body": ["a plot. Bad", None], "label": [1, 0]}
    folder = write_corpus(tmp_path / "corpus", ["neg", "pos"], train=columns, test=columns)
    data = module(folder, text=["title", "body"], validation=None)
    assert spelled(data, data.dataset("train")[[0, 1]]) == [
        [["good", "film"], ["a", "plot"], ["bad"]],
        [["bad"]],
    ]


def test_written_line_breaks_end_sentences(tmp_path: Path) -> None:
    columns = {"text": ["good film\\n\\nA plot", "bad"], "label": [1, 0]}
    folder = write_corpus(tmp_path / "corpus", ["neg", "pos"], train=columns, test=columns)
    data = module(folder, line_breaks=True, validation=None)
    assert spelled(data, data.dataset("train")[[0]]) == [[["good", "film"], ["a", "plot"]]]
    kept = module(folder, validation=None)
    assert spelled(kept, kept.dataset("train")[[0]]) == [[["good", "film", "n", "na", "plot"]]]


def test_options_change_the_fingerprint(corpus: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"sentences": "none"},
        {"language": "de"},
        {"max_sentences": 2},
        {"max_sentence_tokens": 2},
        {"max_sentences": 2, "cap_test": True},
        {"line_breaks": True},
    ]
    assert len({module(corpus, **change).fingerprint for change in changes}) == len(changes)


def test_another_version_of_the_splitter_is_another_corpus(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = module(corpus).fingerprint
    monkeypatch.setattr("attnlight.data.sentences.version", lambda name: "9.9")
    assert module(corpus).fingerprint != before


def test_columns_of_token_lists_follow_sentences_and_their_limits(tmp_path: Path) -> None:
    tokens = ["Good", "film", ".", "A", "bad", "don't", "plot", "!", "Late", ".", "Good", "."]
    columns = {"tokens": [tokens, [], ["No", "stop"]], "label": [1, 0, 1]}
    columns["marks"] = [[number + 0.5 for number in range(len(row))] for row in columns["tokens"]]
    columns = {name: values * 2 for name, values in columns.items()}
    folder = write_corpus(tmp_path / "c", train=columns, validation=columns, test=columns)
    options = {"tokens": "tokens", "extras": ["marks"], "splitting": "words"}
    nested = module(folder, **options, max_sentences=2, max_sentence_tokens=3)
    flat = module(folder, **options, max_sentences=2, max_sentence_tokens=3, sentences="flat")
    cut = [[0.5, 1.5], [3.5, 4.5, 5.5]]  # "don" and "t" begin in one element
    whole = [[0.5, 1.5, 0, 0, 0], [3.5, 4.5, 5.5, 5.5, 6.5], [8.5] + [0] * 4, [10.5] + [0] * 4]
    found = nested.dataset("train")[[0, 1, 2]].extras["marks"].tolist()
    assert [[s[: len(c)] for s, c in zip(found[0], cut, strict=True)], found[2][0][:2]] == [
        cut,
        [0.5, 1.5],
    ]
    assert not np.any(found[1])
    assert nested.dataset("test")[[0]].extras["marks"][0].tolist() == whole
    assert flat.dataset("train")[[0]].extras["marks"][0].tolist() == [*cut[0], *cut[1]]


def test_corpora_without_sentences_keep_their_fingerprints(corpus: Path) -> None:
    recipe = module(corpus, sentences="none").recipe()
    assert list(recipe) == ["sources", "extras", "selection", "vocabulary", "rules"]


def test_training_batches_are_those_of_the_loader(corpus: Path) -> None:
    data = module(corpus, batch_size=2)
    batches = list(data.train_dataloader())
    assert sorted(torch.cat([batch.index for batch in batches]).tolist()) == [0, 1, 2, 3]
    assert all(batch.tokens.ndim == 3 for batch in batches)
    assert sorted(batch.tokens.shape[1] for batch in batches) == [1, 3]  # by sentences
    assert sum(len(batch) for batch in data.test_dataloader()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundary_tokens": True}, "boundary_tokens cannot be used with sentences"),
        ({"truncate": 5}, "truncate cannot be used with sentences"),
        ({"language": "English"}, "language is 'English'"),
        ({"max_sentences": 0}, "max_sentences is 0"),
        ({"max_sentence_tokens": 0}, "max_sentence_tokens is 0"),
        ({"sentences": "none", "max_sentences": 3}, "need sentences: nested or flat"),
        ({"sentences": "none", "cap_test": True}, "need sentences: nested or flat"),
        ({"sentences": "none", "language": "de"}, "need sentences: nested or flat"),
        ({"sentences": "none", "tokens": "w", "line_breaks": True}, "line_breaks needs raw text"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextDataModule(path="a/b", **(NESTED | options))


def from_config(name: str) -> TextDataModule:
    """Read in the cache of the whole session, where tests of the configuration find it too."""
    parser = ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    given = parser.parse_args(["--data", str(CONFIGS / f"{name}.yaml")])
    data = parser.instantiate_classes(given).data
    assert isinstance(data, TextDataModule)
    return data


def words_of(text: str, most: int | None = None, longest: int | None = None) -> list[list[str]]:
    """Lower-cased words and signs of each sentence, cut."""
    found = [re.findall(r"\w+|[^\w\s]", part.lower()) for part in sentencex.segment("en", text)]
    return [words[:longest] for words in found if words][:most] or [["[UNK]"]]


PAIRS = ["yelp", "ag_news", "yahoo_2topics", "20_newsgroups"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in PAIRS if name != "yahoo_2topics"]
    + ["yahoo_2topics"],
)
def test_configs_read_their_corpora(
    corpora: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    data, flat = (from_config(f"{name}_{form}") for form in ("sentences", "flat"))
    assert data.fingerprint == flat.fingerprint
    assert (data.nested, flat.nested) == (True, False)
    options = data.recipe()["sentences"]
    most, longest = options["max_sentences"], options["max_tokens"]
    folder = data.sources["test"].folder
    assert folder is not None
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    for split in ("train", "validation", "test"):
        source = "test" if split == "test" else "train"
        texts = pd.read_parquet(folder / "data" / f"{source}-00000-of-00001.parquet")["text"]
        dataset = data.dataset(split)
        limits = (most, longest) if split != "test" or options["cap_test"] else ()
        for position in range(0, len(dataset), 41):
            text = texts[dataset.index[position]]
            text = text.replace("\\n", "\n") if data.line_breaks else text
            expected = words_of(text, *limits)
            batch = dataset[position]
            found = [s[m].tolist() for s, m in zip(batch.tokens[0], batch.mask[0], strict=True)]
            assert found == [[vocabulary.get(w, UNK) for w in words] for words in expected]
            surface = [word.lower() for word in dataset.words(position)]
            assert surface == [word for words in expected for word in words] or expected == [
                ["[UNK]"]
            ]
        shapes = dataset.shapes
        if limits and most:
            assert shapes[:, 0].max() <= most
            assert shapes[:, 1].max() <= longest
    texts = datasets.load_from_disk(str(data.prepare() / "train"))["tokens"]
    found = np.zeros(len(vocabulary), np.int64)
    for row in texts:
        found[list(set(row))] += 1
    assert found[len(SPECIAL_TOKENS) :].min() == 5


@pytest.mark.parametrize("form", ["sentences", "flat"])
def test_yahoo_reads_the_columns_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    write_yahoo(tmp_path)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(tmp_path))
    data = from_config(f"yahoo_{form}")
    assert len(data.classes) == 10
    batch = data.dataset("test")[[0]]
    assert batch.tokens.ndim == (3 if form == "sentences" else 2)
    assert data.dataset("test").words(0) == ["Why", "?", "I", "ask", "Because", "9", ".", "So", "."]
    if form == "sentences":
        assert batch.mask[0].sum(-1).tolist() == [2, 2, 3, 2]


def test_every_config_with_sentences_is_tested_here() -> None:
    named = {path.stem for path in CONFIGS.glob("*.yaml") if "sentences: " in path.read_text()}
    assert named == {
        f"{name}_{form}" for name in [*PAIRS, "yahoo"] for form in ("sentences", "flat")
    }

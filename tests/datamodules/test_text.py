import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import compress
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from jsonargparse import ArgumentParser
from tokenizers import Tokenizer

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS, UNK
from attnlight.data.sources import Source
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.datamodules.test_rationales import CONFIGURED as RATIONALES

CONFIGS = Path(__file__).parents[2] / "configs" / "data"
TEXTS = ["a good film", "a bad film", "good good good", "", "so bad", "a good plot 42"]
LABELS = [1, 0, 1, 0, 0, 1]


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    test = {"text": ["good unseen", "bad"], "label": [1, 0]}
    train = {"text": TEXTS, "label": LABELS}
    return write_corpus(tmp_path / "corpus", ["neg", "pos"], train=train, test=test)


def module(path: Path, **options: Any) -> TextDataModule:
    return TextDataModule(path=str(path), cache_dir=str(path.parent / "cache"), **options)


def prepared(data: CorpusDataModule, split: str) -> datasets.Dataset:
    return datasets.load_from_disk(str(data.prepare() / split))


def summary(data: CorpusDataModule) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((data.prepare() / "corpus.json").read_text())
    return counts


def test_prepared_corpus(corpus: Path) -> None:
    data = module(corpus)
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    # by falling number of texts, then alphabetical: a and good are in 3, bad and film in 2
    expected = [*SPECIAL_TOKENS, "a", "good", "bad", "film", "42", "plot", "so"]
    assert sorted(vocabulary, key=vocabulary.get) == expected
    assert data.vocab_size == len(expected)
    assert (data.classes, data.label_counts) == (["neg", "pos"], [3, 3])
    rows = prepared(data, "train")
    assert rows["text"][:] == TEXTS
    assert rows["index"][:] == list(range(6))
    assert rows["tokens"][3] == [BOS, UNK, EOS]
    assert prepared(data, "test")["tokens"][0] == [BOS, expected.index("good"), UNK, EOS]
    assert sorted(path.name for path in data.prepare().iterdir()) == [
        ".passed.json",
        "corpus.json",
        "manifest.json",
        "test",
        "tokenizer.json",
        "train",
    ]
    assert summary(data)["splits"]["train"] == {
        "rows": 6,
        "dropped": 0,
        "dropped_by": {},
        "empty": 1,
    }


def test_raw_text_through_the_json_is_treated_as_the_corpus_was(corpus: Path) -> None:
    data = module(corpus, splitting="words", digits="qqq", truncate=3)
    tokenizer = Tokenizer.from_str(data.tokenizer_json)
    for split in ("train", "test"):
        rows = prepared(data, split)
        for text, ids in zip(rows["text"][:], rows["tokens"][:], strict=True):
            assert tokenizer.encode(text or "?").ids in (ids, [BOS, EOS])


def test_index_is_the_row_of_the_source_before_filtering(corpus: Path) -> None:
    data = module(corpus, min_tokens=2, validation_fraction=0.4, split_seed=2, test=None)
    train, validation = data.dataset("train").index, data.dataset("validation").index
    assert sorted([*train, *validation]) == [0, 1, 2, 4, 5]
    assert len(validation) == 2
    for split in ("train", "validation"):
        rows = prepared(data, split)
        assert rows["text"][:] == [TEXTS[row] for row in rows["index"][:]]
        assert rows["label"][:] == [LABELS[row] for row in rows["index"][:]]


def test_vocabulary_is_that_of_the_texts_left_for_training(corpus: Path) -> None:
    data = module(corpus, validation_fraction=0.5, max_tokens=3, split_seed=1)
    left = {word for text in prepared(data, "train")["text"][:] for word in text.split()}
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    assert set(vocabulary) - set(SPECIAL_TOKENS) == left
    assert left < {word for text in TEXTS for word in text.split()}


def test_every_split_may_have_a_source_of_its_own(corpus: Path, tmp_path: Path) -> None:
    other = write_corpus(
        tmp_path / "other", train={"sentence": ["x y", "z", "w"], "mood": ["up", "down", "odd"]}
    )
    source = Source(
        path=str(other),
        text="sentence",
        label="mood",
        classes={"neg": ["down"], "pos": ["up"]},
    )
    data = module(corpus, train=source, validation=Source(split="train[:2]"), test="test")
    assert data.classes == ["neg", "pos"]
    assert prepared(data, "train")["label"][:] == [1, 0]
    assert prepared(data, "validation")["text"][:] == TEXTS[:2]
    assert data.vocab_size == len(SPECIAL_TOKENS) + 3


def test_ready_tokens_and_their_extras(corpora: Path, tmp_path: Path) -> None:
    folder = corpora / "deceptive_pronoun"
    data = TextDataModule(
        path=str(folder),
        tokens="tokens",
        extras=["impermissible"],
        validation="validation",
        cache_dir=str(tmp_path),
    )
    frame = pd.read_parquet(folder / "data" / "test-00000-of-00001.parquet")
    rows = prepared(data, "test")
    for words, marks, text, ids, found in zip(
        frame["tokens"], frame["impermissible"], frame["text"], rows["tokens"][:],
        rows["impermissible"][:], strict=True
    ):  # fmt: skip
        assert found == [0, *marks, 0]
        assert len(ids) == len(words) + 2 == len(text.split()) + 2
    batch = data.dataset("test")[[0, 1, 2]]
    assert batch.extras["impermissible"].shape == batch.tokens.shape
    assert summary(data)["extras"] == ["impermissible"]


def test_options_change_the_fingerprint_and_batches_do_not(corpus: Path) -> None:
    base = module(corpus).fingerprint
    assert module(corpus, batch_size=7, seed=3, num_workers=1).fingerprint == base
    changes: list[dict[str, Any]] = [
        {"lowercase": False},
        {"digits": "qqq"},
        {"splitting": "words"},
        {"markup": True},
        {"boundary_tokens": False},
        {"truncate": 3},
        {"min_tokens": 1},
        {"max_tokens": 3},
        {"min_document_frequency": 2},
        {"max_vocabulary": 3},
        {"validation_fraction": 0.5},
        {"subset": {"test": 1}},
        {"split_seed": 1},
        {"test": None},
        {"train": "train[:3]"},
        {"classes": {"neg": [0], "pos": [1]}},
        {"classes": {"pos": [1], "neg": [0]}},
    ]
    assert len({module(corpus, **change).fingerprint for change in changes} | {base}) == 18


def test_fingerprint_is_the_same_in_another_process_and_place(corpus: Path) -> None:
    moved = corpus.rename(corpus.parent / "moved")
    code = (
        "from attnlight.datamodules import TextDataModule\n"
        f"print(TextDataModule(path={str(moved)!r}, validation_fraction=0.5).fingerprint)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == module(moved, validation_fraction=0.5).fingerprint


def test_a_changed_source_is_prepared_anew(corpus: Path) -> None:
    assert len(module(corpus).dataset("train")) == 6
    write_corpus(corpus, ["neg", "pos"], train={"text": ["a", "b"], "label": [0, 1]})
    assert len(module(corpus).dataset("train")) == 2


def test_no_copy_of_a_local_corpus_is_left(corpus: Path) -> None:
    data = module(corpus)
    data.prepare()
    names = {p.parent.name for p in (corpus.parent / "cache").rglob("*.arrow")}
    assert names == {"train", "test"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "body"}, "split train of .* has no column 'body'; it has text, label"),
        ({"label": "stars"}, "split train of .* has no column 'stars'; it has text, label"),
        ({"validation": "dev"}, "corpus has no split 'dev'"),
        ({"classes": {"neg": [0], "pos": [5]}}, "lists 5 for 'pos', which is not a label of split"),
        ({"classes": {"neg": [0]}}, "train split of .* has only one class"),
        ({"min_tokens": 100}, "no text of split train of .*corpus is left after min_tokens: 100"),
        ({"min_document_frequency": 7}, "no word occurs in min_document_frequency = 7"),
        ({"train": "train[3:5]"}, "train split of .* has only one class"),
        ({"subset": {"test": 3}}, "subset of test is 3, but split test of .* has only 2 texts"),
    ],
)
def test_wrong_corpora_are_refused(corpus: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        module(corpus, **options).prepare()
    left = [path.name for path in (corpus.parent / "cache").iterdir() if path.suffix != ".lock"]
    assert left == []


def test_classes_that_drop_every_text_are_named(corpus: Path) -> None:
    test = Source(classes={"neg": [1], "pos": [0]}, split="test[:1]")
    with pytest.raises(InputError, match=r"no text of split test\[:1\] .* left after classes"):
        module(corpus, test=Source(**{**vars(test), "classes": {"neg": [0]}})).prepare()


def test_split_without_published_labels_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_corpus(
        tmp_path / "glue",
        ["negative", "positive"],
        train={"text": ["a", "b"], "label": [0, 1]},
        test={"text": ["c", "d"], "label": [-1, -1]},
    )
    with pytest.raises(InputError, match=r"^split test of .*glue has label -1 in all rows"):
        module(folder).prepare()
    assert len(module(folder, test=None).dataset("train")) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": "dev", "validation_fraction": 0.1}, "not both"),
        ({"subset": {"dev": 3}}, "subset names dev"),
        ({"extras": ["marks"]}, "set tokens to their column"),
        ({"extras": ["length"], "tokens": "words"}, "extras names length"),
        ({"min_document_frequency": 0}, "min_document_frequency is 0"),
        ({"max_vocabulary": 0}, "max_vocabulary is 0"),
        ({"min_tokens": 3, "max_tokens": 2}, "no text can satisfy both"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextDataModule(path="a/b", **options)


def from_config(name: str) -> TextDataModule:
    """Read in the cache of the whole session, where tests of the configuration find it too."""
    parser = ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    given = parser.parse_args(["--data", str(CONFIGS / f"{name}.yaml")])
    data = parser.instantiate_classes(given).data
    assert isinstance(data, TextDataModule)
    return data


def words(text: str, markup: bool = False) -> list[str]:
    return re.findall(r"\w+", (re.sub("<[^<>]*>", " ", text) if markup else text).lower())


def frame(folder: Path, split: str) -> pd.DataFrame:
    return pd.read_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")


def rows_kept(
    table: pd.DataFrame, labels: list[int], low: int, high: int, markup: bool = False
) -> set[int]:
    chosen = table["label"].isin(labels)
    lengths = table["text"].map(lambda text: len(words(text, markup)))
    return set(np.flatnonzero(chosen & (lengths >= low) & (lengths <= high)).tolist())


def check_vocabulary(data: TextDataModule, least: int) -> None:
    """By plain counting of texts (configs whose tokens are words, digits apart)."""
    texts = prepared(data, "train")["text"][:]
    digits = data.rules.digits
    found: Counter[str] = Counter()
    for text in texts:
        tokens = words(text, data.rules.markup)[: data.rules.truncate]
        found.update({digits if digits and re.search(r"\d", w) else w for w in tokens})
    expected = sorted((w for w in found if found[w] >= least), key=lambda w: (-found[w], w))
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    assert sorted(vocabulary, key=vocabulary.get) == [*SPECIAL_TOKENS, *expected]


def sizes(data: TextDataModule) -> dict[str, int]:
    return {split: counts["rows"] for split, counts in summary(data)["splits"].items()}


@pytest.fixture
def real(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    return corpora


def test_sst(real: Path) -> None:
    data = from_config("sst")
    assert sizes(data) == {"train": 6920, "validation": 872, "test": 1821}
    assert data.classes == ["negative", "positive"]
    assert data.vocab_size == 13_826  # as Jain & Wallace's
    for split in ("train", "validation", "test"):
        table = frame(real / "sst5", split)
        kept = table[table["label"] != 2]
        assert data.dataset(split).index.tolist() == kept.index.tolist()
        labels = data.dataset(split).labels
        assert labels is not None
        assert labels.tolist() == (kept["label"] > 2).astype(int).tolist()
        assert data.dataset(split).lengths.tolist() == [len(words(t)) + 2 for t in kept["text"]]
    check_vocabulary(data, 1)


def test_sst_phrases(real: Path) -> None:
    data = from_config("sst_phrases")
    assert sizes(data) == {"train": 77_195, "validation": 872, "test": 1821}
    labels = data.dataset("train").labels
    assert labels is not None
    assert labels.tolist() == frame(real / "sst2_phrases", "train")["label"].tolist()
    sentences = from_config("sst")
    for split in ("validation", "test"):
        assert prepared(data, split)["text"][:] == prepared(sentences, split)["text"][:]
    assert data.classes == sentences.classes


def check_split(data: TextDataModule, kept: set[int], share: float) -> None:
    """Training and validation rows are the kept ones, divided by the share."""
    train, validation = (set(data.dataset(s).index.tolist()) for s in ("train", "validation"))
    assert train | validation == kept
    assert not train & validation
    assert len(validation) == round(share * len(kept))


@pytest.mark.slow
def test_imdb(real: Path) -> None:
    data = from_config("imdb")
    train, test = (
        rows_kept(frame(real / "imdb", split), [0, 1], 7, 399, markup=True)
        for split in ("train", "test")
    )
    check_split(data, train, 0.2)
    assert set(data.dataset("test").index.tolist()) < test
    assert len(data.dataset("test")) == round(0.2 * len(test))
    assert sizes(data) == {"train": 17_214, "validation": 4304, "test": 4344}
    assert min(data.label_counts) > 0.45 * sum(data.label_counts)
    check_vocabulary(data, 10)


@pytest.mark.slow
def test_imdb_all(real: Path) -> None:
    data = from_config("imdb_all")
    check_split(data, set(range(25_000)), 0.1)
    assert sizes(data) == {"train": 22_500, "validation": 2500, "test": 25_000}
    check_vocabulary(data, 2)


def test_20_newsgroups_sports(real: Path) -> None:
    data = from_config("20_newsgroups_sports")
    folder = real / "20_newsgroups"
    train, test = (rows_kept(frame(folder, split), [9, 10], 7, 499) for split in ("train", "test"))
    check_split(data, train, 0.2)
    assert set(data.dataset("test").index.tolist()) == test
    assert sizes(data) == {"train": 847, "validation": 212, "test": 716}
    labels = data.dataset("test").labels
    assert labels is not None
    source = frame(folder, "test")["label"][data.dataset("test").index]
    assert (labels + 9).tolist() == source.tolist()
    check_vocabulary(data, 2)


@pytest.mark.slow
def test_20_newsgroups(real: Path) -> None:
    data = from_config("20_newsgroups")
    train, test = (
        rows_kept(frame(real / "20_newsgroups", split), list(range(20)), 1, 10**9)
        for split in ("train", "test")
    )
    check_split(data, train, 0.2)
    assert set(data.dataset("test").index.tolist()) == test
    assert sizes(data) == {"train": 8803, "validation": 2201, "test": 7309}
    assert data.dataset("test").lengths.max() == 501
    named = frame(real / "20_newsgroups", "test").groupby("label")["label_text"].first()
    assert data.classes == named.tolist()
    check_vocabulary(data, 2)


@pytest.mark.parametrize(
    ("name", "folder", "labels", "share", "counts"),
    [
        ("ag_news_pair", "ag_news", [0, 2], 0.15, (9120, 1610, 3800)),
        ("ag_news", "ag_news", [0, 1, 2, 3], 0.15, (18_182, 3208, 7600)),
        ("yelp", "yelp_review_full", [0, 1, 2, 3, 4], 0.1, (7199, 800, 1999)),
    ],
)
def test_corpora_that_keep_every_text(
    real: Path,
    tmp_path: Path,
    name: str,
    folder: str,
    labels: list[int],
    share: float,
    counts: tuple[int, int, int],
) -> None:
    data = from_config(name)
    train, test = (
        rows_kept(frame(real / folder, split), labels, 0, 10**9) for split in ("train", "test")
    )
    check_split(data, train, share)
    assert sizes(data) == dict(zip(("train", "validation", "test"), counts, strict=True))
    assert set(data.dataset("test").index.tolist()) == test
    found = data.dataset("test").labels
    assert found is not None
    source = frame(real / folder, "test")["label"][data.dataset("test").index]
    assert [labels[number] for number in found] == source.tolist()
    text = prepared(data, "test")["text"][0].lower()
    shown = [re.sub(r"\w*\d\w*", "qqq", token) for token in re.findall(r"\w+|[^\w\s]", text)]
    vocabulary = json.loads(data.tokenizer_json)["model"]["vocab"]
    expected = [vocabulary.get(token, UNK) for token in shown[: data.rules.truncate]]
    assert prepared(data, "test")["tokens"][0] == [BOS, *expected, EOS]


def test_every_data_config_is_tested_here() -> None:
    texts = {path.stem for path in CONFIGS.glob("*.yaml") if "TextDataModule" in path.read_text()}
    of_sentences = {
        path.stem for path in CONFIGS.glob("*.yaml") if "sentences: " in path.read_text()
    }
    of_sentences |= {
        stem for stem in texts if stem.startswith("deceptive_")
    }  # tests/test_configs.py
    pieces = {"sst_minilm"}  # tests/data/test_pieces.py
    assert texts - of_sentences - pieces == {
        "sst",
        "sst_phrases",
        "imdb",
        "imdb_all",
        "20_newsgroups_sports",
        "20_newsgroups",
        "ag_news_pair",
        "ag_news",
        "yelp",
    } | set(RATIONALES)


def test_cold_start_of_several_processes(corpus: Path) -> None:
    code = (
        "import sys; from attnlight.datamodules import TextDataModule\n"
        "print(TextDataModule(path=sys.argv[1], cache_dir=sys.argv[2]).prepare())"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(corpus), str(corpus.parent / "cache")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "ATTNLIGHT_DATA"},
        )
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert {out for out, _ in outputs} == {f"{module(corpus).prepare()}\n"}
    assert sum("prepared in" in err for _, err in outputs) == 1


class TestRemovedTokens:
    @pytest.mark.parametrize("truncate", [None, 2])
    def test_equal_a_corpus_without_them(self, truncate: int | None, tmp_path: Path) -> None:
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
            settings: dict[str, Any] = {"tokens": "tokens", "extras": ["n"]} | options
            settings["truncate"] = truncate
            data = TextDataModule(str(path), **settings, cache_dir=str(tmp_path / "cache"))
            made.append(data)
        removed, plain = made
        assert removed.tokenizer_json == plain.tokenizer_json
        assert removed.dataset("train").table.equals(plain.dataset("train").table)
        assert removed.dataset("test").table["words"].to_pylist() == less
        assert removed.dataset("test").extras == ["n"]
        assert removed.recipe().keys() - plain.recipe().keys() == {"remove"}

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"tokens": "tokens", "remove": "mraks"}, "mraks.*did you mean 'marks'"),
            ({"text": "text", "remove": "marks"}, "remove needs token lists"),
            ({"tokens": "tokens", "remove": "short"}, "row 0 of .* has 2 tokens; short must have"),
            (
                {"tokens": "tokens", "remove": "text"},
                "column text of .* expected a list of numbers",
            ),
        ],
    )
    def test_mistakes(self, options: dict[str, Any], words: str, tmp_path: Path) -> None:
        rows: dict[str, list[Any]] = {
            "tokens": [["a", "b"], ["c"]],
            "text": ["a b", "c"],
            "label": [0, 1],
            "marks": [[0, 1], [0]],
            "short": [[0], [0]],
        }
        path = write_corpus(tmp_path / "corpus", train=rows, test=rows)
        with pytest.raises(InputError, match=words):
            TextDataModule(str(path), **options, cache_dir=str(tmp_path / "cache")).prepare()

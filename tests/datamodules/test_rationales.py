"""What people marked, from the source to the batch: small corpora by hand, real ones re-read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonargparse import ArgumentParser

from attnlight.data.rationales import ANNOTATORS, RATIONALE
from attnlight.datamodules import PairDataModule, TextDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from tests.commands import CONFIGS
from tests.data.local import write_corpus

CONFIGURED = ("movie_rationales", "hatexplain", "sst_rationales", "yelp_human_attention")
WORDS = [["a", "b", "c"], ["d"], ["a", "b"], ["c", "d"]]
LABELS = [1, 0, 1, 0]


def corpus(folder: Path, **columns: list[Any]) -> Path:
    rows = {"tokens": WORDS, "label": LABELS} | columns
    return write_corpus(folder, train=rows, test=rows)


def module(path: Path, **options: Any) -> TextDataModule:
    cache = str(path.parent / "cache")
    settings = {"path": str(path), "tokens": "tokens", "boundary_tokens": False} | options
    return TextDataModule(**settings, cache_dir=cache)


def read(data: CorpusDataModule, column: str, split: str = "test") -> list[list[int]]:
    rows: list[list[int]] = data.dataset(split).table[column].to_pylist()
    return rows


def test_positive_numbers_are_marked(tmp_path: Path) -> None:
    marks = [[0.2, 0.0, -1.0], [3.0], [0.0, 0.0], None]
    data = module(corpus(tmp_path / "corpus", marks=marks), rationale="marks")
    assert read(data, RATIONALE) == [[1, 0, 0], [1], [0, 0], [0, 0]]
    assert data.dataset("test").extras == [RATIONALE]


def test_a_text_without_tokens_has_no_marks(tmp_path: Path) -> None:
    """It is read as one unknown token, marked or not."""
    for name, marks in {"one": [[1, 0, 1], [], [0, 1]], "many": [[[1, 0, 1]], [[]], []]}.items():
        path = tmp_path / name
        rows = {"tokens": [WORDS[0], [], WORDS[2]], "label": LABELS[:3], "marks": marks}
        data = module(write_corpus(path / "corpus", train=rows, test=rows), rationale="marks")
        second = [0, 1] if name == "one" else [0, 0]
        assert read(data, RATIONALE) == [[1, 0, 1], [0], second]


def test_more_than_half_of_the_annotators(tmp_path: Path) -> None:
    marks = [
        [[1, 1, 0], [1, 0, 0], [0, 1, 1]],  # two of three
        [[1], [0]],  # one of two is not more than half
        [[0, 1]],
        [],
    ]
    data = module(corpus(tmp_path / "corpus", marks=marks), rationale="marks")
    assert read(data, RATIONALE) == [[1, 1, 0], [0], [0, 1], [0, 0]]
    assert read(data, ANNOTATORS) == [[0b011, 0b101, 0b100], [0b01], [0, 1], [0, 0]]
    batch = data.dataset("test")[[0, 3]]
    assert batch.extras[RATIONALE].tolist() == [[1, 1, 0], [0, 0, 0]]


def test_words_of_the_class_of_their_text(tmp_path: Path) -> None:
    path = write_corpus(
        tmp_path / "corpus",
        **{
            split: {
                "tokens": [*WORDS, ["a"]],
                "label": [4, 0, 3, 1, 2],
                "polarity": [[3, 4, 0], [1], [2, 2], [1, 4], [2]],
            }
            for split in ("train", "test")
        },
    )
    classes = {"negative": [0, 1], "positive": [3, 4]}
    options: dict[str, Any] = {"rationale": "polarity", "rationale_labels": True}
    data = module(path, classes=classes, **options)
    assert read(data, RATIONALE) == [[1, 1, 0], [1], [0, 0], [1, 0]]
    # Without classes each label is one.
    assert read(module(path, **options), RATIONALE)[0] == [0, 1, 0]


def test_marks_follow_splitting_and_truncation(tmp_path: Path) -> None:
    words = [["don't", "(go)", "there"], ["d"], ["a", "b"], ["c", "d"]]
    marks = [[1, 0, 1], [0], [1, 0], [0, 1]]
    path = corpus(tmp_path / "corpus", tokens=words, marks=marks)
    options = {"splitting": "punctuation", "truncate": 6, "boundary_tokens": True}
    rows = read(module(path, rationale="marks", **options), RATIONALE)
    assert rows[0] == [0, 1, 1, 1, 0, 0, 0, 0]  # [BOS] don ' t ( go ) [EOS]
    assert rows[3] == [0, 0, 1, 0]


def test_a_split_of_raw_text_or_without_the_column_has_no_rationale(tmp_path: Path) -> None:
    path = corpus(tmp_path / "corpus", marks=[[1, 0, 0], [0], [0, 1], [1, 1]])
    raw = write_corpus(tmp_path / "raw", train={"text": ["a b", "c"], "label": [0, 1]})
    ready = write_corpus(tmp_path / "ready", train={"tokens": [["a"], ["c"]], "label": [0, 1]})
    for source in ({"path": str(raw), "text": "text"}, {"path": str(ready), "tokens": "tokens"}):
        parser = ArgumentParser()
        parser.add_class_arguments(TextDataModule, "data")
        options = {"path": str(path), "tokens": "tokens", "rationale": "marks", "train": source}
        given = parser.parse_object({"data": options | {"cache_dir": str(tmp_path / "cache")}})
        data = parser.instantiate_classes(given).data
        assert data.dataset("train").extras == []
        assert data.dataset("test").extras == [RATIONALE]


def test_the_rationale_changes_the_fingerprint_and_only_if_used(tmp_path: Path) -> None:
    path = corpus(tmp_path / "corpus", marks=[[1, 0, 0], [0], [0, 1], [1, 1]])
    plain, marked = module(path), module(path, rationale="marks")
    assert "rationale" not in plain.recipe()
    assert plain.fingerprint != marked.fingerprint


def test_pairs_have_the_rationale_of_their_passage(tmp_path: Path) -> None:
    path = corpus(
        tmp_path / "corpus", marks=[[1, 0, 0], [0], [0, 1], [1, 1]], query=["x", "y", "x", "y"]
    )
    data = PairDataModule(
        str(path), "tokens", rationale="marks", cache_dir=str(tmp_path / "cache"), train="train"
    )
    assert read(data, RATIONALE) == [[0, 1, 0, 0, 0], [0, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0]]


MARKS = [[1, 0, 0], [0], [0, 1], [1, 1]]
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"marks": [[1, 0], *MARKS[1:]]}, {}, "row 0 of split train .* has 3 tokens, but a list of 2 num"),
    ({"marks": [*MARKS[:3], [1, None]]}, {}, "row 3 of split train .* has 2 tokens"),
    (
        {"marks": [[[1, 0, 0]], [[1], [1, 0]], [], []]},
        {},
        "row 1 of split train .* has 1 tokens, but a list of 2 numbers in marks",
    ),
    ({"marks": [[], [[1]] * 8, [], []]}, {}, "has 8 lists in marks; at most 7 annotators"),
    ({"marks": WORDS}, {}, "column marks .* holds list<.*string>; expected a list of numbers"),
    ({"marks": ["a", "b", "c", "d"]}, {}, "column marks .* holds string; expected a list of num"),
    ({"mark": MARKS}, {}, r"has no column 'marks' \(did you mean 'mark'\?\).*set rationale to"),
    ({"marks": MARKS}, {"tokens": None, "text": "words"}, "rationale needs token lists: set tokens"),
    ({"marks": MARKS}, {"rationale": None, "rationale_labels": True}, "needs the column of the lab"),
    ({"rationale": MARKS}, {"extras": ["rationale"]}, "extras names rationale, which rationale makes"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "options", "sentence"), REFUSED)
def test_wrong_rationales_are_refused(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    path = corpus(tmp_path / "corpus", words=[" ".join(words) for words in WORDS], **columns)
    with pytest.raises(InputError, match=sentence) as error:
        module(path, **({"rationale": "marks"} | options)).prepare()
    assert str(error.value).count(". ") == 0


# Of the real corpora: folder, column of tokens, column of marks, and the words of a source's token
# in the tokenizer's splitting.
WHOLE = r"\S+"
REAL = {
    "movie_rationales": ("movie_rationales", "tokens", "rationale_mask", WHOLE),
    "hatexplain": ("hatexplain", "post_tokens", "rationales", WHOLE),
    "sst_rationales": ("sst5", "tokens", "token_labels", r"\w+"),
    "yelp_human_attention": ("yelp_human_attention", "tokens", "attention_maps", r"\w+|[^\w\s]"),
    "eraser_multi_rc": ("eraser_multi_rc", "tokens", "rationale_mask", WHOLE),
}


def annotators(name: str, row: dict[str, Any]) -> list[list[int]]:
    """What each annotator of a row of the source marked, 0 or 1 for each token."""
    marks = row[REAL[name][2]]
    if name == "sst_rationales":
        positive = row["label"] > 2
        return [[int(label > 2 if positive else label < 2) for label in marks]]
    return marks if name in ("hatexplain", "yelp_human_attention") else [marks]


@pytest.mark.parametrize("name", REAL)
def test_every_row_of_the_real_corpora(
    corpora: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    parser = ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    given = parser.parse_args(["--data", str(CONFIGS / f"data/{name}.yaml")])
    data = parser.instantiate_classes(given).data
    folder, column, _, pattern = REAL[name]
    several = 0
    for split in ("train", "validation", "test"):
        texts = data.dataset(split)
        if RATIONALE not in texts.extras:
            assert (name, split) in [("yelp_human_attention", s) for s in ("train", "validation")]
            continue
        moved = name == "eraser_multi_rc" and split != "test"
        file = f"{'validation' if moved else split}-00000-of-00001.parquet"
        source = pq.read_table(corpora / folder / "data" / file).to_pylist()
        found = {
            extra: texts.table[extra].to_pylist()
            for extra in texts.extras
        }  # fmt: skip
        for place, index in enumerate(texts.index.tolist()):
            row = source[index]
            markers = annotators(name, row)
            repeats = [len(re.findall(pattern, _cleaned(word, name))) for word in row[column]]
            assert (
                int(texts.lengths[place])
                == min(sum(repeats), 400 if folder[0] == "y" else 10**6) + 2
            )
            expected = []
            for word, times in enumerate(repeats):
                votes = sum(marks[word] for marks in markers)
                expected += [int(votes > len(markers) / 2)] * times
            assert found[RATIONALE][place] == [0, *expected, 0], (split, index)
            if ANNOTATORS in found:
                bits = np.array(found[ANNOTATORS][place])[1:-1]
                for person, marks in enumerate(markers):
                    assert (bits >> person & 1).tolist() == np.repeat(marks, repeats).tolist()
                assert not (bits >> len(markers)).any()
                several += len(markers) > 1
    assert several == {"hatexplain": 2283, "yelp_human_attention": 1544}.get(name, 0)


def _cleaned(word: str, name: str) -> str:
    """A word without the treebank's brackets, which the configuration of SST drops."""
    return re.sub(r"-(?:L|R)[RSC]B-", " ", word) if name == "sst_rationales" else word


def test_rationales_of_sst_are_on_the_texts_of_sst(
    corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a model of `sst` can be tested on `sst_rationales`."""
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    parser = ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    modules = []
    for name in ("sst", "sst_rationales"):
        given = parser.parse_args(["--data", str(CONFIGS / f"data/{name}.yaml")])
        modules.append(parser.instantiate_classes(given).data)
    one, other = modules
    assert one.tokenizer_json == other.tokenizer_json
    for split in ("train", "validation", "test"):
        for column in ("index", "label", "tokens"):
            assert one.dataset(split).table[column].equals(other.dataset(split).table[column])

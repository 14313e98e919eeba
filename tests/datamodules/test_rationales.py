"""What people marked, from the source to the batch: small corpora by hand, real ones re-read."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from attnlight.data.rationales import ANNOTATORS, RATIONALE
from attnlight.data.sources import Source
from attnlight.datamodules import PairDataModule, TextDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.datamodules import reading
from tests.datamodules.reading import SPLITS, parsed

CONFIGURED = ("movie_rationales", "hatexplain", "sst_rationales", "yelp_human_attention")
WORDS = [["a", "b", "c"], ["d"], ["a", "b"], ["c", "d"]]
LABELS = [1, 0, 1, 0]
MARKS = [[1, 0, 0], [0], [0, 1], [1, 1]]


def corpus(folder: Path, **columns: list[Any]) -> Path:
    rows = {"tokens": WORDS, "label": LABELS} | columns
    return write_corpus(folder / "corpus", train=rows, test=rows)


def module(path: Path, **options: Any) -> TextDataModule:
    given = {"tokens": "tokens", "boundary_tokens": False, "rationale": "marks"} | options
    return reading.module(path, **given)


def read(data: CorpusDataModule, column: str, split: str = "test") -> list[list[int]]:
    rows: list[list[int]] = data.dataset(split).table[column].to_pylist()
    return rows


ONE = {"tokens": [WORDS[0], [], WORDS[2]], "label": LABELS[:3]}  # one text without a token
LABELLED = {"tokens": [*WORDS, ["a"]], "label": [4, 0, 3, 1, 2]}
POLARITY = [[3, 4, 0], [1], [2, 2], [1, 4], [2]]
SIDES = {"classes": {"negative": [0, 1], "positive": [3, 4]}, "rationale_labels": True}
SPLIT = {"splitting": "punctuation", "truncate": 6, "boundary_tokens": True}
# Columns, marks, options, and the rationale that is read.
READ: dict[str, tuple[dict[str, Any], list[Any], dict[str, Any], list[list[int]]]] = {
    "positive numbers": (
        {},
        [[0.2, 0.0, -1.0], [3.0], [0.0, 0.0], None],
        {},
        [[1, 0, 0], [1], [0, 0], [0, 0]],
    ),
    "an empty text": (ONE, [[1, 0, 1], [], [0, 1]], {}, [[1, 0, 1], [0], [0, 1]]),
    "an empty text of several": (ONE, [[[1, 0, 1]], [[]], []], {}, [[1, 0, 1], [0], [0, 0]]),
    "more than half": (  # two of three; one of two is not
        {},
        [[[1, 1, 0], [1, 0, 0], [0, 1, 1]], [[1], [0]], [[0, 1]], []],
        {},
        [[1, 1, 0], [0], [0, 1], [0, 0]],
    ),
    "labels of the class": (LABELLED, POLARITY, SIDES, [[1, 1, 0], [1], [0, 0], [1, 0]]),
    "labels, each a class": (
        LABELLED,
        POLARITY,
        {"rationale_labels": True},
        [[0, 1, 0], [0], [0, 0], [1, 0], [1]],
    ),
    "splitting and truncation": (
        {"tokens": [["don't", "(go)", "there"], *WORDS[1:]]},
        [[1, 0, 1], [0], [1, 0], [0, 1]],
        SPLIT,  # [BOS] don ' t ( go ) [EOS]
        [[0, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_marks_become_a_rationale(name: str, tmp_path: Path) -> None:
    columns, marks, options, expected = READ[name]
    data = module(corpus(tmp_path, **columns, marks=marks), **options)
    assert read(data, RATIONALE) == expected
    several = name in ("more than half", "an empty text of several")
    assert data.dataset("test").extras == [RATIONALE, *[ANNOTATORS] * several]
    if name == "more than half":
        bits = [[0b011, 0b101, 0b100], [0b01], [0, 1], [0, 0]]
        assert read(data, ANNOTATORS) == bits
        batch = data.dataset("test")[[0, 3]]
        assert batch.extras[RATIONALE].tolist() == [[1, 1, 0], [0, 0, 0]]


def test_a_split_of_raw_text_or_without_the_column_has_no_rationale(tmp_path: Path) -> None:
    path = corpus(tmp_path, marks=MARKS)
    for name, column in (("text", ["a b", "c"]), ("tokens", [["a"], ["c"]])):
        other = write_corpus(tmp_path / name, train={name: column, "label": [0, 1]})
        source: Any = Source(path=str(other), **{name: name})  # type: ignore[arg-type]
        data = module(path, train=source)
        assert data.dataset("train").extras == []
        assert data.dataset("test").extras == [RATIONALE]


def test_pairs_have_the_rationale_of_their_passage(tmp_path: Path) -> None:
    path = corpus(tmp_path, marks=MARKS, query=["x", "y", "x", "y"])
    data = PairDataModule(str(path), "tokens", rationale="marks", cache_dir=str(tmp_path / "cache"))
    assert read(data, RATIONALE) == [[0, *row, 0] for row in MARKS]


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"marks": [[1, 0], *MARKS[1:]]}, {}, "row 0 of split train .* 3 tokens, but a list of 2 n"),
    ({"marks": [*MARKS[:3], [1, None]]}, {}, "row 3 of split train .* has 2 tokens"),
    ({"marks": [[[1, 0, 0]], [[1], [1, 0]], [], []]}, {}, "row 1 .* has 1 tokens, but a list of 2"),
    ({"marks": [[], [[1]] * 8, [], []]}, {}, "has 8 lists in marks; at most 7 annotators"),
    ({"marks": WORDS}, {}, "column marks .* holds list<.*string>; expected a list of numbers"),
    ({"marks": ["a", "b", "c", "d"]}, {}, "column marks .* holds string; expected a list of num"),
    ({"mark": MARKS}, {}, r"has no column 'marks' \(did you mean 'mark'\?\).*set rationale to"),
    ({"marks": MARKS}, {"tokens": None, "text": "words"}, "rationale needs token lists: set token"),
    ({"marks": MARKS}, {"rationale": None, "rationale_labels": True}, "needs the column of the l"),
    ({"rationale": MARKS}, {"extras": ["rationale"]}, "extras names rationale, which rationale m"),
]


@pytest.mark.parametrize(("columns", "options", "sentence"), REFUSED)
def test_wrong_rationales(tmp_path: Path, columns: Any, options: Any, sentence: str) -> None:
    path = corpus(tmp_path, words=[" ".join(words) for words in WORDS], **columns)
    with pytest.raises(InputError, match=sentence) as error:
        module(path, **options).prepare()
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


LONG = ("movie_rationales", "eraser_multi_rc")  # of whose texts each fifth is read again


def annotators(name: str, row: dict[str, Any]) -> list[list[int]]:
    """What each annotator of a row of the source marked, 0 or 1 for each token."""
    marks = row[REAL[name][2]]
    if name == "sst_rationales":
        positive = row["label"] > 2
        return [[int(label > 2 if positive else label < 2) for label in marks]]
    return marks if name in ("hatexplain", "yelp_human_attention") else [marks]


@pytest.mark.parametrize(
    "source", ["short_corpora", pytest.param("corpora", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", REAL)
def test_rows_of_the_real_corpora(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    real = request.getfixturevalue(source)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(real))
    data = parsed(name)
    folder, column, _, pattern = REAL[name]
    longest = 400 if name == "yelp_human_attention" else 10**6
    several = 0
    for split in SPLITS:
        texts = data.dataset(split)
        if RATIONALE not in texts.extras:
            assert (name, split) in [("yelp_human_attention", s) for s in SPLITS[:2]]
            continue
        moved = name == "eraser_multi_rc" and split != "test"
        file = f"{'validation' if moved else split}-00000-of-00001.parquet"
        rows = pq.read_table(real / folder / "data" / file).to_pylist()
        found = {extra: texts.table[extra].to_pylist() for extra in texts.extras}
        step = 5 if name in LONG and source == "corpora" else 1
        for place, index in list(enumerate(texts.index.tolist()))[::step]:
            row = rows[index]
            markers = annotators(name, row)
            repeats = [len(re.findall(pattern, _cleaned(word, name))) for word in row[column]]
            assert int(texts.lengths[place]) == min(sum(repeats), longest) + 2
            votes = [sum(marks[word] for marks in markers) for word in range(len(repeats))]
            expected = np.repeat([int(2 * n > len(markers)) for n in votes], repeats)
            assert found[RATIONALE][place] == [0, *expected, 0], (split, index)
            if ANNOTATORS in found:
                bits = np.array(found[ANNOTATORS][place])[1:-1]
                for person, marks in enumerate(markers):
                    assert (bits >> person & 1).tolist() == np.repeat(marks, repeats).tolist()
                assert not (bits >> len(markers)).any()
                several += len(markers) > 1
    counts = {"hatexplain": 2283, "yelp_human_attention": 1544}
    assert (
        several == counts.get(name, 0) if source == "corpora" else bool(several) == (name in counts)
    )


def _cleaned(word: str, name: str) -> str:
    """A word without the treebank's brackets, which the configuration of SST drops."""
    return re.sub(r"-(?:L|R)[RSC]B-", " ", word) if name == "sst_rationales" else word


@pytest.mark.slow
def test_rationales_of_sst_are_on_the_texts_of_sst(real: Path) -> None:
    """So that a model of `sst` can be tested on `sst_rationales`."""
    one, other = map(parsed, ("sst", "sst_rationales"))
    assert one.tokenizer_json == other.tokenizer_json
    for split in SPLITS:
        for column in ("index", "label", "tokens"):
            assert one.dataset(split).table[column].equals(other.dataset(split).table[column])

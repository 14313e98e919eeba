"""Originals and their edits: read, kept together, paired and counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.data.selection import choose
from attnlight.datamodules import PairDataModule, TextDataModule
from attnlight.errors import InputError
from tests.data.local import write_corpus
from tests.datamodules.reading import parsed

PAIRS = 30
LABELS = [(n, label) for n in range(PAIRS) for label in (n % 2, 1 - n % 2)]
ROWS: dict[str, list[Any]] = {
    "text": [f"film {n} is {'good' if label else 'bad'}" for n, label in LABELS],
    "label": [label for _, label in LABELS],
    "id": [n for n in range(PAIRS) for _ in range(2)],
    "edited": [False, True] * PAIRS,
}


def corpus(folder: Path, **columns: list[Any]) -> Path:
    test = ROWS | columns
    train = {name: [f"{x} again" if name == "text" else x for x in xs] for name, xs in ROWS.items()}
    return write_corpus(folder / "corpus", train=train, test=test)


def module(path: Path, **options: Any) -> TextDataModule:
    given: dict[str, Any] = {"edit_of": "id", "validation_fraction": 0.2} | options
    return TextDataModule(str(path), cache_dir=str(path.parent / "cache"), **given)


def pairs_of(data: TextDataModule, split: str) -> dict[int, int]:
    """The original of each edit of a pair, by their rows."""
    texts = data.dataset(split)
    assert texts.edit_of is not None
    return {int(i): int(of) for i, of in zip(texts.index, texts.edit_of, strict=True) if of >= 0}


@pytest.mark.parametrize("edited", ["edited", None, "words"])
def test_originals_alone_are_trained_on(tmp_path: Path, edited: str | None) -> None:
    words = ["original", "premise"] * PAIRS
    path = write_corpus(
        tmp_path / "corpus", **{x: ROWS | {"words": words} for x in ("train", "test")}
    )
    data = module(path, edited=edited)
    train, validation = (data.dataset(split).index for split in ("train", "validation"))
    assert (train % 2 == 0).all()
    assert pairs_of(data, "train") == {}
    found = pairs_of(data, "validation")
    assert found == {i: i - 1 for i in validation.tolist() if i % 2}
    assert 2 * len(found) == len(validation) == 12
    assert not set(train // 2) & set(validation // 2)
    # Pairs that are trained on are no pairs of the test split.
    assert {of for of in pairs_of(data, "test").values()} == {
        row for row in range(0, 2 * PAIRS, 2) if row not in train
    }


@pytest.mark.parametrize("amount", [7, 0.5, 1.0])
def test_a_subset_divides_no_pair(tmp_path: Path, amount: float) -> None:
    data = module(corpus(tmp_path), subset={"test": amount})
    index = set(data.dataset("test").index.tolist())
    assert {row + 1 - 2 * (row % 2) for row in index} == index
    assert len(index) == {7: 6, 0.5: 30, 1.0: 60}[amount]


def test_edits_where_they_are_asked_for(tmp_path: Path) -> None:
    data = module(corpus(tmp_path), edits_in=["train", "test"])
    assert len(pairs_of(data, "train")) == 24
    assert pairs_of(data, "validation") == {}
    assert len(data.dataset("validation")) == 6


def test_what_is_no_pair_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, labels, ids = list(ROWS["text"]), list(ROWS["label"]), list(ROWS["id"])
    texts[3] = texts[2] + " "  # equal texts
    labels[5] = labels[4]  # equal labels
    ids[6] = None  # an edit of nothing
    texts[8] += " again"  # a training text
    data = module(
        corpus(tmp_path, text=texts, label=labels, id=ids), edited="edited", validation_fraction=0.1
    )
    found = pairs_of(data, "test")
    assert not {3, 5, 7} & found.keys()
    said = capsys.readouterr().err
    for words in ("with an equal text", "with an equal label", "without an original"):
        assert f"1 {words} left out of pairs" in said
    trained = 8 in data.dataset("train").index
    assert (9 in found) != trained
    assert ("1 with a text of the training split left out" in said) == trained


def test_a_row_without_a_value_is_an_original(tmp_path: Path) -> None:
    ids: list[Any] = [None if n in (0, 1) else n for n in ROWS["id"]]
    found = pairs_of(module(corpus(tmp_path, id=ids)), "test")
    assert min(found) == 5
    assert len(found) == PAIRS - 2


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no column": ({}, {"edit_of": "pair"}, r"no column 'pair'.*set edit_of"),
    "no column of edits": ({}, {"edited": "revised"}, r"no column 'revised'.*set edited"),
    "three texts": ({"id": [0, 0, 0, *ROWS["id"][3:]]}, {}, r"3 texts share the id.*set edited"),
    "two originals": (
        {"edited": [False, False, *ROWS["edited"][2:]]},
        {"edited": "edited"},
        r"2 texts that share the id.*0.*are originals: edited must be true",
    ),
    "texts of one": (
        {"id": list(range(2 * PAIRS))},
        {"edits_in": ["test"]},
        r"edit_of: id joins no text",
    ),
    "lists": ({"id": [[n] for n in ROWS["id"]]}, {}, r"column id .*edit_of needs single values"),
    "no split": ({}, {"edits_in": ()}, "at least one split"),
    "edits of no column": ({}, {"edit_of": None, "edited": "edited"}, "needs edit_of"),
}


@pytest.mark.parametrize(("columns", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    path = write_corpus(tmp_path / "corpus", train=ROWS, test=ROWS | columns)
    if columns.get("id", [0, 0])[:2] != [0, 0]:  # of both splits
        path = write_corpus(tmp_path / "corpus", train=ROWS | columns, test=ROWS | columns)
    with pytest.raises(InputError, match=message):
        module(path, **options).prepare()


def test_pairs_of_passages_and_queries(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {
        "passage": ["a man sits", "a man sits", "a dog sits"] * 8,
        "query": [f"he sits {n // 3}" if n % 3 != 1 else f"he runs {n // 3}" for n in range(24)],
        "label": [(n // 3 + n) % 3 for n in range(24)],
        "id": [n // 3 for n in range(24)],
        "side": ["original", "query", "passage"] * 8,
    }
    path = write_corpus(tmp_path / "corpus", train=rows, test=rows)
    data = PairDataModule(
        str(path), edit_of="id", edited="side", validation_fraction=0.4, cache_dir=str(tmp_path)
    )
    validation = data.dataset("validation").index
    assert len(validation) == 6
    assert pairs_of(data, "validation") == {i: i - i % 3 for i in validation.tolist() if i % 3}


def test_a_choice_of_groups() -> None:
    rows, groups = np.arange(100), np.arange(100) // 3
    chosen = [choose(rows, count, 5, groups) for count in (10, 40)]
    assert [len(x) for x in chosen] == [10, 40]  # with the last group, of one row
    for found in chosen:
        whole = np.isin(groups, groups[found])
        assert whole.sum() == len(found)


@pytest.mark.parametrize(
    ("name", "columns", "pairs"),
    [
        ("counterfactual_imdb", ["text"], 244),
        ("snli_counterfactual", ["text", "query_text"], 799),
    ],
)
def test_pairs_of_the_real_corpora_are_not_trained_on(
    part: tuple[Path, bool], name: str, columns: list[str], pairs: int
) -> None:
    data = parsed(name)
    train, test = (data.dataset(split) for split in ("train", "test"))
    assert train.edit_of is None or (train.edit_of < 0).all()
    found = pairs_of(data, "test")
    assert len(found) == pairs if part[1] else found
    texts, trained = (
        list(zip(*(table[column].to_pylist() for column in columns), strict=True))
        for table in (test.table, train.table)
    )
    places = {row: place for place, row in enumerate(test.index.tolist())}
    tested = [texts[places[row]] for pair in found.items() for row in pair]
    assert not set(tested) & set(trained)
    labels = test.labels
    assert labels is not None
    for edit, original in found.items():
        assert labels[places[edit]] != labels[places[original]]
        assert texts[places[edit]] != texts[places[original]]

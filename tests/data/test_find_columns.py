"""Which columns a table's texts, labels, words and tags are found in."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlight.data.find_columns import find_columns
from attnlight.data.sources import Source
from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError

TEXT = [f"text number {n}" for n in range(12)]
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(12)),
    "text": TEXT,
    "body": TEXT[::-1],
    "title": [f"title {n}" for n in range(12)],
    "premise": ["one of few"] * 6 + ["another"] * 6,
    "hypothesis": TEXT,
    "words": [text.split() for text in TEXT],
    "label": [0, 1] * 6,
    "stars": [1, 2, 3] * 4,
    "good": [True, False] * 6,
    "mood": ["up", "down"] * 6,
    "score": [n / 7 for n in range(12)],
    "grade": [1.0, 3.0, None] * 4,
    "half": [0.5, 1.0] * 6,
    "constant": ["en"] * 12,
    "tags": [["X", "Y", "Z"]] * 12,
    "numbers": [[1, 2, 3]] * 12,
}


def written(folder: Path, names: str) -> Source:
    """A file of JSON lines with these columns."""
    columns = {name: COLUMNS[name] for name in names.split()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Source(path=str(folder / "rows.jsonl"), split="train")


NO_LISTS = {"word_column": ["no column has lists of words"]}
NO_LISTS |= {"label_column": ["no column has lists of tags"]}
TEXTS, TAGS = ("text", "label"), ("word_column", "label_column")
PAIRS = ("passage", "query", "label")


@pytest.mark.parametrize(
    ("names", "null", "found", "unclear"),
    [
        ("id body mood constant score", TEXTS, {"text": "body", "label": "mood"}, {}),
        ("id body stars", TEXTS, {"text": "body", "label": "stars"}, {}),
        ("body good", TEXTS, {"text": "body", "label": "good"}, {}),
        ("body half grade", TEXTS, {"text": "body", "label": "grade"}, {}),
        ("body text mood label", TEXTS, {"text": "text", "label": "label"}, {}),
        ("body text mood stars", ["text"], {"text": "text"}, {}),
        ("words mood", TEXTS, {"tokens": "words", "label": "mood"}, {}),
        ("body title mood", TEXTS, {"label": "mood"}, {"text": ["body", "title"]}),
        ("body mood stars", TEXTS, {"text": "body"}, {"label": ["mood", "stars"]}),
        (
            "body id",
            TEXTS,
            {"text": "body"},
            {"label": ["no column has few different values"]},
        ),  # none has classes
        ("body title mood stars", ["label"], {}, {"label": ["mood", "stars"]}),
        ("absent", [], {}, {}),  # nothing is read
        ("id words tags", TAGS, {"word_column": "words", "label_column": "tags"}, {}),
        ("tags numbers", TAGS, {"word_column": "tags", "label_column": "numbers"}, {}),
        (
            "words tags numbers",
            TAGS,
            {"word_column": "words"},
            {"label_column": ["tags", "numbers"]},
        ),
        ("body mood", TAGS, {}, NO_LISTS),
        (
            "premise hypothesis mood",  # premises are told by their name alone
            PAIRS,
            {"passage": "premise", "query": "hypothesis", "label": "mood"},
            {},
        ),
        (
            "body hypothesis label",
            PAIRS,
            dict(zip(PAIRS, ("body", "hypothesis", "label"), strict=True)),
            {},
        ),
        (
            "body title mood",
            PAIRS,
            {"label": "mood"},
            {"passage": ["body", "title"], "query": ["body", "title"]},
        ),
    ],
)
def test_columns_are_found_where_one_can_be_meant(
    tmp_path: Path, names: str, null: list[str], found: object, unclear: object
) -> None:
    source = written(tmp_path, names) if null else Source(path="absent.csv")
    assert find_columns(source, null, []) == (found, unclear)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_columns_that_another_sign_separates_are_one(tmp_path: Path, delimiter: str) -> None:
    rows = ["text,label", *(f"{text},{number % 2}" for number, text in enumerate(TEXT))]
    (tmp_path / "rows.csv").write_text("\n".join(rows).replace(",", delimiter))
    said = (
        r"rows.csv has only one column, 'text.+label': separate its columns by commas, or by tabs"
    )
    with pytest.raises(InputError, match=said):
        TextDataModule(str(tmp_path / "rows.csv")).resolve("fit")


def test_a_text_with_an_unquoted_comma_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("text;label\ndull;0\ngood, or so;1\n")
    said = r"lines of .*rows.csv differ in their columns \(Expected 1 fields in line 3, saw 2\): "
    with pytest.raises(InputError, match=said):
        TextDataModule(str(tmp_path / "rows.csv")).resolve("fit")
    assert not any(capfd.readouterr())  # `datasets` logs the same


def test_a_column_of_another_meaning_is_not_taken(tmp_path: Path) -> None:
    source = written(tmp_path, "body title mood stars")
    found = {"text": "body", "label": "stars"}
    assert find_columns(source, TEXTS, ["title", None, "mood"]) == (found, {})


@pytest.mark.parametrize(
    ("names", "column"), [("words tags numbers", "numbers"), ("words tags", "tags")]
)
def test_a_last_column_is_taken_where_there_is_no_other(
    tmp_path: Path, names: str, column: str
) -> None:
    found = {"word_column": "words", "label_column": column}
    assert find_columns(written(tmp_path, names), TAGS, [], last="tags") == (found, {})


def test_what_is_left_open_is_one_sentence(tmp_path: Path) -> None:
    source = written(tmp_path, "body title mood stars")
    said = (
        r"rows.jsonl leaves open what is meant: set --data.text \(body or title\) and --data.label "
    )
    with pytest.raises(InputError, match=said + r"\(mood or stars\)"):
        TextDataModule(str(source.path)).resolve("fit")
    found = TextDataModule(str(source.path), text="title", label="mood").resolve("fit")
    assert found == {"train": "train", "test_fraction": 0.2, "validation_fraction": 0.1}

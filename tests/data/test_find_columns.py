"""Which columns a table's texts, labels, words and tags are found in."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlight.data.find_columns import find_columns, find_tag_columns, require_found
from attnlight.data.sources import Source
from attnlight.data.tagged import TaggedColumns
from attnlight.errors import InputError

TEXT = [f"text number {n}" for n in range(12)]
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(12)),
    "text": TEXT,
    "body": TEXT[::-1],
    "title": [f"title {n}" for n in range(12)],
    "words": [text.split() for text in TEXT],
    "label": [0, 1] * 6,
    "stars": [1, 2, 3] * 4,
    "good": [True, False] * 6,
    "mood": ["up", "down"] * 6,
    "score": [n / 7 for n in range(12)],
    "constant": ["en"] * 12,
    "tags": [["X", "Y", "Z"]] * 12,
    "numbers": [[1, 2, 3]] * 12,
}


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


def written(folder: Path, names: str, **given: Any) -> Source:
    """A file of JSON lines with these columns."""
    columns = {name: COLUMNS[name] for name in names.split()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Source(path=str(folder / "rows.jsonl"), split="train", **given)


@pytest.mark.parametrize(
    ("names", "given", "found", "unclear"),
    [
        ("id body mood constant score", {}, {"text": "body", "label": "mood"}, {}),
        ("id body stars", {}, {"text": "body", "label": "stars"}, {}),
        ("body good", {}, {"text": "body", "label": "good"}, {}),
        ("body text mood label", {}, {"text": "text", "label": "label"}, {}),  # as they are called
        ("body text mood stars", {"label": "stars"}, {"text": "text"}, {}),
        ("body mood label", {}, {"text": "body", "label": "label"}, {}),
        ("words mood", {}, {"tokens": "words", "label": "mood"}, {}),
        ("body title mood", {}, {"label": "mood"}, {"text": ["body", "title"]}),
        ("body title mood", {"text": ["title", "body"]}, {"label": "mood"}, {}),
        ("body mood stars", {}, {"text": "body"}, {"label": ["mood", "stars"]}),
        ("body id", {}, {"text": "body"}, {"label": ["body", "id"]}),  # none has classes
        ("body title mood stars", {}, {}, {"text": ["body", "title"], "label": ["mood", "stars"]}),
        ("body mood", {"text": "x", "label": "y"}, {}, {}),  # nothing is read
    ],
)
def test_columns_of_texts_and_labels(
    tmp_path: Path, names: str, given: Any, found: object, unclear: object
) -> None:
    assert find_columns(written(tmp_path, names, **given), []) == (found, unclear)


def test_a_column_of_another_meaning_is_not_taken(tmp_path: Path) -> None:
    source = written(tmp_path, "body title mood stars")
    assert find_columns(source, ["title", None, "mood"]) == ({"text": "body", "label": "stars"}, {})


@pytest.mark.parametrize(
    ("names", "given", "found", "unclear"),
    [
        ("id words tags", {}, {"word_column": "words", "label_column": "tags"}, {}),
        ("words tags numbers", {"pos_column": "tags"}, {"label_column": "numbers"}, {}),
        ("words tags", {"pos_column": "tags"}, {"label_column": "tags"}, {}),
        ("words tags numbers", {"mark_columns": {"m": "numbers"}}, {"label_column": "tags"}, {}),
        ("words tags numbers", {}, {}, {"label_column": ["tags", "numbers"]}),
        ("tags numbers", {}, {"word_column": "tags", "label_column": "numbers"}, {}),
    ],
)
def test_columns_of_words_and_tags(
    tmp_path: Path, names: str, given: Any, found: dict[str, str], unclear: object
) -> None:
    found = found if "tags numbers" == names else {"word_column": "words"} | found
    assert find_tag_columns(written(tmp_path, names), TaggedColumns(**given)) == (found, unclear)


@pytest.mark.parametrize(("name", "columns"), [("x.conll", (0, -1)), ("x.conllu", (1, 3))])
def test_columns_of_files_with_a_token_on_each_line(
    tmp_path: Path, name: str, columns: tuple[int, int]
) -> None:
    (tmp_path / name).write_text("a X\n")
    found = find_tag_columns(Source(path=str(tmp_path / name), split=name), TaggedColumns())
    assert found == (dict(zip(("word_column", "label_column"), columns, strict=True)), {})


def test_what_is_left_open_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no lists of words and of tags: give JSON lines"):
        find_tag_columns(written(tmp_path, "body mood"), TaggedColumns())
    said = r"x.csv leaves open .* set text \(a or b\) and label \(c\), .*`--data.text a --data.label c`"
    with pytest.raises(InputError, match=said):
        require_found("x.csv", {"text": ["a", "b"], "label": ["c"]})
    require_found("x.csv", {})

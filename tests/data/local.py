"""Small corpora in the hub's local layout."""

import csv
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import datasets
import pytest

needs_gensim = pytest.mark.skipif(
    sys.version_info >= (3, 14) and find_spec("gensim") is None,
    reason="gensim has no wheels for this Python",
)


def write_corpus(
    folder: Path, names: list[str] | None = None, **splits: dict[str, list[Any]]
) -> Path:
    """Write `<folder>/data/<split>-00000-of-00001.parquet`; `names` are those of the classes."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split, columns in splits.items():
        rows = datasets.Dataset.from_dict(columns)
        if names is not None:
            rows = rows.cast_column("label", datasets.ClassLabel(names=names))
        rows.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    return folder


def write_table(
    file: Path, rows: Iterable[Sequence[Any]], names: Sequence[str] = ("text", "label")
) -> None:
    """Write a CSV file with these names of columns, into a folder that may be missing."""
    file.parent.mkdir(exist_ok=True)
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *rows])


def write_yahoo(folder: Path, rows: int = 40) -> Path:
    """`<folder>/yahoo_answers_topics`, with the columns of the hub's and ten topics."""
    columns = {
        "id": list(range(rows)),
        "topic": [row % 10 for row in range(rows)],
        "question_title": ["Why?"] * rows,
        "question_content": ["I ask", ""] * (rows // 2),
        "best_answer": ["Because 9.\\nSo."] * rows,
    }
    return write_corpus(folder / "yahoo_answers_topics", train=columns, test=columns)

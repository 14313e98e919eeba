"""Column files: one token per line, empty lines between sentences (CoNLL-2000, CoNLL-U)."""

import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import pyarrow

from attnlight.data.sources import Dataset
from attnlight.errors import InputError

LINE = "line"  # where the sentence begins in its file, counted from 1
SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".txt")  # of files in this format alone
_CHUNK = 1000
_NO_TOKEN = re.compile(r"#|\d+[-.]\d")

Sentence = tuple[int, list[list[str]]]


def read_sentences(file: Path, columns: Sequence[int]) -> Iterator[Sentence]:
    """The sentences of a file, each as the line of its first token and the values of each column.

    Columns are separated by white space; in CoNLL-U, a file that ends in `.conllu`, by tabs, and lines of
    comments, of words that are divided into tokens (`1-2`) and of empty nodes (`1.1`) are left out. Lines by
    which CoNLL-2003 parts documents (`-DOCSTART-`) are no tokens either; a byte order mark is no part of
    a word.

    Args:
        file: The file, UTF-8, gzip-compressed if it ends in `.gz`.
        columns: Numbers of the columns to read, from 0; negative ones count from the last.
    """
    values: list[list[str]] = [[] for _ in columns]
    first, conllu = 1, file.suffix == ".conllu"
    try:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(chain(lines, [""]), 1):
                if conllu and _NO_TOKEN.match(line):
                    continue
                cells = line.strip().split("\t" if conllu and line.strip() else None)
                if not cells or cells[0] == "-DOCSTART-":
                    if values[0]:
                        yield first, values
                        values = [[] for _ in columns]
                    first = number + 1
                    continue
                for column_values, column in zip(values, columns, strict=True):
                    if not -len(cells) <= column < len(cells):
                        raise InputError(
                            f"{file}, line {number}, has {len(cells)} columns; expected column "
                            f"{column} (counted from 0)."
                        )
                    column_values.append(cells[column])
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"{file} cannot be read as text in columns: {error}") from error


def load_columns(file: Path, columns: Sequence[int], stream: Path) -> Dataset:
    """The sentences of a column file as rows, read by memory map from the Arrow file `stream`.

    A row has `line`, and a list of strings per column, named by its number.
    """
    import datasets

    names = [str(column) for column in columns]
    lists = {name: pyarrow.list_(pyarrow.string()) for name in names}
    schema = pyarrow.schema({LINE: pyarrow.int64()} | lists)
    stream.parent.mkdir(parents=True, exist_ok=True)
    sentences = read_sentences(file, columns)
    with pyarrow.ipc.new_stream(str(stream), schema) as writer:
        while chunk := list(islice(sentences, _CHUNK)):
            lines, values = zip(*chunk, strict=True)
            chunk_columns = dict(zip(names, zip(*values, strict=True), strict=True))
            writer.write_table(pyarrow.table({LINE: lines} | chunk_columns, schema=schema))
    rows = datasets.Dataset.from_file(str(stream))
    if not len(rows):
        raise InputError(f"{file} holds no sentence.")
    return rows

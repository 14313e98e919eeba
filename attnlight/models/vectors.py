"""Files of word vectors: word2vec (text and binary), fastText .vec and GloVe, also gzipped."""

import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from attnlight.errors import InputError

_Entry = tuple[bytes, NDArray[np.float32], str]  # a word, its vector, and its place in the file
_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)


class WordVectors(NamedTuple):
    """Vectors of a vocabulary.

    Attributes:
        matrix: One row for each id, zero for words that are not in the file, (V, E) float32.
        covered: Whether each id has a vector, (V,) bool.
    """

    matrix: Tensor
    covered: Tensor


def read_vectors(
    path: str | Path, vocabulary: Mapping[str, int], *, normalized: bool = False
) -> WordVectors:
    """Vectors of a vocabulary's words, from a file of any size.

    The format is inferred from the content: a word2vec (text or binary) or fastText file begins
    with a line of two integers, any other file is GloVe's. The file is streamed, and only vectors
    of the vocabulary are stored; of a repeated word the first counts.

    Args:
        path: The file, gzipped or not.
        vocabulary: Id of each word, from 0 without gaps.
        normalized: Scale vectors to L2 norm 1; a vector of zeros is unchanged.

    Raises:
        InputError: The file cannot be read, or an entry does not fit the format; names file and
            line.
    """
    path = Path(path)
    ids = {word.encode(): number for word, number in vocabulary.items()}
    try:
        with path.open("rb") as start:
            zipped = start.read(2) == b"\x1f\x8b"
        with (
            gzip.open(path, "rb") if zipped else path.open("rb", buffering=0) as opened,
            io.BufferedReader(cast("io.RawIOBase", opened)) as file,
        ):
            first = file.readline()
            header = re.fullmatch(rb"\s*(\d+)\s+(\d+)\s*", first)
            size = int(header[2]) if header else len(first.split()) - 1
            if size < 1:
                raise InputError(
                    f"{path}, line 1: expected a word and its vector, or a number of words and a "
                    "size"
                )
            if header is None:
                entries = _read_text(chain([first], file), path, size, None, ids)
            # Text has no control characters; binary floats nearly always do.
            elif re.search(rb"[\x00-\x08\x0e-\x1f]", file.peek(4096)[:4096]):
                entries = _read_binary(file, path, size, int(header[1]), ids)
            else:
                entries = _read_text(file, path, size, int(header[1]), ids)
            matrix = np.zeros((len(ids), size), dtype=np.float32)
            covered = np.zeros(len(ids), dtype=np.bool_)
            for word, vector, place in entries:
                if not np.isfinite(vector).all():
                    raise InputError(f"{path}, {place}: the vector has numbers that are not finite")
                row = ids[word]
                if not covered[row]:
                    matrix[row], covered[row] = vector, True
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as a file of word vectors: {error}") from error
    vectors = torch.from_numpy(matrix)
    vectors = normalize(vectors, dim=-1) if normalized else vectors
    return WordVectors(vectors, torch.from_numpy(covered))


def _read_text(
    lines: Iterable[bytes], path: Path, size: int, count: int | None, words: Collection[bytes]
) -> Iterator[_Entry]:
    """Entries of lines `word x x x`; a word may contain spaces, as some of GloVe 840B do."""
    entries = 0
    for number, raw in enumerate(lines, start=1 if count is None else 2):
        line = raw.rstrip()
        if not line:
            continue
        entries += 1
        spaces = line.count(b" ")
        word = line[: line.find(b" ")] if spaces == size else line.rsplit(b" ", size)[0]
        if spaces < size or (spaces > size and _NUMBER.fullmatch(word.split(b" ")[-1])):
            raise InputError(f"{path}, line {number}: expected a word and {size} numbers")
        if word in words:
            try:
                numbers = [float(field) for field in line[len(word) :].split()]
            except ValueError as error:
                raise InputError(f"{path}, line {number}: {error}") from error
            with np.errstate(over="ignore"):  # overflow becomes inf, which is refused as not finite
                vector = np.array(numbers, dtype=np.float32)
            yield word, vector, f"line {number}"
    if count is not None and entries != count:
        raise InputError(f"{path}, line 1: announces {count} words, but {entries} follow")


def _read_binary(
    file: "io.BufferedReader[Any]", path: Path, size: int, count: int, words: Collection[bytes]
) -> Iterator[_Entry]:
    """Entries of a word, a space and little-endian floats; some writers end them with a newline."""
    buffer, start, width = b"", 0, 4 * size
    for entry in range(1, count + 1):
        while (space := buffer.find(b" ", start)) < 0 or len(buffer) <= space + width:
            chunk = file.read(1 << 20)
            if not chunk:
                raise InputError(
                    f"{path}, line 1: announces {count} words; word {entry} is cut off"
                )
            buffer, start = buffer[start:] + chunk, 0
        word = buffer[start:space].lstrip(b"\n")
        start = space + 1 + width
        if word in words:
            yield word, np.frombuffer(buffer, "<f4", size, space + 1), f"word {entry}"
    if (buffer[start:] + file.read(1)).strip():
        raise InputError(f"{path}, line 1: announces {count} words of size {size}; more follow")

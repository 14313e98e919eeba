import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.errors import InputError
from attnlight.models import read_vectors

WORDS = {"[PAD]": 0, "[UNK]": 1, "film": 2, "naïve": 3, ". . .": 4, "absent": 5}
FILE = {
    ".": [9.0, 9.0, 9.0],
    "film": [0.5, -1.25, 3e-2],
    "unwanted": [7.0, 7.0, 7.0],
    "naïve": [1.0, 2.0, -0.0078125],
    "Film": [8.0, 8.0, 8.0],
}


def line(word: str, vector: list[float], end: str = "\n") -> bytes:
    return f"{word} {' '.join(map(str, vector))}{end}".encode()


def glove(words: dict[str, list[float]]) -> bytes:
    return b"".join(line(word, vector) for word, vector in words.items())


def word2vec_text(words: dict[str, list[float]]) -> bytes:
    # word2vec and fastText end each line with a space.
    return f"{len(words)} 3\n".encode() + b"".join(line(w, v, " \n") for w, v in words.items())


def word2vec_binary(words: dict[str, list[float]], end: bytes = b"\n") -> bytes:
    entries = (word.encode() + b" " + struct.pack("<3f", *v) + end for word, v in words.items())
    return f"{len(words)} 3\n".encode() + b"".join(entries)


TWICE = line("film", [1.0, 2.0, 3.0]) + line("film", [4.0, 5.0, 6.0]) + b"\n"
OF_SEVERAL_WORDS = {",": [0.0] * 3, ". . .": [1.0, 2.0, 3.0], "at name@domain.com": [5.0] * 3}
KNOWN = {word: FILE[word] for word in ("film", "naïve")}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("content", "known"),
    [
        (glove(FILE), KNOWN),
        (word2vec_text(FILE), KNOWN),
        (word2vec_binary(FILE), KNOWN),
        (word2vec_binary(FILE, end=b""), KNOWN),
        (glove(OF_SEVERAL_WORDS), {". . .": [1.0, 2.0, 3.0]}),
        (TWICE, {"film": [1.0, 2.0, 3.0]}),
    ],
)
def test_formats(tmp_path: Path, content: bytes, known: dict[str, Any], zipped: bool) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(gzip.compress(content) if zipped else content)
    matrix, found = read_vectors(path, WORDS)
    assert found.tolist() == [word in known for word in WORDS]
    assert torch.equal(matrix, torch.tensor([known.get(word, [0.0] * 3) for word in WORDS]))


def test_binary_entries_across_reads(tmp_path: Path) -> None:
    """The file is longer than the buffers it is read through, and entries straddle them."""
    words = {f"w{number}": [float(number), -1.0, 0.5] for number in range(100_000)}
    path = tmp_path / "vectors.bin"
    path.write_bytes(word2vec_binary(words))
    assert path.stat().st_size > 3 * 2**19
    matrix, found = read_vectors(path, {word: i for i, word in enumerate(words)})
    assert found.all()
    assert torch.equal(matrix[:, 0], torch.arange(100_000.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1"),
        (b"film\n", "line 1"),
        (line("film", [1.0, 2.0]) + line("good", [1.0]), "line 2: expected a word and 2 numbers"),
        (line("film", [1.0, 2.0]) + line("good", [1.0] * 3), "line 2: expected a word and 2"),
        (b"a 1 2\nfilm 1 x\n", "line 2: could not convert"),
        (b"a 1 2\nfilm 1 nan\n", "line 2: the vector has numbers that are not finite"),
        (b"a 1 2\nfilm 1 1e60\n", "line 2: the vector has numbers that are not finite"),
        (b"3 2\nfilm 1 2\ngood 1 2\n", "line 1: announces 3 words, but 2 follow"),
        (b"1 2\nfilm 1 2\ngood 1 2\n", "line 1: announces 1 words, but 2 follow"),
        (b"2 3\nfilm 1 2\ngood 1 2\n", "line 2: expected a word and 3 numbers"),
        (word2vec_binary(FILE)[:-5], "line 1: announces 5 words; word 5 is cut off"),
        (word2vec_binary(FILE) + b"more", "line 1: announces 5 words of size 3; more follow"),
        (word2vec_binary({"film": [float("nan")] * 3}), "word 1: the vector has numbers"),
        (gzip.compress(glove(FILE) * 50)[:-30], "cannot be read"),
        (b"\x1f\x8bnot gzip", "cannot be read"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.vec"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_vectors(path, WORDS)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["absent.vec", "."])
def test_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read as a file of word vectors"):
        read_vectors(tmp_path / name, WORDS)

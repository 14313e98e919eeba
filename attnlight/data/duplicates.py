"""Texts that occur more than once in a corpus."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Rows = NDArray[np.int64]


def text_keys(texts: Iterable[Sequence[str]], rows: Rows, size: int) -> Keys:
    """A number for the text of each row of a source, (size,): equal for equal texts.

    White space is ignored. The number is 0 for texts without a word and for rows other than `rows`,
    whose texts are given in chunks.
    """
    keys = np.zeros(size, np.uint64)
    words = (
        " ".join(text.split()).encode("utf-8", "surrogatepass") for chunk in texts for text in chunk
    )
    digests = (blake2b(text, digest_size=8).digest() if text else bytes(8) for text in words)
    keys[rows] = np.frombuffer(b"".join(digests), "<u8")
    return keys


def story_keys(passages: Iterable[Sequence[Sequence[str]]], rows: Rows, size: int) -> Keys:
    """A number for the story of each row of a source, (size,): equal for passages of one story.

    The story of a passage is the shortest passage of the source whose sentences it begins with; it
    may be the passage itself. All else is as in `text_keys`.
    """
    beginnings: list[list[int]] = []  # numbers of the first sentence, of the first two, and so on
    for passage in chain.from_iterable(passages):
        beginnings.append([])
        digest = blake2b(digest_size=8)
        for words in filter(None, (" ".join(sentence.split()) for sentence in passage)):
            digest.update(f"{words}\n".encode("utf-8", "surrogatepass"))
            beginnings[-1].append(int.from_bytes(digest.digest(), "little"))
    whole = {found[-1] for found in beginnings if found}
    keys = np.zeros(size, np.uint64)
    keys[rows] = [next((key for key in found if key in whole), 0) for found in beginnings]
    return keys


def also_in(keys: Mapping[str, Keys]) -> dict[str, dict[str, dict[str, int]]]:
    """How many texts of each split also occur in an earlier one, for `corpus.json`, by `text_keys`.

    By split, `{"also_in": {earlier split: texts}}`, or `{}` where there are none. Texts without a
    word are not counted.
    """
    result: dict[str, dict[str, dict[str, int]]] = {}
    for split, split_keys in keys.items():
        words = split_keys[split_keys != 0]
        counts = {earlier: int(np.isin(words, keys[earlier]).sum()) for earlier in result}
        counts = {earlier: count for earlier, count in counts.items() if count}
        result[split] = {"also_in": counts} if counts else {}
    return result

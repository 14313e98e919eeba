"""Splits of sentences with a tag for each token: written and batched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from attnlight.batch import BOS, PAD, SPECIAL_TOKENS, TextBatch
from attnlight.data.dataset import TokenDataset, save_split
from attnlight.data.features import CHARACTERS, TokenFeatures
from attnlight.data.tagged import Tagged
from attnlight.data.targets import IGNORED, Target
from attnlight.data.tokenization import encode_texts
from attnlight.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TAGS = "tags"
_ROWS = 1000  # encoded, and counted, at a time


class TaggedDataset(TokenDataset):
    """Sentences of one split of a prepared corpus.

    Labels of a batch are (B, N), -100 on padding and where nothing is asked for.
    """

    def __init__(self, folder: str | Path, nested: bool = False) -> None:
        super().__init__(folder, nested)
        self.extras.remove(TAGS)

    @override
    def __getitem__(self, positions: int | Sequence[int]) -> TextBatch:
        batch = super().__getitem__(positions)
        batch.labels = batch.extras.pop(TAGS).long().masked_fill(~batch.mask, IGNORED)
        return batch

    @override
    def label_counts(self, classes: int) -> list[int]:
        counts = np.zeros(classes, np.int64)
        for start in range(0, len(self), _ROWS):
            labels = self[range(start, min(start + _ROWS, len(self)))].labels
            assert labels is not None  # `__getitem__` sets them
            counts += np.bincount(labels[labels != IGNORED], minlength=classes)
        found: list[int] = counts.tolist()
        return found

    @override
    def words(self, position: int) -> list[str]:
        words: list[str] = self.table["words"][position].as_py()
        before = len(self._tokens[position]) - len(words)
        return [SPECIAL_TOKENS[BOS]] * before + words


def write_tagged(
    folder: Path,
    sentences: Iterator[Tagged],
    tokenizer: Tokenizer,
    features: TokenFeatures,
    numbers: Mapping[str, int],
    target: Target,
) -> None:
    """Write a split of a prepared corpus (`save_split`).

    Columns: `index`, `length`, `tokens`, `tags` (labels), those of the target and of the features,
    and `words`.

    Args:
        folder: Folder to write.
        sentences: The sentences, checked.
        tokenizer: Tokenizer of the corpus, which makes one token of each word.
        features: What else is kept of each token.
        numbers: Number of each tag.
        target: What is asked of a sentence.
    """
    import pyarrow

    kinds = {"index": pyarrow.int64(), "length": pyarrow.int32()}
    kinds |= {"tokens": pyarrow.list_(pyarrow.int32()), TAGS: pyarrow.list_(pyarrow.int16())}
    kinds |= {name: pyarrow.list_(pyarrow.int8()) for name in target.columns}
    for name in features.rules.columns:
        packed = name.startswith(CHARACTERS)
        kinds[name] = pyarrow.list_(pyarrow.int64() if packed else pyarrow.int32())
    kinds["words"] = pyarrow.list_(pyarrow.string())
    chunks = iter(lambda: list(islice(sentences, _ROWS)), [])
    columns = (_encoded(chunk, tokenizer, features, numbers, target) for chunk in chunks)
    save_split(folder, pyarrow.schema(kinds), columns)


def _encoded(
    sentences: Sequence[Tagged],
    tokenizer: Tokenizer,
    features: TokenFeatures,
    numbers: Mapping[str, int],
    target: Target,
) -> dict[str, Any]:
    ids, _ = encode_texts(tokenizer, [" ".join(sentence.words) for sentence in sentences])
    for sentence, found in zip(sentences, ids, strict=True):
        if len(found) != len(sentence.words):
            raise InputError(
                f"{sentence.place} has {len(sentence.words)} words, but {len(found)} tokens."
            )
    seen = [features.encode(sentence.words, sentence.pos) for sentence in sentences]
    labels = [target.labels(s.tags, numbers, s.marked) for s in sentences]
    marks = [[int(label != IGNORED) for label in found] for found in labels]
    none = [PAD] * len(target.before)
    return {
        "index": [sentence.row for sentence in sentences],
        "length": [len(found) for found in labels],
        "tokens": [[*target.before, *found] for found in ids],
        TAGS: labels,
        **dict.fromkeys(target.columns, marks),
        **{name: [[*none, *columns[name]] for columns in seen] for name in features.rules.columns},
        "words": [sentence.words for sentence in sentences],
    }

"""Per-token columns made from lists of words: which tokens of a prepared corpus are one of them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from tokenizers import Tokenizer

from attnlight.batch import MARKED, SEGMENT
from attnlight.data.dataset import COLUMNS, TAGS, TokenDataset, rewrite_split
from attnlight.errors import InputError, did_you_mean

_RESERVED = (*COLUMNS, TAGS, MARKED, SEGMENT)


def check_columns(option: str, columns: Iterable[str], taken: Sequence[str] = ()) -> None:
    """Refuse names of an option that other columns of prepared corpora have."""
    for column in columns:
        if column in (*_RESERVED, *taken):
            raise InputError(f"{option} names {column}, which is a reserved column: rename it.")


def mark_words(folder: Path, corpus_name: str, marks: Mapping[str, Sequence[str]]) -> None:
    """Add a column to each split of a prepared corpus for each list of `marks`: 1 on such tokens.

    A token is compared as its source writes it, after the normalisation of the corpus's tokenizer
    (such as lower case), so that words outside the vocabulary are found too. `corpus.json` counts
    the texts with such a token (`marked`).
    """
    description = folder / "corpus.json"
    corpus = json.loads(description.read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    normalizer = tokenizer.normalizer

    @cache
    def normal(word: str) -> str:
        return word if normalizer is None else str(normalizer.normalize_str(word))

    for column, words in marks.items():
        if column in corpus.get("extras", ()):
            raise InputError(
                f"marks names {column}, which {corpus_name} has already: rename one of the two."
            )
        for word in words:
            count = len(tokenizer.encode(word, add_special_tokens=False).tokens)
            if count != 1:
                raise InputError(
                    f"marks.{column} has {word!r}, which is {count} tokens of {corpus_name}; "
                    "expected single tokens."
                )
    listed = {column: {normal(word) for word in words} for column, words in marks.items()}
    kinds, found = dict.fromkeys(marks, pyarrow.list_(pyarrow.int8())), Counter[str]()
    for split, counts in corpus["splits"].items():
        texts_with = counts["marked"] = dict.fromkeys(marks, 0)

        def marked(
            texts: TokenDataset, places: range, texts_with: dict[str, int] = texts_with
        ) -> dict[str, Any]:
            tokens = [[normal(word) for word in texts.words(place)] for place in places]
            columns = {}
            for column, known in listed.items():
                columns[column] = [[int(word in known) for word in text] for text in tokens]
                texts_with[column] += sum(map(any, columns[column]))
            return columns

        rewrite_split(folder / split, marked, kinds)
        found.update(texts_with)
    for column, words in marks.items():
        if not found[column]:
            shown = ", ".join(words[:5]) + ", ..." * (len(words) > 5)
            raise InputError(
                f"none of the words of marks.{column} ({shown}) occurs in "
                f"{corpus_name}{did_you_mean(normal(words[0]), tokenizer.get_vocab())}."
            )
    corpus["extras"] = [*corpus.get("extras", ()), *marks]
    description.write_text(json.dumps(corpus, indent=2), encoding="utf-8")

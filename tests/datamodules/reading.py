"""Prepared corpora, and their sources, as the tests of corpora read them."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from jsonargparse import ArgumentParser
from numpy.typing import NDArray

from attnlight.batch import SPECIAL_TOKENS, UNK
from attnlight.datamodules import CorpusDataModule, TextDataModule
from tests.commands import CONFIGS

SPLITS = ("train", "validation", "test")


def module(path: Path, **options: Any) -> TextDataModule:
    given = {"path": str(path), "cache_dir": str(path.parent / "cache")} | options
    return TextDataModule(**given)


def parsed(content: Any) -> Any:
    """The corpus of a configuration: the name of a shipped one, or its content."""
    parser = ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    if isinstance(content, str):
        content = str(CONFIGS / f"data/{content}.yaml")
        return parser.instantiate_classes(parser.parse_args(["--data", content])).data
    return parser.instantiate_classes(parser.parse_object({"data": content})).data


def negated(data: CorpusDataModule, split: str) -> NDArray[np.bool_]:
    """Which planted texts have a keyword after a negator."""
    texts = data.dataset(split)
    pairs = (pairwise(texts.words(place)) for place in range(len(texts)))
    return np.array([any(a[:3] == "not" and b[:6] != "filler" for a, b in each) for each in pairs])


def prepared(data: CorpusDataModule, split: str) -> datasets.Dataset:
    return datasets.load_from_disk(str(data.prepare() / split))


def summary(data: CorpusDataModule) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((data.prepare() / "corpus.json").read_text())
    return counts


def sizes(data: CorpusDataModule) -> dict[str, int]:
    return {split: counts["rows"] for split, counts in summary(data)["splits"].items()}


def vocabulary_of(data: CorpusDataModule) -> dict[str, int]:
    found: dict[str, int] = json.loads(data.tokenizer_json)["model"]["vocab"]
    return found


def ids_of(data: CorpusDataModule, words: Iterable[str]) -> list[int]:
    vocabulary = vocabulary_of(data)
    return [vocabulary.get(word, UNK) for word in words]


def check_vocabulary(
    data: CorpusDataModule, documents: Iterable[Iterable[str]], least: int = 1
) -> dict[str, int]:
    """By plain counting: falling number of documents, then alphabetical."""
    counts = Counter(word for document in documents for word in set(document))
    words = sorted((w for w in counts if counts[w] >= least), key=lambda w: (-counts[w], w))
    vocabulary = vocabulary_of(data)
    assert vocabulary == {word: n for n, word in enumerate([*SPECIAL_TOKENS, *words])}
    return vocabulary


def table(folder: Path, split: str) -> pd.DataFrame:
    """A split of a source in the hub's layout."""
    return pd.read_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")

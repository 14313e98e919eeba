"""Word vectors trained on the text of a corpus with gensim's word2vec."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.dataset import TokenDataset
from attnlight.errors import InputError, require_at_least

_LONGEST = 10_000  # words of a sentence that gensim reads


@dataclass(frozen=True)
class Word2VecSettings:
    """How word vectors are trained: continuous bag of words, as Serrano & Smith (2019) train them.

    All other settings are gensim's defaults: 5 negative samples, subsampling of words more frequent
    than 1e-3, a learning rate that decays from 0.025 to 1e-4.

    Args:
        size: Size E of a vector.
        epochs: Passes over the text.
        window: Maximum distance of the words that predict a word; the distance is drawn per word.
        min_count: Minimum number of occurrences of a word with a vector.
        seed: Seed of the initial vectors and of sampling.
    """

    size: int = 300
    epochs: int = 30
    window: int = 5
    min_count: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("size", "epochs", "window", "min_count")}
        require_at_least(1, **numbers)
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be from 0 to {2**32 - 1}.")


@dataclass
class CorpusText:
    """Sentences of one or several prepared corpora as lists of words, without special tokens.

    A text that was not split is one sentence. Each pass streams the memory maps.

    Args:
        corpora: The tokenizer of each corpus as JSON text, and its splits to read.
    """

    corpora: Sequence[tuple[str, Sequence[TokenDataset]]]

    def __iter__(self) -> Iterator[list[str]]:
        special = len(SPECIAL_TOKENS)
        for tokenizer_json, splits in self.corpora:
            numbers: dict[str, int] = Tokenizer.from_str(tokenizer_json).get_vocab()
            words = sorted(numbers, key=numbers.__getitem__)
            for split in splits:
                for position in range(len(split)):
                    for ids in split.sentences(position):
                        yield [words[number] for number in ids if number >= special]


def train_word2vec(sentences: Iterable[Sequence[str]], settings: Word2VecSettings) -> Any:  # noqa: ANN401
    """Vectors of the words that occur often enough, as gensim's `KeyedVectors`, in order of frequency.

    The same sentences and settings give the same vectors in any process but for rounding: one
    worker reads the sentences in order, and gensim 4 initialises a word by the seed and the word's
    rank alone. Words with equal counts are ranked alphabetically. Windows do not cross sentences,
    which are read several times.

    Raises:
        InputError: gensim is not installed, or no word occurs often enough.
    """
    try:
        from gensim import models
    except ImportError as error:
        raise InputError(
            "training word vectors needs gensim: pip install attnlight[vectors]."
        ) from error
    pieces = _Pieces(sentences)
    counts: Counter[str] = Counter()
    total = 0
    for piece in pieces:
        counts.update(piece)
        total += 1
    frequent = [word for word, count in counts.items() if count >= settings.min_count]
    if not frequent:
        raise InputError(f"no word of the text occurs min_count = {settings.min_count} times.")
    ranked = sorted(frequent, key=lambda word: (-counts[word], word))
    model = models.Word2Vec(
        vector_size=settings.size,
        window=settings.window,
        min_count=settings.min_count,
        seed=settings.seed,
        workers=1,
        sorted_vocab=0,
    )
    logger = logging.getLogger("gensim")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns about small corpora
    try:
        model.build_vocab_from_freq({word: counts[word] for word in ranked})
        model.train(pieces, total_examples=total, epochs=settings.epochs)
    finally:
        logger.setLevel(level)
    return model.wv


@dataclass
class _Pieces:
    """Sentences divided at the length that gensim reads, without empty ones."""

    sentences: Iterable[Sequence[str]]

    def __iter__(self) -> Iterator[Sequence[str]]:
        for sentence in self.sentences:
            for start in range(0, len(sentence), _LONGEST):
                yield sentence[start : start + _LONGEST]

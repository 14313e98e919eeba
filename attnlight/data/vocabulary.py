"""Learn the vocabulary of a corpus: the words that have ids."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from tokenizers import trainers

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import TextRules, make_tokenizer, rust_threads
from attnlight.errors import InputError, require_at_least

Texts = Callable[[], Iterable[list[str]]]  # starts a pass over the texts, in chunks

_ALL = 10**9  # no limit, where the trainer's default is 30,000 words


@dataclass(frozen=True)
class VocabularyLimits:
    """Which words of the training texts have ids.

    Args:
        min_document_frequency: Minimum number of training texts that contain a word with a vector;
            of tagged sentences, also a suffix or character.
        max_vocabulary: Maximum number of words, those in most texts first.
    """

    min_document_frequency: int = 1
    max_vocabulary: int | None = None

    def __post_init__(self) -> None:
        require_at_least(1, **vars(self))


def learn_vocabulary(
    rules: TextRules,
    texts: Texts,
    limits: VocabularyLimits = VocabularyLimits(),
    sentences: SentenceRules | None = None,
) -> list[str]:
    """Words by descending document frequency, ties in alphabetical order; no special tokens.

    Two passes are made over the training texts, in chunks, and memory grows with the number of
    different words, not with the number of texts. Truncated tokens are not counted, nor those
    beyond the limits of `sentences`, by which texts are split.
    """
    # A word in k texts occurs at least k times, so the first pass finds all candidates.
    trainer = trainers.WordLevelTrainer(
        vocab_size=_ALL,
        min_frequency=limits.min_document_frequency,
        special_tokens=[],
        show_progress=False,
    )
    counter, parts = make_tokenizer(rules, ()), texts()
    if sentences is not None:
        parts = ([part for text in chunk for part in sentences.split(text)] for chunk in parts)
    with rust_threads():
        counter.train_from_iterator(parts, trainer)
    candidates = sorted(word for word in counter.get_vocab() if word not in SPECIAL_TOKENS)
    tokenizer = make_tokenizer(rules, candidates)
    frequencies = np.zeros(tokenizer.get_vocab_size(), np.int64)
    for chunk in texts():
        for row in encode_sentences(tokenizer, chunk, sentences).ids:
            frequencies[list(set(row))] += 1
    frequencies = frequencies[len(SPECIAL_TOKENS) :]
    order = np.argsort(-frequencies, kind="stable")  # stable: the candidates are alphabetical
    order = order[frequencies[order] >= limits.min_document_frequency][: limits.max_vocabulary]
    if not len(order):
        raise InputError(
            f"no word occurs in min_document_frequency = {limits.min_document_frequency} "
            "training texts"
        )
    return [candidates[position] for position in order]

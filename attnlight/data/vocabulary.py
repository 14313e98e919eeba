"""The words of a corpus that have an id of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import TextRules, encode_texts, make_tokenizer, rust_threads
from attnlight.errors import InputError

Texts = Callable[[], Iterable[list[str]]]  # starts a pass over the texts, in chunks

_ALL = 10**9  # the trainer keeps 30,000 words unless told otherwise


def learn_vocabulary(
    rules: TextRules,
    texts: Texts,
    min_document_frequency: int = 1,
    size: int | None = None,
    sentences: SentenceRules | None = None,
) -> list[str]:
    """Words by falling number of texts that have them, alphabetical where that is equal.

    Args:
        rules: How texts become tokens; what a cut drops is not counted.
        texts: Starts a pass over the training texts, in chunks; two passes are made, and memory
            grows with the number of different words, not with the number of texts.
        min_document_frequency: Texts that must have a word.
        size: Words to keep at most, special tokens not counted.
        sentences: How texts become sentences first, where they do; what its limits cut is not
            counted either.

    Raises:
        InputError: No word is left.
    """
    from tokenizers import trainers

    # A word of k texts occurs at least k times: the first pass leaves words that may be kept.
    trainer = trainers.WordLevelTrainer(
        vocab_size=_ALL,
        min_frequency=min_document_frequency,
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
    found = np.zeros(tokenizer.get_vocab_size(), np.int64)
    for chunk in texts():
        ids = (
            encode_texts(tokenizer, chunk)[0]
            if sentences is None
            else encode_sentences(tokenizer, chunk, sentences).ids
        )
        for row in ids:
            found[list(set(row))] += 1
    found = found[len(SPECIAL_TOKENS) :]
    order = np.argsort(-found, kind="stable")  # stable: the candidates are alphabetical
    order = order[found[order] >= min_document_frequency][:size]
    if not len(order):
        raise InputError(
            f"no word occurs in min_document_frequency = {min_document_frequency} training texts"
        )
    return [candidates[position] for position in order]

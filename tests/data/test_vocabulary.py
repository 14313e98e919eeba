import random
from collections import Counter

import pytest

from attnlight.data.sentences import SentenceRules
from attnlight.data.tokenization import TextRules
from attnlight.data.vocabulary import VocabularyLimits, learn_vocabulary
from attnlight.errors import InputError


def test_vocabulary_counts_texts_not_occurrences() -> None:
    rng = random.Random(0)
    texts = [" ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(50)]
    texts.append("z" + " z" * 500)  # many occurrences, one text
    found = Counter(word for text in texts for word in set(text.split()))
    chunks = [texts[:20], texts[20:]]
    for least, size in ((1, None), (12, None), (1, 5)):
        expected = sorted((w for w in found if found[w] >= least), key=lambda w: (-found[w], w))
        assert (
            learn_vocabulary(TextRules(), lambda: chunks, VocabularyLimits(least, size))
            == expected[:size]
        )


def test_words_behind_the_cut_are_not_counted() -> None:
    rules = TextRules(truncate=2)
    assert learn_vocabulary(rules, lambda: [["a b c", "b a d"]]) == ["a", "b"]


def test_special_tokens_in_texts_are_no_words() -> None:
    rules = TextRules(lowercase=False)
    assert learn_vocabulary(rules, lambda: [["x [UNK] [PAD] [BOS]"]]) == ["x"]


def test_no_frequent_word_is_an_error() -> None:
    with pytest.raises(InputError, match="no word occurs in min_document_frequency = 3"):
        learn_vocabulary(TextRules(), lambda: [["a a a", "a b"]], VocabularyLimits(3))


def test_words_of_sentences_behind_the_limits_are_not_counted() -> None:
    rules = TextRules(boundary_tokens=False, splitting="words")
    chunks = [["A b c d. B a. E f.", "A. E e e."], ["", "B d."]]
    whole = learn_vocabulary(rules, lambda: chunks, sentences=SentenceRules())
    # a, b, d and e are in 2 texts each, c and f in one
    assert whole == ["a", "b", "d", "e", "c", "f"]
    capped = SentenceRules(max_sentences=2, max_tokens=3)
    assert learn_vocabulary(rules, lambda: chunks, sentences=capped) == ["a", "b", "c", "d", "e"]
    assert learn_vocabulary(rules, lambda: chunks, VocabularyLimits(2), capped) == ["a", "b"]

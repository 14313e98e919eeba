"""Sentences of raw texts, and their ids against a loop."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlight.batch import UNK
from attnlight.data.sentences import SentenceIds, SentenceRules, encode_sentences
from attnlight.data.tokenization import TextRules, make_tokenizer

WORDS = ["ant", "bee", "cow"]
# What a reader would take for the sentences.
SPLIT = [
    ["Dr. Smith paid $3.50 at 5 p.m. on Jan. 5. ", "He left."],
    ["e.g. this, i.e. that. ", "Done"],
    ["U.S. sales rose 2.5%. ", "Mr. A. B. Jones agreed."],
    ["Visit example.com today. ", "Bye."],
    ['He said "Stop. Go." ', "Then left."],
    ["Really?! ", "Yes!!! ", "No... ", "Well"],
    ["Loved it 😀! ", "So good 👍🏽. ", "10/10"],
    ["no final stop"],
    ["1. Milk\n", "2. Eggs"],
    ["..."],
    [],
]


@pytest.mark.parametrize("expected", SPLIT)
def test_sentences_of_known_texts(expected: list[str]) -> None:
    assert SentenceRules().split("".join(expected)) == expected


def test_empty_lines_and_languages_have_their_own_rules() -> None:
    text = "One line\nwrapped. Next\n\nA title\n\nBody text\n\n\t"
    assert SentenceRules().split(text) == ["One line\nwrapped. ", "Next", "A title", "Body text"]
    text = "Er kommt bzw. Sie geht. Ende."
    assert SentenceRules(language="de").split(text) == ["Er kommt bzw. Sie geht. ", "Ende."]
    assert len(SentenceRules(language="en").split(text)) == 3
    rules = SentenceRules(length=3)
    assert rules.split("a b. c  d\ne f g") == ["a b. c", "d e f", "g"]
    assert rules.split(" ") == []


PIECES = ["a", "Dr.", "b.", "?", '"', "(", "\n", "\n\n", " ", "1.", "3.5", "😀", "。", "U.S.", "é"]


@given(st.lists(st.sampled_from([*PIECES, "</b>"]), max_size=15).map("".join))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    sentences = SentenceRules().split(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence.strip() for sentence in sentences)


def encode(texts: list[str], splitting: Any = "words", **options: int | None) -> SentenceIds:
    rules = TextRules(boundary_tokens=False, splitting=splitting)
    return encode_sentences(make_tokenizer(rules, WORDS), texts, SentenceRules(**options))  # type: ignore[arg-type]


def test_caps_and_counts_by_hand() -> None:
    texts = [
        "Ant bee cow. Ant bee. Cow ant bee cow ant!",  # 3 sentences of 3, 2 and 5 words
        "ant.",
        "",
        "Bee! Cow! Ant! Bee!",  # 4 of 1
    ]
    whole = encode(texts)
    assert whole.ids == [[4, 5, 6, 4, 5, 6, 4, 5, 6, 4], [4], [UNK], [5, 6, 4, 5]]
    assert whole.sizes == [[3, 2, 5], [1], [1], [1, 1, 1, 1]]
    assert whole.texts[0] == ["Ant bee cow. ", "Ant bee. ", "Cow ant bee cow ant!"]
    assert whole.texts[1:3] == [["ant."], [""]]
    assert whole.empty.tolist() == [False, False, True, False]
    assert whole.cut == {"cut": 0, "cut_sentences": 0, "cut_tokens": 0}
    # Sentences without a token vanish before the limit.
    found = encode(["!!! Ant bee. 😀. Cow. Ant."], max_sentences=2)
    assert (found.ids, found.texts) == ([[4, 5, 6]], [["Ant bee. ", "Cow. "]])
    assert found.cut == {"cut": 1, "cut_sentences": 1, "cut_tokens": 1}


@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "x"]), max_size=12), max_size=6),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1, 3]),
)
def test_ids_are_those_of_a_loop(
    documents: list[list[str]], length: int, most: int | None, longest: int | None
) -> None:
    numbers = {"ant": 4, "bee": 5, "cow": 6, "x": UNK}
    limits = {"length": length, "max_sentences": most, "max_tokens": longest}
    found = encode([" ".join(words) for words in documents], "whitespace", **limits)
    cut = {"cut": 0, "cut_sentences": 0, "cut_tokens": 0}
    for number, words in enumerate(documents):
        ids, sizes, tokens = [], [], 0
        for sentence, start in enumerate(range(0, len(words), length)):
            size = 0
            for word in words[start : start + length]:
                if (most is None or sentence < most) and (longest is None or size < longest):
                    ids.append(numbers[word])
                    size += 1
                else:
                    tokens += 1
            if size:
                sizes.append(size)
            else:
                cut["cut_sentences"] += 1
        cut["cut"] += tokens > 0
        cut["cut_tokens"] += tokens
        assert found.ids[number] == (ids or [UNK])
        assert found.sizes[number] == (sizes or [1])
        assert found.empty[number] == (not words)
    assert found.cut == cut
    assert found.empty.dtype == np.bool_


def test_rules_come_back_from_plain_values() -> None:
    rules = SentenceRules("de", max_sentences=3, max_tokens=7)
    held = rules.identity()
    assert all(isinstance(value, str | int | None) for value in held.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SentenceRules.from_identity(held | {"nested": True}) == rules
        short = SentenceRules(length=4)
        assert SentenceRules.from_identity(short.identity()) == short
    with pytest.warns(UserWarning, match=r"were split by sentencex 0\.1, but .* is installed"):
        assert SentenceRules.from_identity(held | {"sentencex": "0.1"}) == rules

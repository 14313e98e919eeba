import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.tokenization import (
    Splitting,
    TextRules,
    count_tokens,
    encode_texts,
    make_tokenizer,
    rust_threads,
)

PIECES = ["Good", "bad", "é", "B52s", "3.14", "n't", "_", " ", "\n", "\u00a0", ",", "!", "…", "€"]
PIECES += ["<br />", "<br", "a<b", "-LRB-", "[PAD]", "[UNK]", "[BOS]", "-", "'"]
SPLITTINGS: list[Splitting] = ["whitespace", "punctuation", "words"]


def naive_tokens(text: str, rules: TextRules) -> list[str]:
    """The rules character by character, without regular expressions."""
    if rules.markup:
        text = text.replace("<br />", " ").replace("-LRB-", " ")
    text = text.lower() if rules.lowercase else text
    tokens, open_ = [], False
    for character in text:
        inside = character.isalnum() or character == "_"
        if character.isspace():
            open_ = False
        elif rules.splitting == "whitespace" or inside:
            if open_:
                tokens[-1] += character
            else:
                tokens.append(character)
            open_ = True
        else:
            open_ = False
            if rules.splitting == "punctuation":
                tokens.append(character)
    if rules.digits:
        tokens = [rules.digits if any(map(str.isdigit, token)) else token for token in tokens]
    return tokens


def surface(text: str, rules: TextRules) -> list[str]:
    """The rules as the tokenizer applies them, with every word known."""
    tokenizer = make_tokenizer(replace(rules, boundary_tokens=False, truncate=None), ())
    normalized = tokenizer.normalizer.normalize_str(text)
    return [token for token, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


@given(
    st.lists(st.sampled_from(PIECES[:14]), max_size=12).map("".join),
    st.sampled_from(SPLITTINGS),
    st.booleans(),
    st.sampled_from([None, "qqq"]),
)
def test_tokens_are_those_of_the_naive_rules(
    text: str, splitting: Splitting, lowercase: bool, digits: str | None
) -> None:
    rules = TextRules(lowercase=lowercase, digits=digits, splitting=splitting)
    assert surface(text, rules) == naive_tokens(text, rules)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_markup_is_dropped_and_other_angles_stay(splitting: Splitting) -> None:
    rules = TextRules(splitting=splitting, markup=True)
    text = "One<br /><br />two </p> -LRB- three -rrb- i <3 u > v <a href='x'>w"
    assert surface(text, rules) == naive_tokens("one two three i <3 u > v w", rules)
    kept = TextRules(splitting=splitting, markup=False)
    assert surface(text, kept) == naive_tokens(text, kept)


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=5),
    st.sampled_from(SPLITTINGS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 3]),
)
def test_ids_are_boundaries_around_cut_words(
    texts: list[str], splitting: Splitting, lowercase: bool, boundary: bool, truncate: int | None
) -> None:
    """Also of texts that contain the names of special tokens, which are unknown words."""
    rules = TextRules(lowercase, splitting=splitting, boundary_tokens=boundary, truncate=truncate)
    words = ["good", "bad", "é", "t"]
    tokenizer = Tokenizer.from_str(make_tokenizer(rules, words).to_str())
    ids, empty = encode_texts(tokenizer, texts)
    numbers = {word: 4 + place for place, word in enumerate(words)}
    for text, row, none in zip(texts, ids, empty, strict=True):
        tokens = surface(text, rules)
        expected = [numbers.get(token, UNK) for token in tokens[:truncate]] or [UNK]
        assert row == ([BOS, *expected, EOS] if boundary else expected)
        assert none == (not tokens)
    assert count_tokens(rules, [texts]).tolist() == [len(surface(t, rules)) for t in texts]


def test_long_words_and_long_texts_take_linear_time() -> None:
    rules = TextRules(splitting="words", digits="qqq", markup=True)
    texts = ["a" * 200_000, "<" * 200_000, "<a " * 70_000, "word " * 20_000, "1" * 200_000]
    assert count_tokens(rules, [texts]).tolist() == [1, 0, 70_000, 20_000, 1]


@pytest.mark.parametrize(("chosen", "within", "after"), [(None, "true", "false"), ("0", "0", "0")])
def test_threads_are_used_and_then_forbidden(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, within: str, after: str
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if chosen is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", chosen)
    with rust_threads():
        assert os.environ["TOKENIZERS_PARALLELISM"] == within
    assert os.environ["TOKENIZERS_PARALLELISM"] == after

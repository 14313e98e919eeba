"""Features of tokens: their values, ids, and how characters are packed."""

import pytest

from attnlight.data.features import FeatureRules, TokenFeatures
from attnlight.errors import InputError

WORDS = ["The", "cat", "sat", "at", "IBM", "'s", "eBay", "in", "1990s", "A", "..."]


def learned(rules: FeatureRules, *sentences: list[str], occurrences: int = 1) -> TokenFeatures:
    return TokenFeatures.learn(rules, ((s, ["X"] * len(s)) for s in sentences), occurrences)


def test_case() -> None:
    features = learned(FeatureRules(case=True), WORDS)
    names = [features.tables["case"][n - 2] for n in features.encode(WORDS)["case"]]
    assert names == [
        *("title", "lower", "lower", "lower", "upper", "lower", "mixed", "lower"),
        *("digit", "title", "other"),
    ]


def test_suffixes_are_lower_case_and_of_whole_short_words() -> None:
    features = learned(FeatureRules(suffixes=(2, 3)), ["Running", "sing", "a"], ["KING"])
    assert list(features.tables["suffix_3"]) == ["ing", "a"]  # in two sentences, in one
    columns = features.encode(["BING", "a", "xyz"])
    assert columns["suffix_3"].tolist() == [2, 3, 1]  # 1: not in training
    assert columns["suffix_2"].tolist() == [2, 3, 1]


def test_rare_values_are_unknown_but_tags_are_not() -> None:
    rules = FeatureRules(suffixes=(2,), pos=True)
    features = TokenFeatures.learn(
        rules, [(["ab", "ab"], ["N", "V"]), (["ab", "cd"], ["N", "N"])], occurrences=2
    )
    assert features.encode(["ab", "cd"], ["N", "V"])["suffix_2"].tolist() == [2, 1]
    assert features.encode(["ab", "cd"], ["N", "V"])["pos"].tolist() == [2, 3]
    assert features.sizes == {"suffix_2": 3, "pos": 4}


def test_characters_are_packed_eight_in_a_number() -> None:
    words = ["abc", "abcdefghijkl", "supercalifragilistic", ""]
    features = learned(FeatureRules(characters=16), words)
    columns = features.encode(words)
    assert list(columns) == ["characters_0", "characters_1"]
    table = ["", "?", *features.tables["characters"]]
    for row, word in enumerate(words):
        numbers = [int(columns[name][row]) % 2**64 for name in columns]
        spelled = "".join(table[(n >> shift) & 255] for n in numbers for shift in range(0, 64, 8))
        assert spelled == (word if len(word) <= 16 else word[:8] + word[-8:])


def test_no_more_characters_than_a_byte_holds() -> None:
    features = learned(FeatureRules(characters=8), [chr(300 + n) for n in range(400)], ["ab"])
    assert features.sizes["characters"] == 256
    assert features.encode([chr(699)])["characters_0"].tolist() == [1]


def test_a_missing_tag_is_told() -> None:
    features = learned(FeatureRules(pos=True), ["a"])
    with pytest.raises(InputError, match="expected one for each of 2 words, but 0"):
        features.encode(["a", "b"])

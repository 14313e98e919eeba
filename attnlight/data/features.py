"""Features of a token beside the word itself: suffixes, case, characters, part-of-speech tag."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.batch import PAD, UNK
from attnlight.errors import InputError

CHARACTERS = "characters"
_FIRST = UNK + 1  # first id of a feature's values, after padding and unknown values
PACKED = 8  # characters in a 64-bit number, one byte each, lowest byte first
_BYTE = 256
_CASES = ("lower", "title", "upper", "mixed", "digit", "other")


@dataclass(frozen=True)
class FeatureRules:
    """Which features a token has.

    Args:
        suffixes: Lengths of suffixes that are features; shorter words are not cut.
        case: Use capitalisation as a feature: lower-case, upper-case, title-case, mixed, with a
            digit, or without letters.
        characters: Number of characters of a word that are features, a multiple of 8; of longer
            words, half from the front and half from the back; 0: none.
        pos: Use part-of-speech tags as a feature.
    """

    suffixes: list[int] | None = None
    case: bool = False
    characters: int = 0
    pos: bool = False

    def __post_init__(self) -> None:
        lengths = list(self.suffixes or ())
        object.__setattr__(self, "suffixes", lengths)
        if any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
            raise InputError(f"suffixes is {lengths}; expected different lengths of at least 1.")
        if self.characters < 0 or self.characters % PACKED:
            raise InputError(f"characters is {self.characters}; it must be a multiple of 8.")

    @property
    def columns(self) -> list[str]:
        """Names of the per-token columns, in `TextBatch.extras` as (B, N) each.

        Characters are packed, eight in each `characters_<n>`, one byte each, lowest byte first.
        """
        packed = [f"{CHARACTERS}_{number}" for number in range(self.characters // PACKED)]
        named = [f"suffix_{length}" for length in self.suffixes or ()]
        return named + ["case"] * self.case + ["pos"] * self.pos + packed

    def values(self, words: Sequence[str], pos: Sequence[str] | None) -> dict[str, list[str]]:
        """Values of the features with one value per token, for the T tokens of a sentence."""
        values = {f"suffix_{n}": [word[-n:].lower() for word in words] for n in self.suffixes or ()}
        if self.case:
            values["case"] = [_case(word) for word in words]
        if self.pos:
            values["pos"] = list(pos or ())
        return values


@dataclass(frozen=True)
class TokenFeatures:
    """Features and the values that have ids.

    Args:
        rules: Which features there are.
        tables: Values by feature, in the order of their ids, which begin at 2: 0 is padding, 1 a
            value that does not occur in the training sentences.
    """

    rules: FeatureRules = field(default_factory=FeatureRules)
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def _ids(self) -> dict[str, dict[str, int]]:
        """Id of each value by feature."""
        return {
            name: {value: number for number, value in enumerate(values, _FIRST)}
            for name, values in self.tables.items()
        }

    @classmethod
    def learn(
        cls,
        rules: FeatureRules,
        sentences: Iterable[tuple[Sequence[str], Sequence[str] | None]],
        occurrences: int = 1,
    ) -> "TokenFeatures":
        """The values in training sentences, of which words and part-of-speech tags are given.

        Suffixes and characters have an id if they are in so many sentences (`occurrences`).
        """
        counters: dict[str, Counter[str]] = {name: Counter() for name in rules.values([], [])}
        characters: Counter[str] = Counter()
        for words, pos in sentences:
            for name, values in rules.values(words, pos).items():
                counters[name].update(set(values))
            if rules.characters:
                characters.update(set("".join(words)))
        tables = {
            name: _CASES
            if name == "case"
            else _frequent(counts, 1 if name == "pos" else occurrences)
            for name, counts in counters.items()
        }
        if rules.characters:
            tables[CHARACTERS] = _frequent(characters, occurrences)[: _BYTE - _FIRST]
        return cls(rules, tables)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of ids of each feature, padding and unknown values included."""
        return {name: len(values) + _FIRST for name, values in self.tables.items()}

    def encode(
        self, words: Sequence[str], pos: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """The columns of a sentence of T tokens, (T,) each."""
        if self.rules.pos and len(pos or ()) != len(words):
            raise InputError(
                f"part-of-speech tags are a feature: expected one for each of {len(words)} words, "
                f"but {len(pos or ())} are given."
            )
        columns = {
            name: np.array([self._ids[name].get(value, UNK) for value in values], np.int64)
            for name, values in self.rules.values(words, pos).items()
        }
        if size := self.rules.characters:
            spelled = np.full((len(words), size), PAD, np.uint8)
            for row, word in zip(spelled, words, strict=True):
                characters = word if len(word) <= size else word[: size // 2] + word[-(size // 2) :]
                row[: len(characters)] = [self._ids[CHARACTERS].get(one, UNK) for one in characters]
            packed = spelled.view("<i8").astype(np.int64)  # (T, characters / 8)
            columns |= {f"{CHARACTERS}_{n}": column for n, column in enumerate(packed.T)}
        return columns

    def as_dict(self) -> dict[str, Any]:
        """Rules and tables as plain values, for files."""
        tables = {name: list(values) for name, values in self.tables.items()}
        return {"rules": asdict(self.rules), "tables": tables}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "TokenFeatures":
        """Features from the result of `as_dict`."""
        return cls(FeatureRules(**state["rules"]), state["tables"])


def _case(word: str) -> str:
    if any(character.isdigit() for character in word):
        return "digit"
    if word.islower():
        return "lower"
    if word.isupper():
        return "title" if len(word) == 1 else "upper"
    if word.istitle():
        return "title"
    return "mixed" if any(character.isalpha() for character in word) else "other"


def _frequent(counts: Counter[str], occurrences: int) -> list[str]:
    """Values by descending count, ties in alphabetical order."""
    frequent = [value for value, count in counts.items() if count >= occurrences]
    return sorted(frequent, key=lambda value: (-counts[value], value))

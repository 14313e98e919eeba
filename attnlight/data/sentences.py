"""Texts to sentences, and sentences to ids."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.batch import UNK
from attnlight.data.tokenization import encode_texts
from attnlight.errors import InputError, require_at_least

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Sentences = Literal["none", "nested", "flat"]

_CUT = ("cut", "cut_sentences", "cut_tokens")


@dataclass(frozen=True)
class SentenceRules:
    """How a text becomes sentences.

    Args:
        language: ISO 639 code of the language by whose rules `sentencex` ends a sentence; one that
            it does not know is read by its general rules.
        length: Words between white space that make a sentence, in place of a language's rules.
        max_sentences: Sentences to keep of a text, the first ones.
        max_tokens: Tokens to keep of a sentence, the first ones.

    Raises:
        InputError: `language` is not a code of that form, or a number is not positive.
    """

    language: str = "en"
    length: int | None = None
    max_sentences: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]{2,3}", self.language):
            raise InputError(
                f"language is {self.language!r}; expected a code of two or three letters (ISO 639) "
                "like 'en'."
            )
        require_at_least(
            1,
            sentence_length=self.length,
            max_sentences=self.max_sentences,
            max_sentence_tokens=self.max_tokens,
        )

    def identity(self) -> dict[str, Any]:
        """The rules and the version of what applies them, as plain JSON."""
        return asdict(self) | {"sentencex": None if self.length else version("sentencex")}

    @classmethod
    def of(cls, identity: dict[str, Any]) -> SentenceRules:
        """The rules of an `identity`; warns where another version of `sentencex` is installed."""
        rules = cls(**{field.name: identity[field.name] for field in fields(cls)})
        before, now = identity["sentencex"], rules.identity()["sentencex"]
        if before != now:
            warnings.warn(
                f"sentences were split by sentencex {before}, but {now} is installed, which may "
                "split some texts elsewhere.",
                stacklevel=2,
            )
        return rules

    def split(self, text: str) -> list[str]:
        """The sentences of a text as they stand in it, those of white space alone left out."""
        if self.length is not None:
            words = text.split()
            starts = range(0, len(words), self.length)
            return [" ".join(words[start : start + self.length]) for start in starts]
        import sentencex

        return [part for part in sentencex.segment(self.language, text) if not part.isspace()]


class SentenceIds(NamedTuple):
    """Ids of B texts, sentence by sentence.

    Attributes:
        ids: Ids of each text, its sentences one after the other.
        sizes: Ids of each sentence, by text.
        texts: The sentences themselves, by text.
        empty: Which texts had no token and are kept as one unknown token, (B,).
        cut: Texts that the rules' limits cut (`cut`), and what that took from them
            (`cut_sentences`, `cut_tokens`).
    """

    ids: list[list[int]]
    sizes: list[list[int]]
    texts: list[list[str]]
    empty: NDArray[np.bool_]
    cut: dict[str, int]


def encode_sentences(
    tokenizer: Tokenizer, texts: Sequence[str], rules: SentenceRules
) -> SentenceIds:
    """The ids of raw texts, each sentence encoded by itself.

    A sentence without any token is left out; a text without any is one sentence of one unknown
    token.

    Args:
        tokenizer: A tokenizer that adds no boundary tokens.
        texts: B texts.
        rules: How they become sentences.
    """
    parts = [rules.split(text) for text in texts]
    encoded = zip(*encode_texts(tokenizer, list(chain.from_iterable(parts))), strict=True)
    held = SentenceIds([], [], [], np.zeros(len(texts), np.bool_), dict.fromkeys(_CUT, 0))
    for number, (text, sentences) in enumerate(zip(texts, parts, strict=True)):
        pairs = zip(sentences, islice(encoded, len(sentences)), strict=True)
        found = [(sentence, ids) for sentence, (ids, empty) in pairs if not empty]
        kept = found[: rules.max_sentences]
        rows = [ids[: rules.max_tokens] for _, ids in kept]
        lost = sum(len(ids) for _, ids in found) - sum(map(len, rows))
        for what, count in zip(_CUT, (lost > 0, len(found) - len(rows), lost), strict=True):
            held.cut[what] += count
        held.empty[number] = not found
        held.ids.append(list(chain.from_iterable(rows)) or [UNK])
        held.sizes.append([len(ids) for ids in rows] or [1])
        held.texts.append([sentence for sentence, _ in kept] or [text])
    return held

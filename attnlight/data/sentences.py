"""Split texts into sentences and encode the sentences."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnlight.batch import UNK
from attnlight.data.tokenization import encode_texts
from attnlight.errors import InputError, require_at_least

Sentences = Literal["none", "nested", "flat"]

_CUT = ("cut", "cut_sentences", "cut_tokens")


@dataclass(frozen=True)
class SentenceRules:
    """How a text becomes sentences.

    Args:
        language: ISO 639 code of the language whose rules `sentencex` applies; it uses general
            rules for languages that it does not support.
        length: Number of whitespace-separated words per sentence, in place of a language's rules.
        max_sentences: Sentences to keep of a text, the first ones.
        max_tokens: Tokens to keep of a sentence, the first ones.
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
        """The rules and the version of `sentencex`, as plain JSON."""
        return asdict(self) | {"sentencex": None if self.length else version("sentencex")}

    @classmethod
    def from_identity(cls, identity: dict[str, Any]) -> "SentenceRules":
        """The rules of an `identity`; warns if another version of `sentencex` is installed."""
        rules = cls(**{field.name: identity[field.name] for field in fields(cls)})
        before, now = identity["sentencex"], rules.identity()["sentencex"]
        if before != now:
            warnings.warn(
                f"sentences were split by sentencex {before}, but {now} is installed, which may "
                "split some texts differently.",
                stacklevel=2,
            )
        return rules

    def split(self, text: str) -> list[str]:
        """The sentences of a text, unchanged, without those of white space alone."""
        if self.length is not None:
            words = text.split()
            starts = range(0, len(words), self.length)
            return [" ".join(words[start : start + self.length]) for start in starts]
        import sentencex

        return [part for part in sentencex.segment(self.language, text) if not part.isspace()]


@dataclass(frozen=True)
class SentenceOptions:
    """Whether texts are split into sentences, and of which length.

    Args:
        sentences: `nested`: batches keep the sentences of a text separate, for hierarchical models;
            `flat`: they hold the same sentences, truncated alike, concatenated; `none`: texts are
            not split.
        language: ISO 639 code of the language whose rules split sentences (library `sentencex`).
        max_sentences: Maximum number of sentences of a training or validation text.
        max_sentence_tokens: Maximum number of tokens of their sentences.
        cap_test: Apply both limits to test texts and to raw text given to a trained model.
    """

    sentences: Sentences = "none"
    language: str = "en"
    max_sentences: int | None = None
    max_sentence_tokens: int | None = None
    cap_test: bool = False


class SentenceIds(NamedTuple):
    """Ids of B texts, sentence by sentence.

    Attributes:
        ids: Ids of each text, its sentences concatenated.
        sizes: Number of ids of each sentence, by text.
        texts: The sentences as strings, by text.
        empty: Which texts had no token and are stored as one unknown token, (B,).
        cut: Number of texts cut by the rules' limits (`cut`), and of the sentences and tokens
            removed (`cut_sentences`, `cut_tokens`).
    """

    ids: list[list[int]]
    sizes: list[list[int]]
    texts: list[list[str]]
    empty: NDArray[np.bool_]
    cut: dict[str, int]


def encode_sentences(
    tokenizer: Tokenizer, texts: Sequence[str], rules: SentenceRules | None
) -> SentenceIds:
    """The ids of B raw texts, each sentence encoded separately.

    Sentences without a token are dropped; a text without a token becomes one sentence of one
    unknown token. Without `rules` each text is one, with its boundary tokens, which a tokenizer of
    sentences does not add.
    """
    if rules is None:
        whole, empty = encode_texts(tokenizer, texts)
        parts = [[text] for text in texts]
        return SentenceIds(whole, [[len(ids)] for ids in whole], parts, empty, {})
    parts = [rules.split(text) for text in texts]
    encoded = zip(*encode_texts(tokenizer, list(chain.from_iterable(parts))), strict=True)
    result = SentenceIds([], [], [], np.zeros(len(texts), np.bool_), dict.fromkeys(_CUT, 0))
    for number, (text, sentences) in enumerate(zip(texts, parts, strict=True)):
        pairs = zip(sentences, islice(encoded, len(sentences)), strict=True)
        nonempty = [(sentence, ids) for sentence, (ids, empty) in pairs if not empty]
        remaining = nonempty[: rules.max_sentences]
        rows = [ids[: rules.max_tokens] for _, ids in remaining]
        cut_tokens = sum(len(ids) for _, ids in nonempty) - sum(map(len, rows))
        counts = (cut_tokens > 0, len(nonempty) - len(rows), cut_tokens)
        for key, count in zip(_CUT, counts, strict=True):
            result.cut[key] += count
        result.empty[number] = not nonempty
        result.ids.append(list(chain.from_iterable(rows)) or [UNK])
        result.sizes.append([len(ids) for ids in rows] or [1])
        result.texts.append([sentence for sentence, _ in remaining] or [text])
    return result

"""Words among the tokens of a tokenizer that divides words."""

import json
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnlight.batch import UNK
from attnlight.errors import InputError

# What a token begins or ends with; a special token with ends. A token continues a word if the token
# before it ends with what it begins with, or with a mark.
_BOUNDARY, _LETTER, _OTHER, _MARK, _END = range(5)
_MARKS = ("\u0120", "\u2581")  # before a word, of byte-level and of other tokenizers


class WholeWords:
    """Where words begin, by the marks that a tokenizer gives its tokens.

    Word pieces say which of them continue a word; other tokens, which of them follow or precede a space.
    Words end at punctuation, and a special token is a word.

    Args:
        tokenizer: The tokenizer as JSON text.

    Attributes:
        continuing: Whether each id is a piece that continues a word, by its form alone, (V,) bool.

    Raises:
        InputError: Its tokens have no such marks.
    """

    def __init__(self, tokenizer: str) -> None:
        content, parsed = json.loads(tokenizer), Tokenizer.from_str(tokenizer)
        model, vocabulary = content["model"], parsed.get_vocab(with_added_tokens=True)
        special = {token["id"] for token in content["added_tokens"] if token["special"]}
        special = special.union(range(4)) - {UNK}
        self._ends = np.full((2, max(vocabulary.values()) + 1), _LETTER, np.int8)
        suffix, marked = model.get("end_of_word_suffix") or "</w>", model["type"].startswith("Word")
        if not marked and not any(t.startswith(_MARKS) or t.endswith(suffix) for t in vocabulary):
            raise InputError(
                "the tokens of the model do not say where a word begins: set `items: pieces`."
            )
        continuing = model.get("continuing_subword_prefix") or "##"
        for token, number in vocabulary.items():
            if number in special:
                self._ends[:, number] = _END
            elif marked:
                inside = model["type"] == "WordPiece" and token.startswith(continuing)
                self._ends[0, number] = _LETTER if inside else _BOUNDARY
            elif number != UNK:
                self._ends[:, number] = _ends_of(token, suffix, parsed.decoder)
        self.continuing = self._ends[0] == _LETTER

    def sizes(self, ids: NDArray[np.integer] | list[int]) -> NDArray[np.int64]:
        """Number of tokens of each word of a text, (W,), from its ids (N,)."""
        begins, ends = self._ends[:, np.asarray(ids, np.int64)]
        before = np.concatenate([[_END], ends[:-1]])
        first = (begins == _END) | ((begins != before) & (before != _MARK))
        return np.diff(np.append(np.flatnonzero(first), len(begins)))


def _ends_of(token: str, suffix: str, decoder: Any) -> tuple[int, int]:  # noqa: ANN401
    """What a token that may follow or precede a space begins and ends with."""
    text, closed = token.removesuffix(suffix), token.endswith(suffix)
    if decoder is not None and not closed:
        text = decoder.decode([token])
    word = text.strip().strip("".join(_MARKS))
    if not word:
        return _BOUNDARY, _MARK if token.startswith(_MARKS) else _END
    # U+FFFD stands for a part of a character.
    first, last = (
        _OTHER if category(end)[0] in "PS" and end != "\ufffd" else _LETTER
        for end in (word[0], word[-1])
    )
    begins = token.startswith(_MARKS) or text[0].isspace()
    return _BOUNDARY if begins else first, _END if closed else last

"""Convert text to ids; all steps are part of the tokenizer's JSON."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.processors import PostProcessor

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS, UNK
from attnlight.errors import InputError

Splitting = Literal["whitespace", "punctuation", "words"]

BETWEEN = " | "  # a passage and its query, where both are shown as one text
_THREADS = "TOKENIZERS_PARALLELISM"
_TAG = r"</?[A-Za-z][^<>]*>"
_BRACKET = r"-[LRlr][RCSrcs][Bb]-"  # the Penn Treebank writes "(" as "-LRB-"
_WORD_WITH_DIGIT = r"(?<!\w)\w*?\d\w*"  # anchored, so that long words cost linear time
_PATTERNS: dict[Splitting, tuple[str, str]] = {
    # patterns of a token, and of a token that contains a digit
    "whitespace": (r"\S+", r"(?<!\S)\S*?\d\S*"),
    "punctuation": (r"\w+|[^\w\s]", _WORD_WITH_DIGIT),
    "words": (r"\w+", _WORD_WITH_DIGIT),
}


@dataclass(frozen=True)
class TextRules:
    """How a text becomes tokens.

    Args:
        lowercase: Lower-case texts.
        digits: Token that replaces any token with a digit, e.g. `qqq`; null: they are kept.
        splitting: `whitespace`: tokens are separated by white space; `punctuation`: runs of word
            characters, and every other character as a token; `words`: runs of word characters.
        markup: Drop tags like `<br />` and the treebank's bracket codes like `-LRB-`.
        boundary_tokens: Put a token before and after each text, which attention cannot reach.
        truncate: Truncate texts to this many tokens, boundary tokens not counted.
    """

    lowercase: bool = True
    digits: str | None = None
    splitting: Splitting = "whitespace"
    markup: bool = False
    boundary_tokens: bool = True
    truncate: int | None = None

    def __post_init__(self) -> None:
        if self.truncate is not None and self.truncate < 1:
            raise InputError(f"truncate is {self.truncate}; it must be at least 1 token")
        if self.digits is None:
            return
        splitter = make_tokenizer(replace(self, digits=None, truncate=None), ()).pre_tokenizer
        if [token for token, _ in splitter.pre_tokenize_str(self.digits)] != [self.digits]:
            raise InputError(
                f"digits is {self.digits!r}, which is not one token when texts are split by "
                f"{self.splitting!r}"
            )


def make_tokenizer(rules: TextRules, words: Iterable[str]) -> Tokenizer:
    """A tokenizer with these rules and `words` numbered from 4, after the special tokens.

    The special tokens are entries of the vocabulary but not `AddedToken`s, which the library would
    match in raw text: a text that happens to contain "[PAD]" must not get padding.
    """
    vocabulary = {word: number for number, word in enumerate((*SPECIAL_TOKENS, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK]))
    steps: list[object] = []
    if rules.markup:
        steps.append(normalizers.Replace(Regex(f"{_TAG}|{_BRACKET}"), " "))
    if rules.lowercase:
        steps.append(normalizers.Lowercase())
    if rules.digits is not None:
        steps.append(normalizers.Replace(Regex(_PATTERNS[rules.splitting][1]), rules.digits))
    if rules.splitting == "whitespace" and not rules.lowercase:
        # With other rules no token of a text can equal a special one.
        literal = Regex(r"\[(?:PAD|BOS|EOS)\]")
        steps.append(normalizers.Replace(literal, SPECIAL_TOKENS[UNK]))
    tokenizer.normalizer = normalizers.Sequence(steps)
    token = Regex(_PATTERNS[rules.splitting][0])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(token, behavior="removed", invert=True)
    if rules.boundary_tokens:
        tokenizer.post_processor = boundary_processor()
    if rules.truncate is not None:
        tokenizer.enable_truncation(rules.truncate + 2 * rules.boundary_tokens)
    return tokenizer


def boundary_processor() -> PostProcessor:
    """The part of a tokenizer that puts a special token before and one after each text."""
    first, last = SPECIAL_TOKENS[BOS], SPECIAL_TOKENS[EOS]
    return processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, BOS), (last, EOS)]
    )


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str]
) -> tuple[list[list[int]], NDArray[np.bool_]]:
    """The ids of B raw texts, and which had no token but boundary tokens, (B,).

    These become one unknown token.
    """
    with rust_threads():
        ids: list[list[int]] = [row.ids for row in tokenizer.encode_batch_fast(list(texts))]
    empty = np.fromiter((all(n in (BOS, EOS) for n in row) for row in ids), np.bool_, len(ids))
    boundary = tokenizer.encode("").ids
    before = (len(boundary) + 1) // 2  # one boundary token precedes the text
    for position in np.flatnonzero(empty):
        ids[position] = [*boundary[:before], UNK, *boundary[before:]]
    return ids, empty


def count_tokens(rules: TextRules, texts: Iterable[list[str]]) -> NDArray[np.int32]:
    """Number of tokens of each text before truncation, without boundary tokens."""
    tokenizer = make_tokenizer(replace(rules, boundary_tokens=False, truncate=None), ())
    counts = [np.zeros(0, np.int32)]
    for chunk in texts:
        with rust_threads():
            rows = tokenizer.encode_batch_fast(chunk)
        counts.append(np.fromiter((len(row) for row in rows), np.int32, len(rows)))
    return np.concatenate(counts)


def count_cut(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], lengths: Iterable[int]
) -> int | None:
    """Number of texts, or pairs, of which a pretrained model's tokenizer has cut a part.

    None: it is no such tokenizer. Only texts of its length, by the number of ids of each, may be
    cut.
    """
    if type(tokenizer.model).__name__ == "WordLevel":
        return None
    length = tokenizer.truncation["max_length"] if tokenizer.truncation else None
    full = [text for text, count in zip(texts, lengths, strict=True) if count == length]
    with rust_threads():
        return sum(bool(row.overflowing) for row in tokenizer.encode_batch(full))


def words_of_pieces(
    tokenizer: Tokenizer, text: str, starts: Sequence[int]
) -> tuple[list[int], NDArray[np.int64], NDArray[np.int64]]:
    """Ids of a text whose words, from `starts` (T,) on, a pretrained model's tokenizer divides.

    With the word of each of N ids, (N,), -1 of special ones, and the place of the first of each
    word, (T,).
    """
    encoding = tokenizer.encode(text)
    # A token may begin with the space before its word.
    ends = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 1]
    words = np.searchsorted(np.asarray(starts), ends - 1, side="right") - 1
    words[[part is None for part in encoding.sequence_ids]] = -1
    if len(missing := np.setdiff1d(np.arange(len(starts)), words)):
        word = text[starts[missing[0]] :].split(maxsplit=1)[0]
        reason = (
            "lies beyond the tokens that the model reads"
            if encoding.overflowing
            else "has no token"
        )
        raise InputError(
            f"the word {word!r}, of which a tag is predicted, {reason}: remove its sentence"
        )
    return encoding.ids, words, np.flatnonzero((words >= 0) & (np.diff(words, prepend=-1) != 0))


class Surface(NamedTuple):
    """The tokens of a text, or its words, as they stand in its source.

    Attributes:
        text: The source, of pairs that are one text both with `BETWEEN`; "" if it is not known.
        spans: [start, end) of each token in `text`; empty of one that is not in the source.
        forms: What each token stands for in the source; the token of the vocabulary where that is
            nothing.
    """

    text: str
    spans: list[tuple[int, int]]
    forms: list[str]


@runtime_checkable
class HasSurface(Protocol):
    """A dataset that knows its texts as they were written."""

    def surface(self, position: int) -> Surface:
        """Where the tokens of a text stand in it."""


def surface_of(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    parts: Sequence[tuple[str | tuple[str, str], int | None]],
    sizes: Iterable[int] | None = None,
) -> Surface:
    """The surface of the ids of a text.

    `parts` are the strings, or pairs of strings, that were encoded separately, in order, and the
    number of ids kept of each, None: all. `sizes` are the numbers of ids of each word or sentence
    that is named; None: ids are.
    """
    ids_of_source: list[int] = []
    places: list[tuple[int, int]] = []
    text = ""
    for part, size in parts:
        strings = (part,) if isinstance(part, str) else part
        encoding = tokenizer.encode(*strings)
        ids_of_source += encoding.ids[:size]
        starts = len(text), len(text) + len(strings[0]) + len(BETWEEN)
        for number, (x, y) in zip(
            encoding.sequence_ids[:size], encoding.offsets[:size], strict=True
        ):
            places.append((starts[number or 0] + x, starts[number or 0] + y))
        text += f"{BETWEEN.join(strings)} "
    text = text[:-1]
    forms = [str(tokenizer.id_to_token(number)) for number in ids]
    if ids_of_source != list(ids):  # an empty text (one unknown token), or one without its source
        text, places = "", [(0, 0)] * len(forms)
    stops = accumulate([1] * len(forms) if sizes is None else sizes)
    groups = list(pairwise([0, *stops]))
    spans = [(places[first][0], places[stop - 1][1]) for first, stop in groups]
    named = zip(groups, spans, strict=True)
    return Surface(text, spans, [text[x:y] or "".join(forms[i:j]) for (i, j), (x, y) in named])


@contextmanager
def rust_threads() -> Iterator[None]:
    """Let `tokenizers` use all cores within the block and one after it, unless the user has decided.

    Else the library warns in every worker process that is forked after its threads have run.
    """
    setting = os.environ.get(_THREADS)
    os.environ[_THREADS] = setting or "true"
    try:
        yield
    finally:
        os.environ[_THREADS] = setting or "false"

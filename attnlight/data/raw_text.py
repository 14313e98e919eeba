"""Encode raw text or another corpus from a checkpoint alone, as the training corpus was encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
import torch

from attnlight.batch import BOS, EOS, TextBatch
from attnlight.data.collate import allow_classes, collate_ids, with_queries
from attnlight.data.features import TokenFeatures
from attnlight.data.pairs import encode_queries
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import surface_forms
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@runtime_checkable
class HasColumns(Protocol):
    """A table, such as a DataFrame, of any library."""

    columns: Any


@dataclass
class RawText:
    """The encoding of a model's corpus, for raw text and other corpora; checkpoints store its fields.

    Attributes:
        tokenizer: The tokenizer as JSON text; None before training.
        classes: Names of the classes.
        corpus: Fingerprint of the training corpus.
        sentences: The rules by which the training corpus split texts into sentences
            (`SentenceRules.identity`), and whether its batches have a dimension of sentences
            (`nested`); None if it did not split texts.
        features: Features of tokens beside the word as plain values, see `TokenFeatures`; None: no
            features.
        whole_words: Whether words that the tokenizer divides are kept separate, see `TokenDataset`.
        paired: Whether texts are passages with a query each; not stored.
    """

    tokenizer: str | None = None
    classes: list[str] = field(default_factory=list)
    corpus: str | None = None
    sentences: dict[str, Any] | None = None
    features: dict[str, Any] | None = None
    whole_words: bool = False
    paired = False

    @classmethod
    def of_corpus(cls, datamodule: Any) -> Self:  # noqa: ANN401
        """The encoder of a datamodule's texts."""
        rules: SentenceRules | None = datamodule.sentence_rules
        features: TokenFeatures | None = datamodule.token_features
        return cls(
            datamodule.tokenizer_json,
            list(datamodule.classes),
            datamodule.fingerprint,
            None if rules is None else rules.identity() | {"nested": datamodule.nested},
            None if features is None else features.as_dict(),
            datamodule.whole_words,
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """The encoder of a checkpoint's metadata, whose other keys are ignored."""
        known: dict[str, Any] = {entry.name: stored.get(entry.name) for entry in fields(cls)}
        return cls(**known)

    def identity(self) -> dict[str, Any]:
        """What determines the content of a corpus that is encoded alike, as plain JSON."""
        digest = hashlib.sha256(str(self.tokenizer).encode()).hexdigest()[:16]
        return {"tokenizer": digest, "classes": self.classes, "sentences": self.sentences}

    def require_classes(self, names: Sequence[str], corpus: str) -> None:
        """Check that a corpus has the same class names, in any order.

        Raises:
            InputError: Its class names differ.
        """
        if set(names) != set(self.classes):
            raise InputError(
                f"{corpus} has the classes {', '.join(names)}; the checkpoint's model expects "
                f"{', '.join(self.classes)}: rename them with `classes` of `data`."
            )

    @cached_property
    def parsed_tokenizer(self) -> Tokenizer:
        """The tokenizer: normalisation, splitting and vocabulary of the training corpus.

        Raises:
            InputError: The task was neither trained nor loaded from a checkpoint.
        """
        from tokenizers import Tokenizer

        if self.tokenizer is None:
            raise InputError("this task has no tokenizer yet: train it or load a checkpoint.")
        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def divided_words(self) -> WholeWords:
        """Where words begin among the tokenizer's tokens."""
        return WholeWords(self.parsed_tokenizer.to_str())

    def encode(
        self,
        texts: Sequence[str],
        pos: Sequence[Sequence[str]] | None = None,
        queries: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> TextBatch:
        """Split and tokenise raw texts as the corpus's test split was.

        Args:
            texts: B texts; an empty one becomes one unknown token. If tokens have features, texts are
                split at white space.
            pos: Part-of-speech tags of each text's tokens, if they are a feature.
            queries: The query of each text, if the corpus has queries.
            candidates: Names of the classes that each text may be answered with; None: all.

        Raises:
            InputError: Texts or queries are no list of strings; the model uses part-of-speech tags, and
                `pos` does not have one per token; or queries or candidates are not one for each text,
                a query has no token, or a candidate is not a class.
        """
        for name, strings in (("texts", texts), ("queries", queries)):
            if isinstance(strings, str | Mapping | HasColumns):
                raise InputError(
                    f"{name} is of type {type(strings).__name__}; expected a list of strings, such as "
                    "['a film']."
                )
            for number, value in enumerate(() if strings is None else strings):
                require_text(value, f"{name}[{number}]")
        for name, column in (("queries", queries), ("candidates", candidates)):
            if column is not None and len(column) != len(texts):
                raise InputError(
                    f"{len(texts)} texts have {len(column)} {name}; expected one for each."
                )
        rules = SentenceRules.from_identity(self.sentences) if self.sentences else None
        encoded = encode_sentences(self.parsed_tokenizer, texts, rules)
        sizes = encoded.sizes if self.sentences and self.sentences["nested"] else None
        if self.whole_words:
            sizes = [self.divided_words.sizes(ids).tolist() for ids in encoded.ids]
        batch = collate_ids(encoded.ids, sizes)
        if self.features is not None:
            features = TokenFeatures.from_dict(self.features)
            batch.extras = {name: torch.zeros_like(batch.tokens) for name in features.rules.columns}
            for number, text in enumerate(texts):
                places = self.parsed_tokenizer.encode(text).offsets
                words = [text[start:stop] for start, stop in places]
                columns = features.encode(words, None if pos is None else pos[number])
                for name, values in columns.items():
                    batch.extras[name][number, : len(words)] = torch.from_numpy(values)
        if queries is not None:
            rows, given = range(len(queries)), "the given texts"
            ids = encode_queries(self.parsed_tokenizer, queries, rows, given)
            batch = with_queries(batch, ids)
        if candidates is not None:
            if not all(candidates):
                raise InputError("a text has no candidates; give at least one for each.")
            numbers = {name: number for number, name in enumerate(self.classes)}
            for name in (name for names in candidates for name in names if name not in numbers):
                raise InputError(
                    f"the candidate {name!r} is not among the model's classes "
                    f"{', '.join(self.classes)}{did_you_mean(name, self.classes)}."
                )
            allowed = [[numbers[name] for name in names] for names in candidates]
            batch = allow_classes(batch, allowed, len(numbers))
        return batch

    def words(self, text: str) -> list[str]:
        """What each id or whole word of `encode([text])` stands for in it, boundary tokens included."""
        rules = SentenceRules.from_identity(self.sentences) if self.sentences else None
        encoded = encode_sentences(self.parsed_tokenizer, [text], rules)
        (ids,), parts = encoded.ids, list(zip(encoded.texts[0], encoded.sizes[0], strict=True))
        sizes = self.divided_words.sizes(ids).tolist() if self.whole_words else None
        return surface_forms(self.parsed_tokenizer, ids, parts, sizes)

    def items(self, text: str) -> list[str]:
        """The parts of a text that attention weighs: its tokens or words as they stand, or sentences.

        They are in the order of the attended items of `encode([text])`; a text without a token is one
        piece.
        """

        def tokens(part: str, most: int | None) -> list[str]:
            encoding = self.parsed_tokenizer.encode(part)
            count = len(encoding.ids)
            sizes = self.divided_words.sizes(encoding.ids) if self.whole_words else [1] * count
            stops = np.cumsum(sizes)
            places = [
                (encoding.offsets[start][0], encoding.offsets[stop - 1][1])
                for start, stop in zip(stops - sizes, stops, strict=True)
                if encoding.ids[start] not in (BOS, EOS)  # also where the text spells one
            ]
            return [part[start:stop] for start, stop in places][:most]

        if self.sentences is None:
            return tokens(text, None) or [text]
        rules = SentenceRules.from_identity(self.sentences)
        (sentences,) = encode_sentences(self.parsed_tokenizer, [text], rules).texts
        if self.sentences["nested"]:
            return sentences
        return [word for part in sentences for word in tokens(part, rules.max_tokens)] or [text]


def require_text(value: object, place: str) -> None:
    """Check that a value is a string of whole characters.

    Args:
        value: The value.
        place: What it is, for messages.

    Raises:
        InputError: It is another object, or has a lone surrogate.
    """
    if not isinstance(value, str):
        raise InputError(f"{place} is {short(value)}; expected a string.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place}, {short(value)}, has a lone surrogate (half a character) at position "
            f"{error.start}: decode its source as UTF-8, or remove it."
        ) from None

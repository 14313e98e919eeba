"""Encode raw text or another corpus from a checkpoint alone, as the training corpus was encoded."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from reprlib import repr as short
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from tokenizers import Tokenizer

from attnlight.batch import MARKED, SEGMENT, TextBatch
from attnlight.data.collate import allow_classes, collate_ids, pad_ragged, with_queries
from attnlight.data.digests import text_digest
from attnlight.data.features import TokenFeatures
from attnlight.data.pairs import encode_joined, encode_queries
from attnlight.data.sentences import SentenceRules, encode_sentences
from attnlight.data.tokenization import Surface, surface_of, words_of_pieces
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError, did_you_mean


@runtime_checkable
class HasColumns(Protocol):
    """A DataFrame of any library; iterating over one does not give its rows."""

    columns: Any


@dataclass
class RawText:
    """The encoding of a model's corpus, for raw text and other corpora; checkpoints store its fields.

    Attributes:
        tokenizer: The tokenizer as JSON text; None before training.
        classes: Names of the classes.
        corpus: Fingerprint of the training corpus.
        sentences: `SentenceRules.identity` of the training corpus, with `nested`: whether batches
            have a dimension of sentences, (B, S, N). None: texts were not split into sentences.
        features: `TokenFeatures.as_dict` of the corpus; None: tokens have no features.
        whole_words: Whether batches have a dimension of words, (B, W, N), see `TokenDataset`.
        first_pieces: Whether the first token of each word is a row of a tagger, `marked` in the extras.
        joined: Whether a text is a passage and its query, with `segment` in the extras of batches.
        joins: Whether texts with queries are read so, and others alone; not stored.
        paired: Whether texts are passages with a query each; not stored.
    """

    tokenizer: str | None = None
    classes: list[str] = field(default_factory=list)
    corpus: str | None = None
    sentences: dict[str, Any] | None = None
    features: dict[str, Any] | None = None
    whole_words: bool = False
    first_pieces: bool = False
    joined: bool = False
    joins, paired = False, False

    @classmethod
    def of_corpus(cls, datamodule: Any) -> Self:  # noqa: ANN401
        """The encoder of a `CorpusDataModule`'s texts."""
        rules: SentenceRules | None = datamodule.sentence_rules
        features: TokenFeatures | None = datamodule.token_features
        return cls(
            datamodule.tokenizer_json,
            list(datamodule.classes),
            datamodule.fingerprint,
            None if rules is None else rules.identity() | {"nested": datamodule.nested},
            None if features is None else features.as_dict(),
            datamodule.whole_words,
            datamodule.first_pieces,
            datamodule.joined,
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """The encoder stored in a checkpoint's metadata; keys that are not fields are ignored."""
        return cls(**{x.name: stored[x.name] for x in fields(cls) if x.name in stored})

    def identity(self) -> dict[str, Any]:
        """What determines the content of a corpus that is encoded alike, as plain JSON."""
        digest = text_digest(str(self.tokenizer))
        return {"tokenizer": digest, "classes": self.classes, "sentences": self.sentences}

    def require_classes(self, names: Sequence[str], corpus: str) -> None:
        """Refuse a corpus with other class names, in whatever order."""
        if set(names) != set(self.classes):
            raise InputError(
                f"{corpus} has the classes {', '.join(names)}; the checkpoint's model expects "
                f"{', '.join(self.classes)}: rename them with `classes` of `data`."
            )

    @cached_property
    def parsed_tokenizer(self) -> Tokenizer:
        """`tokenizer` as an object."""
        if self.tokenizer is None:
            raise InputError("this task has no tokenizer yet: train it or load a checkpoint.")
        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def word_boundaries(self) -> WholeWords:
        """Finds where words begin among the tokenizer's tokens."""
        return WholeWords(self.parsed_tokenizer.to_str())

    def encode(
        self,
        texts: Sequence[str],
        pos: Sequence[Sequence[str]] | None = None,
        queries: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> TextBatch:
        """The batch of B texts, split and tokenised like the corpus's test split.

        Args:
            texts: Texts; one without a token becomes one unknown token. If tokens have features,
                texts are split at white space.
            pos: Part-of-speech tags of each text's tokens, if they are a feature.
            queries: The query of each text, if the corpus has queries.
            candidates: Names of the classes that each text may be answered with; None: all.

        Raises:
            InputError: `texts` or `queries` is not a list of strings, or queries are missing; `pos` is
                required and does not have one tag per token; `queries` or `candidates` does not have B
                entries; a query has no token; or a text has no candidates, or one that is not a class.
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
        tokenizer, joined = self.parsed_tokenizer, self.reads_joined(queries)
        if joined:
            asked = queries or (), range(len(texts)), "the given texts"
            encoded, segments = encode_joined(texts, tokenizer, *asked)
        else:
            rules = SentenceRules.from_identity(self.sentences) if self.sentences else None
            encoded = encode_sentences(tokenizer, texts, rules)
        sizes = encoded.sizes if self.sentences and self.sentences["nested"] else None
        if self.whole_words:
            sizes = [self.word_boundaries.sizes(ids).tolist() for ids in encoded.ids]
        batch = collate_ids(encoded.ids, sizes)
        if self.first_pieces:
            marked = torch.zeros_like(batch.mask)
            for number, text in enumerate(texts):
                if starts := [word.start() for word in re.finditer(r"\S+", text)]:
                    marked[number, words_of_pieces(tokenizer, text, starts)[2]] = True
                else:  # its unknown token, so that each text has a row
                    marked[number] = batch.attendable()[number]
            batch.extras[MARKED] = marked.to(torch.int8)
        if self.features is not None:
            features = TokenFeatures.from_dict(self.features)
            batch.extras = {name: torch.zeros_like(batch.tokens) for name in features.rules.columns}
            for number, text in enumerate(texts):
                words = [text[start:stop] for start, stop in tokenizer.encode(text).offsets]
                columns = features.encode(words, None if pos is None else pos[number])
                for name, values in columns.items():
                    batch.extras[name][number, : len(words)] = torch.from_numpy(values)
        if joined:
            flat = np.fromiter(chain.from_iterable(segments), np.int8)
            batch.extras[SEGMENT] = pad_ragged(flat, batch.mask.sum(-1).numpy())
        elif queries is not None:
            ids = encode_queries(tokenizer, queries, range(len(queries)), "the given texts")
            batch = with_queries(batch, ids)
        if candidates is not None:
            if not all(candidates):
                raise InputError("a text has no candidates; give at least one for each.")
            numbers = {name: number for number, name in enumerate(self.classes)}
            if unknown := [name for names in candidates for name in names if name not in numbers]:
                raise InputError(
                    f"the candidate {unknown[0]!r} is not among the model's classes "
                    f"{', '.join(self.classes)}{did_you_mean(unknown[0], self.classes)}."
                )
            allowed = [[numbers[name] for name in names] for names in candidates]
            batch = allow_classes(batch, allowed, len(numbers))
        return batch

    def surface(self, text: str, query: str | None = None, items: bool = False) -> Surface:
        """Surface of the tokens or whole words of a text; of its sentences if they are `items`.

        Of a passage and a query that are one text, it is that of both.
        """
        parts: list[tuple[str | tuple[str, str], int | None]]
        if query is not None and self.reads_joined([query]):
            asked = [query], [0], "the given texts"
            encoded, _ = encode_joined([text], self.parsed_tokenizer, *asked)
            parts = [((text, query), None)]
        else:
            rules = SentenceRules.from_identity(self.sentences) if self.sentences else None
            encoded = encode_sentences(self.parsed_tokenizer, [text], rules)
            parts = list(zip(encoded.texts[0], encoded.sizes[0], strict=True))
        (ids,), sizes = encoded.ids, None
        if self.whole_words:
            sizes = self.word_boundaries.sizes(ids).tolist()
        elif items and self.sentences and self.sentences["nested"]:
            sizes = encoded.sizes[0]
        return surface_of(self.parsed_tokenizer, ids, parts, sizes)

    def reads_joined(self, queries: Sequence[str] | None) -> bool:
        """Whether these queries are part of their texts; raises `InputError` if they are missing."""
        if self.joined and queries is None:
            raise InputError(
                "the model reads a text and a query together: give a query for each text."
            )
        return queries is not None and (self.joined or self.joins)


def require_text(value: object, place: str) -> None:
    """Refuse a value that is no string, or half a character; messages call it `place`."""
    if not isinstance(value, str):
        raise InputError(f"{place} is {short(value)}; expected a string.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place}, {short(value)}, has a lone surrogate (half a character) at position "
            f"{error.start}: decode its source as UTF-8, or remove it."
        ) from None

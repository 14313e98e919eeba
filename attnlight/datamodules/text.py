"""Any corpus of labelled texts that `datasets` can read."""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from attnlight.data.dataset import COLUMNS
from attnlight.data.documents import DocumentReader
from attnlight.data.encode import write_split
from attnlight.data.encoding import Encoding
from attnlight.data.labels import read_labels
from attnlight.data.parts import divide, open_documents
from attnlight.data.selection import Selection
from attnlight.data.sentences import SentenceRules, Sentences
from attnlight.data.sources import Classes, Source
from attnlight.data.splits import CURES, complete_sources, named_sources
from attnlight.data.tokenization import Splitting, TextRules, make_tokenizer
from attnlight.data.vocabulary import learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError, require_at_least


class TextDataModule(CorpusDataModule):
    """A corpus of labelled texts, from the hub or a local folder of the same schema.

    Rows pass `classes`, then the length limits, then test texts and validation texts are split off
    the training texts, then `subset` chooses; the vocabulary comes from the training texts that are
    left. Texts that occur in two splits, white space aside, are counted in `corpus.json`
    (`also_in`), and the line that preparing prints says how many.

    With `sentences` each text is split into sentences before it is tokenised, and each sentence is
    tokenised by itself; sentences without a token vanish. There are no boundary tokens then.
    Serrano & Smith (2019) keep long documents out of training and validation, not out of testing
    (Yahoo! Answers: at most 50 sentences of 350 tokens; Yelp: 43 of 200). Here `max_sentences` and
    `max_sentence_tokens` cut them instead, so that every document stays, and leave the test split
    whole as well unless `cap_test`. What is cut is counted in `corpus.json`.

    Args:
        path: Hub id, or a local folder or file that `datasets` can read (CSV, TSV, JSON, JSON
            lines, parquet). Loading scripts no longer run: a corpus that needs one is read by
            `revision` from its parquet files.
        name: Configuration of the corpus on the hub.
        revision: Commit, tag or branch on the hub; null is the one that is current when the corpus
            is first prepared here.
        local: Folder under `$ATTNLIGHT_DATA` that is read in place of `path` where that variable
            is set.
        text: Column of texts, or several to be joined with spaces, or with `sentences` by empty
            lines, so that no sentence reaches over.
        tokens: Column of ready token lists, in place of `text`; they are joined with spaces and
            pass through the same rules as texts.
        label: Column of labels, whole numbers or strings.
        extras: Columns of the token lists' source with a number per token, which follow splitting
            and truncation into `TextBatch.extras`.
        classes: Class names, in order, to the source's labels (numbers, strings or names); rows
            with other labels are dropped. One label needs no list. Null: every label is a class.
        train: Split of the corpus to train on (slices like `train[:10%]` are understood), or a
            source of its own.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that `path` has and that neither `train` nor `test` reads; there is none where
            it has none of them.
        test: The same for testing; null where there is none.
        validation_fraction: Share of the training texts to validate on, in place of a split.
        test_fraction: Share of the training texts to test on, in place of `test`: the same share
            of each class, chosen by a hash of seed and row. Equal texts stay on one side. The test
            texts are split off before those that validate.
        min_tokens: Drop texts of fewer tokens, boundary tokens not counted, in all splits; a text
            is counted as a whole and before any cut.
        max_tokens: Drop texts of more tokens, in all splits.
        subset: Split to a seeded choice of its texts: a share (0.2) or a number (500).
        split_seed: Seed of `validation_fraction`, `test_fraction` and `subset`.
        min_document_frequency: Training texts a word must occur in to have a vector of its own.
        max_vocabulary: Words to keep at most, those in most texts first.
        lowercase: Lower-case texts.
        digits: Token that stands for any token with a digit in it, e.g. `qqq`.
        splitting: `whitespace`: tokens stand between white space; `punctuation`: runs of word
            characters, and every other character by itself; `words`: runs of word characters.
        markup: Drop tags like `<br />` and the treebank's bracket codes like `-LRB-`.
        boundary_tokens: Put a token before and one after each text; attention cannot reach them.
        truncate: Cut texts to this many tokens instead of dropping them.
        line_breaks: Read a backslash before an n as a line break: so write the hub's copies of
            Yelp and Yahoo! Answers by Zhang et al. (2015) theirs.
        sentences: `nested`: batches keep the sentences of a text apart, for hierarchical models;
            `flat`: they hold the same sentences, cut alike, one after another; `none`: texts are
            not split.
        language: ISO 639 code of the language by whose rules sentences end (library `sentencex`).
        max_sentences: Keep this many sentences of a training or validation text, the first ones.
        max_sentence_tokens: Keep this many tokens of their sentences, the first ones.
        cap_test: Cut test texts, and raw text that a trained model is given, in the same way.
        **kwargs: Arguments of `CorpusDataModule`.

    Raises:
        InputError: Options are out of range or exclude each other.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        local: str | None = None,
        text: str | list[str] = "text",
        tokens: str | None = None,
        label: str = "label",
        extras: list[str] | None = None,
        classes: Classes | None = None,
        train: str | Source = "train",
        validation: str | Source | None = None,
        test: str | Source | None = "test",
        validation_fraction: float | None = None,
        test_fraction: float | None = None,
        min_tokens: int | None = None,
        max_tokens: int | None = None,
        subset: dict[str, int | float] | None = None,
        split_seed: int = 0,
        min_document_frequency: int = 1,
        max_vocabulary: int | None = None,
        lowercase: bool = True,
        digits: str | None = None,
        splitting: Splitting = "whitespace",
        markup: bool = False,
        boundary_tokens: bool = True,
        truncate: int | None = None,
        line_breaks: bool = False,
        sentences: Sentences = "none",
        language: str = "en",
        max_sentences: int | None = None,
        max_sentence_tokens: int | None = None,
        cap_test: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.extras = list(extras or ())
        self.selection = Selection(
            min_tokens,
            max_tokens,
            validation_fraction,
            dict(subset or {}),
            split_seed,
            test_fraction,
        )
        self._main = Source(path, name, revision, local, None, text, tokens, label, classes)
        splits = {"train": train, "validation": validation, "test": test}
        self._named = named_sources(self._main, splits, self.selection)
        self.min_document_frequency = min_document_frequency
        self.max_vocabulary = max_vocabulary
        self.rules = TextRules(lowercase, digits, splitting, markup, boundary_tokens, truncate)
        self.line_breaks = line_breaks
        self.cap_test = cap_test
        self.nested = sentences == "nested"
        self._capped = SentenceRules(language, None, max_sentences, max_sentence_tokens)
        if sentences != "none":
            self.sentence_rules = self._capped if cap_test else SentenceRules(language)
        self._check()

    def _check(self) -> None:
        least, most = self.min_document_frequency, self.max_vocabulary
        require_at_least(1, min_document_frequency=least, max_vocabulary=most)
        ready = [bool(source.tokens) for source in self._named.values()]
        split = self.sentence_rules is not None
        capped = self.cap_test or self._capped != SentenceRules()
        reserved = ", ".join(set(self.extras) & set(COLUMNS))
        refused = [
            (reserved, f"extras names {reserved}, a column that every prepared corpus has"),
            (
                self.extras and not all(ready),
                "extras runs along ready tokens: name their column in tokens",
            ),
            (
                self.line_breaks and any(ready),
                "line_breaks reads raw text: name its columns in text, not in tokens",
            ),
            (
                capped and not split,
                "language, cap_test and the limits of sentences need sentences: nested or flat",
            ),
            (
                split and any(ready),
                "sentences are found in raw text: name its columns in text, not in tokens",
            ),
            (
                split and self.rules.boundary_tokens,
                "a corpus with sentences has none: set boundary_tokens to false",
            ),
            (
                split and self.rules.truncate is not None,
                "truncate cuts texts that are not split: give max_sentences, max_sentence_tokens",
            ),
        ]
        for applies, message in refused:
            if applies:
                raise InputError(message)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Where each split comes from, but for those that are split off the training texts."""
        return complete_sources(self._main, self._named, self.selection, self.cache)

    @override
    def evaluate_as(self, encoding: Encoding, name: str) -> None:
        super().evaluate_as(encoding, name)
        for source in self._read.values():
            if source.classes is not None:
                encoding.require_classes(list(source.classes), str(source))
            if source.tokens and encoding.sentences is not None:
                raise InputError(
                    f"the checkpoint splits texts into sentences, but {source} is read as ready "
                    "tokens: name its column of raw text in `text`"
                )

    @property
    def _read(self) -> dict[str, Source]:
        """The sources of the prepared splits.

        Where the encoding is given the training texts decide nothing, but for splits cut from them.
        """
        cut = (self.selection.validation_fraction, self.selection.test_fraction) != (None, None)
        if self.encoding is None or cut or self.predict_split == "train":
            return self.sources
        return {split: source for split, source in self.sources.items() if split != "train"}

    @override
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = {
            "sources": {split: source.identity() for split, source in self._read.items()},
            "extras": self.extras,
            "selection": self.selection.identity(),
            "vocabulary": [self.min_document_frequency, self.max_vocabulary],
            "rules": asdict(self.rules),
        }
        # Named only where they are used, so that other corpora keep the fingerprints they had.
        if self.line_breaks:
            recipe["line_breaks"] = True
        if self.sentence_rules is not None:
            # Nested and flat batches are read from one prepared corpus.
            recipe["sentences"] = self._capped.identity() | {"cap_test": self.cap_test}
        return recipe

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            classes = None if self.encoding is None else list(self.encoding.classes)
            joint = " " if self.sentence_rules is None else "\n\n"
            parts = {}
            for split, source in self._read.items():
                rows = source.load(Path(scratch), CURES[split])
                classes, labels = read_labels(rows, source, classes)
                reader = DocumentReader(rows, source, self.extras, joint, self.line_breaks)
                parts[split] = open_documents(reader, labels, self.rules, self.selection)
            # `subset` may name training texts, which are not read where the encoding is given.
            parts, shared = divide(parts, self.selection, complete=self.encoding is None)
            rules = self.sentence_rules  # of the test split
            capped = rules if rules is None or self.encoding is not None else self._capped
            if self.encoding is not None:
                tokenizer = self.encoding.tokenizer
            else:
                vocabulary = (self.min_document_frequency, self.max_vocabulary, capped)
                words = learn_vocabulary(self.rules, parts["train"].texts, *vocabulary)
                tokenizer = make_tokenizer(self.rules, words)
            counts: dict[str, dict[str, Any]] = {}
            for split, part in parts.items():
                limits = rules if split == "test" else capped
                written = write_split(folder / split, part, tokenizer, limits)
                counts[split] = part.counts() | written | shared[split]
                name = str(part.reader.source.split)
                counts[split] |= {} if name in (split, "train") else {"split": name}
        tokenizer_json = tokenizer.to_str(pretty=True)
        self.describe(folder, tokenizer_json, classes=classes, splits=counts, extras=self.extras)

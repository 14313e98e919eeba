"""Any corpus of labelled texts that `datasets` can read."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from attnlight.data.dataset import COLUMNS
from attnlight.data.documents import DocumentReader
from attnlight.data.encode import write_split
from attnlight.data.encoding import Encoding
from attnlight.data.labels import read_labels
from attnlight.data.parts import Part, open_documents, select_splits
from attnlight.data.pieces import find_file, longest_text, read_tokenizer
from attnlight.data.rationales import ANNOTATORS, RATIONALE, mark_rationale
from attnlight.data.selection import Selection
from attnlight.data.sentences import SentenceRules, Sentences
from attnlight.data.sources import Classes, Source
from attnlight.data.splits import MISSING_SPLIT_ADVICE, complete_sources, named_sources
from attnlight.data.tokenization import Splitting, TextRules, make_tokenizer
from attnlight.data.vocabulary import learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError, require_at_least
from attnlight.storage.files import read_json

if TYPE_CHECKING:
    from datasets import Dataset
    from tokenizers import Tokenizer


class TextDataModule(CorpusDataModule):
    """A corpus of labelled texts, from the hub or a local folder of the same schema.

    Rows are filtered by `classes`, then by the length limits; then test and validation texts are
    split off the training texts, then `subset` is applied; the vocabulary comes from the remaining
    training texts. Texts that occur in two splits, ignoring white space, are counted in
    `corpus.json` (`also_in`) and in the line that is printed when the corpus is prepared.

    With `sentences` each text (or token list, joined with spaces) is split into sentences, which
    are tokenised separately; sentences without a token are dropped. Boundary tokens cannot be used
    then. Serrano & Smith (2019) exclude long documents from training and validation, but not from
    testing (Yahoo! Answers: at most 50 sentences of 350 tokens; Yelp: 43 of 200). Here
    `max_sentences` and `max_sentence_tokens` truncate them instead, so that every document is used;
    test texts are truncated only with `cap_test`. What is removed is counted in `corpus.json`.

    Args:
        path: Hub id, or a local folder or file that `datasets` can read (CSV, TSV, JSON, JSON
            lines, parquet). Loading scripts are not supported: for a corpus that needs one, set
            `revision` to its parquet files.
        name: Configuration of the corpus on the hub.
        revision: Commit, tag or branch on the hub; null: the one that is current when the corpus is
            first prepared on this machine.
        local: Folder under `$ATTNLIGHT_DATA` to read in place of `path` if that variable is set.
        text: Column of texts, or several to be joined with spaces; with `sentences`, by empty
            lines, so that no sentence spans two columns.
        tokens: Column of token lists, in place of `text`; they are joined with spaces and processed
            by the same rules as texts.
        label: Column of labels, whole numbers or strings.
        extras: Columns with a number for each element of the token lists, aligned with the tokens
            after splitting and truncation in `TextBatch.extras`.
        rationale: Column of what people marked in the token lists as the reason of the label: a
            number for each token, marked where it is positive, or a list of such lists, one for each
            annotator. `TextBatch.extras` has `rationale`, 1 on the tokens that more than half of the
            text's annotators marked and, with several, `annotators`, whose bit k is set where
            annotator k marked the token. A split that is read as raw text or that lacks the column
            has neither.
        rationale_labels: The column holds a label of each token instead; the tokens whose label
            belongs to the class of the text are its rationale.
        remove: Column with a number for each element of the token lists; elements where it is positive
            are left out of every text, with their values of `extras`. Length limits and vocabulary
            are those of what remains.
        classes: The source's labels (numbers, strings or names) by class name, in order; rows with
            other labels are dropped. One label needs no list. Null: every label is a class.
        train: Split of the corpus to train on (slices like `train[:10%]` are supported), or a
            separate source.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that `path` has and that neither `train` nor `test` reads, or none if it has
            none of them.
        test: The same for testing; null where there is none.
        validation_fraction: Fraction of the training texts to validate on, in place of a split.
        test_fraction: Fraction of the training texts to test on, in place of `test`: the same
            fraction of each class, chosen by a hash of seed and row. Equal texts stay together.
            Test texts are split off before validation texts.
        min_tokens: Drop texts with fewer tokens in all splits; boundary tokens are not counted, and
            texts are counted before truncation.
        max_tokens: Drop texts with more tokens in all splits.
        subset: Fraction (0.2) or number (500) of texts to use, by split; a seeded choice.
        split_seed: Seed of `validation_fraction`, `test_fraction` and `subset`.
        min_document_frequency: Minimum number of training texts that contain a word with a vector.
        max_vocabulary: Maximum number of words, those in most texts first.
        lowercase: Lower-case texts.
        digits: Token that replaces any token with a digit, e.g. `qqq`.
        splitting: `whitespace`: tokens are separated by white space; `punctuation`: runs of word
            characters, and every other character as a token; `words`: runs of word characters.
        markup: Drop tags like `<br />` and the treebank's bracket codes like `-LRB-`.
        boundary_tokens: Put a token before and after each text, which attention cannot reach.
        truncate: Truncate texts to this many tokens instead of dropping them.
        tokenizer: Folder or hub id of a pretrained model, whose tokenizer makes the tokens in place of
            the rules above: with its special tokens, cut at the model's longest text (counted) or at
            `truncate`. Length limits count words.
        line_breaks: Replace a backslash followed by n with a line break, as needed for the hub's
            copies of Yelp and Yahoo! Answers by Zhang et al. (2015).
        sentences: `nested`: batches keep the sentences of a text separate, for hierarchical models;
            `flat`: they hold the same sentences, truncated alike, concatenated; `none`: texts are
            not split.
        language: ISO 639 code of the language whose rules split sentences (library `sentencex`).
        max_sentences: Maximum number of sentences of a training or validation text.
        max_sentence_tokens: Maximum number of tokens of their sentences.
        cap_test: Apply both limits to test texts and to raw text given to a trained model.
        **kwargs: Arguments of `CorpusDataModule`.

    Raises:
        InputError: Options are out of range or mutually exclusive.
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
        rationale: str | None = None,
        rationale_labels: bool = False,
        remove: str | None = None,
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
        tokenizer: str | None = None,
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
        self.rationale = rationale
        self.rationale_labels = rationale_labels
        self.remove = remove
        self.selection = Selection(
            min_tokens,
            max_tokens,
            validation_fraction,
            dict(subset or {}),
            split_seed,
            test_fraction,
        )
        self._main_source = Source(path, name, revision, local, None, text, tokens, label, classes)
        splits = {"train": train, "validation": validation, "test": test}
        self._named_sources = named_sources(self._main_source, splits, self.selection)
        self.min_document_frequency = min_document_frequency
        self.max_vocabulary = max_vocabulary
        self.rules = TextRules(lowercase, digits, splitting, markup, boundary_tokens, truncate)
        self.tokenizer_path = tokenizer
        self.line_breaks = line_breaks
        self.cap_test = cap_test
        self.nested = sentences == "nested"
        self._capped = SentenceRules(language, None, max_sentences, max_sentence_tokens)
        if sentences != "none":
            self.sentence_rules = self._capped if cap_test else SentenceRules(language)
        self._check()

    def _check(self) -> None:
        min_frequency, max_words = self.min_document_frequency, self.max_vocabulary
        require_at_least(1, min_document_frequency=min_frequency, max_vocabulary=max_words)
        pre_split = [bool(source.tokens) for source in self._named_sources.values()]
        marked = {RATIONALE, ANNOTATORS} & set(self.extras) if self.rationale is not None else ()
        has_sentences = self.sentence_rules is not None
        capped = self.cap_test or self._capped != SentenceRules()
        reserved = ", ".join(set(self.extras) & set(COLUMNS))
        refused = [
            (
                self.tokenizer_path is not None
                and (self.rules.digits, min_frequency, max_words, has_sentences)
                != (None, 1, None, False),
                "tokenizer makes other tokens: leave out digits, sentences and limits of the vocabulary",
            ),
            (reserved, f"extras names {reserved}, which is a reserved column of prepared corpora"),
            (
                self.extras and not all(pre_split),
                "extras needs token lists: set tokens to their column, or list words in marks",
            ),
            (
                self.remove is not None and not all(pre_split),
                "remove needs token lists: set tokens to their column",
            ),
            (marked, f"extras names {', '.join(marked)}, which rationale makes: rename the column"),
            (
                self.rationale_labels and self.rationale is None,
                "rationale_labels needs the column of the labels of tokens: set rationale",
            ),
            (
                self.line_breaks and any(pre_split),
                "line_breaks needs raw text: set text to its columns instead of tokens",
            ),
            (
                capped and not has_sentences,
                "language, cap_test and the limits of sentences need sentences: nested or flat",
            ),
            (
                has_sentences and self.rules.boundary_tokens,
                "boundary_tokens cannot be used with sentences: set it to false",
            ),
            (
                has_sentences and self.rules.truncate is not None,
                "truncate cannot be used with sentences: set max_sentences, max_sentence_tokens",
            ),
        ]
        for applies, message in refused:
            if applies:
                raise InputError(message)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The source of each split, except for those split off the training texts."""
        return complete_sources(self._main_source, self._named_sources, self.selection, self.cache)

    @override
    def evaluate_as(self, encoding: Encoding, name: str) -> None:
        super().evaluate_as(encoding, name)
        for source in self._prepared_sources.values():
            if source.classes is not None:
                encoding.require_classes(list(source.classes), str(source))
            if source.tokens and (encoding.sentences or {}).get("length") is not None:
                raise InputError(
                    f"the checkpoint splits texts into sentences of equal length, but {source} is read "
                    "as token lists: set `text` to its column of raw text"
                )

    @property
    def _prepared_sources(self) -> dict[str, Source]:
        """The sources of the prepared splits.

        With a given encoding, training texts are only read if other splits are split off them.
        """
        cut = (self.selection.validation_fraction, self.selection.test_fraction) != (None, None)
        if self.encoding is None or cut or self.predict_split == "train":
            return self.sources
        return {split: source for split, source in self.sources.items() if split != "train"}

    @override
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = {
            "sources": {
                split: source.identity() for split, source in self._prepared_sources.items()
            },
            "extras": self.extras,
            "selection": self.selection.identity(),
            "vocabulary": [self.min_document_frequency, self.max_vocabulary],
            "rules": asdict(self.rules),
        }
        # Included only if used, so that fingerprints of other corpora do not change.
        if self.line_breaks:
            recipe["line_breaks"] = True
        if self.rationale is not None:
            recipe["rationale"] = [self.rationale, self.rationale_labels]
        if self.tokenizer_path is not None:
            text = self._model_tokenizer.to_str()
            recipe["tokenizer"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        if self.remove is not None:
            recipe["remove"] = self.remove
        if self.sentence_rules is not None:
            # Nested and flat batches are read from the same prepared corpus.
            recipe["sentences"] = self._capped.identity() | {"cap_test": self.cap_test}
        return recipe

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            classes = None if self.encoding is None else list(self.encoding.classes)
            parts = {}
            for split, source in self._prepared_sources.items():
                rows = source.load(Path(scratch), MISSING_SPLIT_ADVICE[split])
                classes, parts[split] = self.open_split(rows, source, classes)
            if self.rationale and not any(
                RATIONALE in part.reader.extras for part in parts.values()
            ):
                raise InputError(
                    "rationale needs token lists: set tokens, or the passage of pairs, to their column"
                )
            # `subset` may name training texts, which are not read with a given encoding.
            parts, shared = select_splits(parts, self.selection, complete=self.encoding is None)
            rules = self.sentence_rules  # of the test split
            capped = rules if rules is None or self.encoding is not None else self._capped
            if self.encoding is not None:
                tokenizer = self.encoding.tokenizer
            elif self.tokenizer_path is not None:
                tokenizer = self._model_tokenizer
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
        extras = list(dict.fromkeys(name for part in parts.values() for name in part.reader.extras))
        describe_splits(folder, tokenizer_json, classes=classes, splits=counts, extras=extras)

    @cached_property
    def _model_tokenizer(self) -> Tokenizer:
        """The pretrained model's tokenizer, with the truncation of this corpus."""
        assert self.tokenizer_path is not None
        config = read_json(find_file(self.tokenizer_path, "config.json"))
        tokenizer, _ = read_tokenizer(self.tokenizer_path)
        lengths = [longest_text(config)]
        if self.rules.truncate is not None:
            lengths.append(self.rules.truncate + tokenizer.num_special_tokens_to_add(False))
        length = min((length for length in lengths if length is not None), default=None)
        if length is not None:
            tokenizer.enable_truncation(length)
        return tokenizer

    def open_split(
        self, rows: Dataset, source: Source, classes: list[str] | None
    ) -> tuple[list[str], Part[DocumentReader]]:
        """The classes, and the split of the rows that have a class and a length within the limits.

        Args:
            rows: The source's rows.
            source: The source of the split.
            classes: The corpus's classes, as set by the training split; None for that split.

        Raises:
            InputError: A column is missing or of another type, or no row is left.
        """
        joint = " " if self.sentence_rules is None else "\n\n"
        classes, labels = read_labels(rows, source, classes)
        extras = list(self.extras)
        if self.rationale is not None and source.tokens is not None:
            of_class = labels if self.rationale_labels else None
            if source.path == self.path or self.rationale in rows.column_names:
                rows, added = mark_rationale(rows, source, self.rationale, of_class)
                extras += added
        reader = DocumentReader(rows, source, extras, joint, self.line_breaks, self.remove)
        return classes, open_documents(reader, labels, self.rules, self.selection)

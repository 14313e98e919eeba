"""Any corpus of labelled texts that `datasets` can read."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from attnlight.batch import SEGMENT
from attnlight.data.columns import TokenColumns
from attnlight.data.dataset import COLUMNS
from attnlight.data.digests import text_digest
from attnlight.data.documents import DocumentReader
from attnlight.data.edits import EditColumns, read_originals
from attnlight.data.encode import write_split
from attnlight.data.find_columns import find_columns
from attnlight.data.labels import read_labels
from attnlight.data.parts import Part, open_documents, select_splits
from attnlight.data.rationales import ANNOTATORS, RATIONALE, mark_rationale
from attnlight.data.raw_text import RawText
from attnlight.data.selection import Selection
from attnlight.data.sentences import SentenceOptions, SentenceRules
from attnlight.data.sources import Classes, Dataset, Source, TextCorpus, identities
from attnlight.data.splits import MISSING_SPLIT_ADVICE, Splits, named_sources, with_options
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.data.vocabulary import VocabularyLimits, learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError


class TextDataModule(CorpusDataModule):
    """A corpus of labelled texts, from the hub or a local folder of the same schema.

    Rows are filtered by `classes`, then by the length limits; then test and validation texts are
    split off the training texts, then `subset` is applied; the vocabulary comes from the remaining
    training texts. Texts that occur in two splits, ignoring white space, are counted in
    `corpus.json` (`also_in`) and in the line that is printed when the corpus is prepared.

    With `sentences` each text (or token list, joined with spaces) is split into sentences, which
    are tokenised separately; sentences without a token are dropped. Where Serrano & Smith (2019)
    exclude long documents from training and validation, `max_sentences` and `max_sentence_tokens`
    truncate them; what is removed is counted in `corpus.json`.

    Args:
        corpus: The corpus and its columns.
        columns: Columns with values for the elements of token lists.
        edits: Which texts are edits of which.
        classes: The source's labels (numbers, strings or names) by class name, in order; rows with
            other labels are dropped. One label needs no list. Null: every label is a class.
        splits: The splits to read.
        selection: Which of their texts are used.
        vocabulary: Which words have ids.
        rules: How a text becomes tokens.
        tokenizer: Folder or hub id of a pretrained model, whose tokenizer makes the tokens in place of
            the rules above: with its special tokens, cut at the model's longest text (counted) or at
            `truncate`. Length limits count words.
        line_breaks: Replace a backslash followed by n with a line break, as needed for the hub's
            copies of Yelp and Yahoo! Answers by Zhang et al. (2015).
        sentence_options: Whether texts are split into sentences.
        common: The options of every corpus.

    Raises:
        InputError: Options are mutually exclusive.
    """

    @flat_options
    def __init__(
        self,
        corpus: TextCorpus,
        columns: TokenColumns,
        *,
        edits: EditColumns,
        classes: Classes | None = None,
        splits: Splits,
        selection: Selection,
        vocabulary: VocabularyLimits,
        rules: TextRules,
        tokenizer: str | None = None,
        line_breaks: bool = False,
        sentence_options: SentenceOptions,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        self.path = corpus.path
        self.columns, self.extras, self.edits = columns, list(columns.extras or ()), edits
        self.selection, self.vocabulary, self.rules = selection, vocabulary, rules
        self._main_source: Source = Source(**vars(corpus), classes=classes)
        self._splits = splits
        self.other_columns = [*self.extras, columns.rationale, columns.remove, edits.edit_of]
        self.tokenizer_path, self.line_breaks = tokenizer, line_breaks
        options = sentence_options
        self.nested, self.cap_test = options.sentences == "nested", options.cap_test
        limits = (options.max_sentences, options.max_sentence_tokens)
        self._capped = SentenceRules(options.language, None, *limits)
        if options.sentences != "none":
            rules_of_test = self._capped if self.cap_test else SentenceRules(options.language)
            self.sentence_rules = rules_of_test
        self._check()

    def _check(self) -> None:
        main, splits = self._main_source, self._splits
        sources = {"train": main} | named_sources(main, splits, self.selection)
        pre_split = [bool(source.tokens) for source in sources.values()]
        marked = {RATIONALE, ANNOTATORS} & set(self.extras) if self.columns.rationale else ()
        has_sentences = self.sentence_rules is not None
        reserved = set(self.extras) & {*COLUMNS, SEGMENT}
        makes_tokens = self.rules.digits or self.vocabulary != VocabularyLimits() or has_sentences
        taken = ", ".join(reserved or marked)
        refused = {
            "tokenizer makes other tokens: leave out digits, sentences and limits of the vocabulary": (
                self.tokenizer_path is not None and makes_tokens
            ),
            f"extras names {taken}, which is a reserved column of prepared corpora": reserved,
            f"extras names {taken}, which rationale makes: rename the column": marked,
            "extras needs token lists: set tokens to their column, or list words in marks": (
                self.extras and not all(pre_split)
            ),
            "remove needs token lists: set tokens to their column": (
                self.columns.remove and not all(pre_split)
            ),
            "rationale_labels needs the column of the labels of tokens: set rationale": (
                self.columns.rationale_labels and not self.columns.rationale
            ),
            "line_breaks needs raw text: set text to its columns instead of tokens": (
                self.line_breaks and any(pre_split)
            ),
            "language, cap_test and the limits of sentences need sentences: nested or flat": (
                (self.cap_test or self._capped != SentenceRules()) and not has_sentences
            ),
            "boundary_tokens cannot be used with sentences: set it to false": (
                has_sentences and self.rules.boundary_tokens
            ),
            "truncate cannot be used with sentences: set max_sentences, max_sentence_tokens": (
                has_sentences and self.rules.truncate is not None
            ),
        }
        if message := next((message for message, applies in refused.items() if applies), None):
            raise InputError(message)

    @override
    def _find_columns(
        self, source: Source, **columns: object
    ) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        """As of any corpus; `columns` by option are those beside the label, by default the text's."""
        columns = (columns or {"text": source.columns}) | {"label": source.label}
        null = [option for option, column in columns.items() if not column]
        taken = {*self.other_columns, *source.columns, source.label}
        found = find_columns(source, null, taken)
        (self._main_source,) = with_options(found[0], self._main_source)
        return found

    @property
    @override
    def classes(self) -> list[str]:
        if self.encoding is not None or "train" in self.sources:
            return super().classes
        with TemporaryDirectory() as scratch:  # a table that is only tested
            source = next(iter(self.sources.values()))
            return read_labels(source.load(Path(scratch)), source)[0]

    @override
    def evaluate_as(self, encoding: RawText, name: str) -> None:
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
            "sources": identities(self._prepared_sources),
            "extras": self.extras,
            "selection": self.selection.identity(),
            "vocabulary": list(vars(self.vocabulary).values()),
            "rules": asdict(self.rules),
        }
        # Included only if used, so that fingerprints of other corpora do not change. Nested and flat
        # batches are read from the same prepared corpus.
        columns, capped = self.columns, {"cap_test": self.cap_test}
        used = {
            "line_breaks": self.line_breaks or None,
            "rationale": columns.rationale and [columns.rationale, columns.rationale_labels],
            "remove": columns.remove,
            "edits": self.edits.edit_of and list(vars(self.edits).values()),
            "sentences": self.sentence_rules and self._capped.identity() | capped,
        }
        recipe |= {name: part for name, part in used.items() if part is not None}
        if self._model_tokenizer is not None:
            recipe["tokenizer"] = text_digest(self._model_tokenizer.to_str())
        return recipe

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            classes = None if self.encoding is None else self.encoding.classes
            parts = {}
            for split, source in self._prepared_sources.items():
                rows = source.load(Path(scratch), MISSING_SPLIT_ADVICE[split])
                classes, parts[split] = self.open_split(rows, source, classes)
            if self.columns.rationale and not any(
                RATIONALE in part.reader.extras for part in parts.values()
            ):
                raise InputError(
                    "rationale needs token lists: set tokens, or the passage of pairs, to their column"
                )
            # `subset` may name training texts, which are not read with a given encoding.
            complete = self.encoding is None
            parts, shared = select_splits(parts, self.selection, complete, self.edits)
            rules = self.sentence_rules  # of the test split
            capped = rules if rules is None or self.encoding is not None else self._capped
            tokenizer = self.encoding.parsed_tokenizer if self.encoding else self._model_tokenizer
            if tokenizer is None:
                train = parts["train"].texts
                words = learn_vocabulary(self.rules, train, self.vocabulary, capped)
                tokenizer = make_tokenizer(self.rules, words)
            counts: dict[str, dict[str, Any]] = {}
            for split, part in parts.items():
                limits = rules if split == "test" else capped
                written = write_split(folder / split, part, tokenizer, limits, self.joined)
                counts[split] = part.counts() | written | shared[split]
                name = str(part.reader.source.split)
                counts[split] |= {} if name in (split, "train") else {"split": name}
        tokenizer_json = tokenizer.to_str(pretty=True)
        extras = list(dict.fromkeys(name for part in parts.values() for name in part.reader.extras))
        describe_splits(folder, tokenizer_json, classes=classes, splits=counts, extras=extras)

    def open_split(
        self, rows: Dataset, source: Source, classes: list[str] | None
    ) -> tuple[list[str], Part[DocumentReader]]:
        """The classes, and the split of the rows that have a class and a length within the limits.

        The given classes are those that the training split has set; None for that split.
        """
        joint = " " if self.sentence_rules is None else "\n\n"
        classes, labels = read_labels(rows, source, classes)
        extras = list(self.extras)
        column, remove = self.columns.rationale, self.columns.remove
        if column is not None and source.tokens is not None:
            of_class = labels if self.columns.rationale_labels else None
            if source.path == self.path or column in rows.column_names:
                rows, added = mark_rationale(rows, source, column, of_class)
                extras += added
        reader = DocumentReader(rows, source, extras, joint, self.line_breaks, remove)
        part = open_documents(reader, labels, self.rules, self.selection)
        if source.path == self.path or self.edits.edit_of in rows.column_names:
            part.originals = read_originals(rows, source, self.edits)
        return classes, part

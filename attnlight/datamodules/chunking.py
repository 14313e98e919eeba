"""Any corpus of sentences with a BIO tag for each token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from attnlight.batch import MARKED
from attnlight.data.conll import SUFFIXES
from attnlight.data.dataset import TokenDataset
from attnlight.data.digests import text_digest
from attnlight.data.encode import write_tagged
from attnlight.data.features import FeatureRules, TokenFeatures
from attnlight.data.find_columns import find_columns
from attnlight.data.parts import open_sentences, select_splits
from attnlight.data.raw_text import RawText
from attnlight.data.selection import Selection
from attnlight.data.sources import Corpus, Source, identities
from attnlight.data.splits import Splits, named_sources, with_options
from attnlight.data.tagged import TaggedColumns, corpus_tags
from attnlight.data.targets import Target
from attnlight.data.tokenization import Splitting, TextRules, make_tokenizer
from attnlight.data.vocabulary import VocabularyLimits, learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError, require_at_least


@dataclass(frozen=True)
class ChunkingCorpus(Corpus):
    """A corpus of tagged sentences, by default CoNLL-2000.

    Args:
        path: Hub id, or a local folder.
        revision: Commit, tag or branch on the hub; CoNLL-2000 itself is a loading script, which
            `datasets` no longer runs, but has this branch of parquet files.
    """

    path: str = "eriktks/conll2000"
    revision: str | None = "refs/convert/parquet"


@dataclass(frozen=True)
class SentenceSelection(Selection):
    """Which sentences are used, of any length.

    Args:
        validation_fraction: Fraction of the training sentences to validate on, in place of a split;
            null: 0.1 where there is none.
    """

    min_tokens: None = field(default=None, init=False)
    max_tokens: None = field(default=None, init=False)


@dataclass(frozen=True)
class WordRules(TextRules):
    """How a word becomes a token.

    Args:
        lowercase: Lower-case words; features use the original word.
        tokenizer: Folder or hub id of a pretrained model, whose tokenizer divides words; the first token of
            each has its tag. Null: a word is a token.
    """

    tokenizer: str | None = None

    splitting: Splitting = field(default="whitespace", init=False)
    markup: bool = field(default=False, init=False)
    boundary_tokens: bool = field(default=False, init=False)
    truncate: None = field(default=None, init=False)


class ChunkingDataModule(CorpusDataModule):
    """Sentences whose tokens have BIO tags: CoNLL-2000 (Tjong Kim Sang & Buchholz, 2000) or another.

    A corpus on the hub or a local folder with the same schema has list columns, given by name. A
    folder of column files, the format of CoNLL-2000 (word, part of speech and chunk tag on each
    line, an empty line between sentences), has numbered columns: give numbers, and file names as
    splits. Rows without a token, such as the last of each split in the hub's copy of CoNLL-2000,
    are dropped and counted.

    Classes are the tags named by the source or, if it names none, O with B and I of each type in
    the training split, alphabetically. If the corpus has no validation split, a seeded tenth of the
    training sentences is used. The vocabulary and the values of features come from the remaining
    ones. Sentences that occur in two splits are counted in `corpus.json` (`also_in`).

    `target` selects what is predicted of a sentence (`Target`). A batch has labels (B, N), -100 on
    padding and on tokens without a prediction; `marked` in `extras`, 1 on tokens with a prediction,
    unless all have one; and each feature in `extras` (`FeatureRules.columns`), (B, N), ids with 0 on
    padding and 1 for values that do not occur in training.

    Args:
        corpus: The corpus.
        columns: Its columns.
        splits: The splits to read.
        selection: Which of their sentences are used.
        chunks: Chunk types, in order, in place of those that occur.
        strict: Refuse an I that does not continue a chunk of its type; otherwise it begins one, as
            in conlleval.
        vocabulary: Which words, suffixes and characters have ids.
        rules: How a word becomes a token.
        features: Features of a token beside the word.
        max_pairs: Maximum number of pairs of a token and an item per batch in validation, test and
            prediction; larger batches are divided, since tests need memory for each pair.
        target_spec: What is predicted of a sentence.
        common: The options of every corpus.

    Raises:
        InputError: Options are out of range or mutually exclusive.
    """

    @flat_options
    def __init__(
        self,
        corpus: ChunkingCorpus,
        columns: TaggedColumns,
        splits: Splits,
        selection: SentenceSelection,
        *,
        chunks: list[str] | None = None,
        strict: bool = True,
        vocabulary: VocabularyLimits,
        rules: WordRules,
        features: FeatureRules,
        max_pairs: int = 1 << 16,
        target_spec: Target,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        require_at_least(1, max_pairs=max_pairs)
        if common.erased_words is not None and common.erased_words.replacement == "delete":
            raise InputError(
                "erased_words would delete tokens whose tags are predicted: set its replacement to unk."
            )
        self.path, self.max_pairs = corpus.path, max_pairs
        file = Path(corpus.path)
        if file.suffix in (*SUFFIXES, ".tsv"):
            self._files = [file.name]
            corpus = replace(corpus, path=str(file.parent))
            defaults = (1, 3) if file.suffix == ".conllu" else (0, -1)  # of CoNLL-U, word and UPOS
            named = (columns.word_column, columns.label_column)
            word, label = (d if n is None else n for d, n in zip(defaults, named, strict=True))
            columns = replace(columns, word_column=word, label_column=label)
        self._main_source: Source = Source(**vars(corpus))
        self._splits = splits
        self.selection = selection
        named_sources(self._main_source, splits, selection)  # refuses what excludes each other
        self._tag_columns = columns
        self.columns, self.mark_columns = columns.read(features), columns.mark_columns or {}
        self.chunks, self.strict = chunks, strict
        self.vocabulary, self.rules, self.feature_rules = vocabulary, rules, features
        self.target, self.target_spec = target_spec.target, target_spec
        self.tokenizer_path, self.first_pieces = rules.tokenizer, rules.tokenizer is not None
        others = features != FeatureRules() or vocabulary != VocabularyLimits()
        if self.first_pieces and (others or self.target == "sentence"):
            raise InputError(
                "tokenizer makes other tokens: leave out features, limits of the vocabulary and target "
                "sentence."
            )

    @override
    def evaluate_as(self, encoding: RawText, name: str) -> None:
        if not encoding.first_pieces or self.target == "sentence":
            raise InputError(
                f"{self.corpus_name} is not the corpus that the tagger was trained on; taggers of whole "
                "words are only evaluated on their training corpus: give the `data` of its fit.yaml."
            )
        super().evaluate_as(encoding, name)
        self.first_pieces = True

    @override
    def resolve(self, verb: str | None = None) -> dict[str, Any]:
        in_files = isinstance(self._tag_columns.word_column, int) and self._files is None
        if in_files and (folder := self._main_source.folder):
            self._files = sorted(file.name for file in folder.iterdir())
        found = super().resolve("fit")  # a tagger is only evaluated on the corpus of its training
        self.columns = self._tag_columns.read(self.feature_rules)
        return found | dict(zip(("word_column", "label_column"), self.columns, strict=False))

    @override
    def _find_columns(self, source: Source) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        columns = self._tag_columns
        named = {"word_column": columns.word_column, "label_column": columns.label_column}
        taken = {*named.values(), *(columns.mark_columns or {}).values()}
        null = [option for option, column in named.items() if column is None]
        found = find_columns(source, null, taken, str(columns.pos_column))
        (self._tag_columns,) = with_options(found[0], columns)
        return found

    @override
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = {
            "sources": identities(self.sources, isinstance(self.columns[0], int)),
            "columns": self.columns,
            "selection": self.selection.identity(),
            "tags": [self.chunks, self.strict],
            "vocabulary": list(vars(self.vocabulary).values()),
            "rules": {
                name: value for name, value in asdict(self.rules).items() if name != "tokenizer"
            },
            "features": asdict(self.feature_rules),
        }
        target = self.target_spec
        if self.target != "tokens":  # so that fingerprints for `tokens` do not change
            parameter = {"marked": target.mark_seed, "sentence": target.sentence_chunk}
            recipe["target"] = [self.target, parameter[self.target]]
        if self.encoding is None and self._model_tokenizer is not None:
            recipe["tokenizer"] = text_digest(self._model_tokenizer.to_str())
        if self.mark_columns:
            recipe["mark_columns"] = self.mark_columns
        return recipe

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            parts = {
                split: open_sentences(split, source, self.columns, Path(scratch), self.mark_columns)
                for split, source in self.sources.items()
            }
            if self.encoding is not None:
                tags = self.encoding.classes
            else:  # of all training sentences, before some of them are split off
                tags = corpus_tags(parts["train"].reader, parts["train"].rows, self.chunks)
            parts, shared = select_splits(parts, self.selection)
            train, classes = parts["train"], self.target_spec.classes(tags)
            tokenizer = self.encoding.parsed_tokenizer if self.encoding else self._model_tokenizer
            if tokenizer is None:
                words = learn_vocabulary(self.rules, train.texts, self.vocabulary)
                tokenizer = make_tokenizer(self.rules, words)
            words_and_pos = (
                (sentence.words, sentence.pos) for sentence in train.reader(train.rows)
            )
            occurrences = self.vocabulary.min_document_frequency
            features = TokenFeatures.learn(self.feature_rules, words_and_pos, occurrences)
            numbers = {tag: number for number, tag in enumerate(tags)}
            rules = (features, numbers, self.target_spec, self.strict)
            for split, part in parts.items():
                write_tagged(folder / split, part, tokenizer, *rules, self.first_pieces)
                if self.target != "sentence":
                    continue
                without_chunk, with_chunk = TokenDataset(folder / split).label_counts(2)
                if not without_chunk or not with_chunk:
                    raise InputError(
                        f"the {split} split of {self.corpus_name} has no sentence "
                        f"{'without' if with_chunk else 'with'} a chunk of type "
                        f"{self.target_spec.sentence_chunk}; target sentence needs both kinds "
                        "(sentence_chunk sets the type)."
                    )
        marked = [MARKED] if self.first_pieces else self.target_spec.columns
        describe_splits(
            folder,
            tokenizer.to_str(pretty=True),
            classes=classes,
            splits={split: part.counts() | shared[split] for split, part in parts.items()},
            extras=[*marked, *self.feature_rules.columns, *self.mark_columns],
            features=features.as_dict(),
        )

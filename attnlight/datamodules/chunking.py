"""Any corpus of sentences with a BIO tag for each token."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from typing_extensions import override

from attnlight.data.dataset import TokenDataset
from attnlight.data.encode import write_tagged
from attnlight.data.encoding import Encoding
from attnlight.data.features import FeatureRules, TokenFeatures
from attnlight.data.marks import check_columns
from attnlight.data.parts import open_sentences, select_splits
from attnlight.data.selection import Selection
from attnlight.data.sources import Source
from attnlight.data.splits import complete_sources, named_sources
from attnlight.data.tagged import corpus_tags
from attnlight.data.targets import Target, TargetName
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.data.vocabulary import learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError, require_at_least
from attnlight.functional import draw_keys


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

    `target` selects what is predicted of a sentence, and so the rows of a tagger's output:

    * `tokens`: the tag of each token.
    * `marked`: the tag of one token, of the same classes. It is token number k mod T of a sentence
      of T tokens, with k the one number of `attnlight.functional.draw_keys(mark_seed, index, 0, 1,
      1)` and index the sentence's row in the source, so that no other option changes it.
    * `sentence`: whether a chunk of the type `sentence_chunk` occurs, predicted at a boundary token
      before the sentence that attends to the sentence and is not attended to. Classes are `no SBAR`
      and `SBAR`.

    A batch has labels (B, N), -100 on padding and on tokens without a prediction; `marked` in
    `extras`, 1 on tokens with a prediction, unless all have one; and each feature in `extras`,
    (B, N), ids with 0 on padding and 1 for values that do not occur in training. Characters are
    packed to keep that shape: eight in each number of `characters_0`, `characters_1` and so on, one
    byte each, lowest byte first.

    Args:
        path: Hub id, or a local folder.
        name: Configuration of the corpus on the hub.
        revision: Commit, tag or branch on the hub; CoNLL-2000 itself is a loading script, which
            `datasets` no longer runs, but has this branch of parquet files.
        local: Folder under `$ATTNLIGHT_DATA` to read in place of `path` if that variable is set.
        word_column: Column of the words; a number, from 0, in column files.
        label_column: Column of the tags; -1 is the last one of a column file.
        pos_column: Column of part-of-speech tags, read only with `pos`.
        mark_columns: Columns with a number for each word, by name in `TextBatch.extras`:
            `{impermissible: 3}`.
        train: Split to train on (slices like `train[:10%]` are supported), or a column file.
        validation: The same for validation; null: the first of the splits validation, valid, dev
            and val that the corpus has and that is neither `train` nor `test`; in column files, or
            where it has none of them, a fraction of the training sentences.
        test: The same for testing; null where there is none.
        validation_fraction: Fraction of the training sentences to validate on, in place of a split;
            null: 0.1 where there is none.
        test_fraction: Fraction of the training sentences to test on, in place of `test`, chosen by
            a hash of seed and row; equal sentences stay together.
        subset: Fraction (0.2) or number (500) of sentences to use, by split; a seeded choice.
        split_seed: Seed of fractions and `subset`.
        chunks: Chunk types, in order, in place of those that occur.
        strict: Refuse an I that does not continue a chunk of its type; otherwise it begins one, as
            in conlleval.
        min_document_frequency: Minimum number of training sentences that contain a word, suffix or
            character.
        max_vocabulary: Maximum number of words, those in most sentences first.
        lowercase: Lower-case words; features use the original word.
        digits: Token that replaces any word with a digit.
        suffixes: Lengths of suffixes that are features.
        case: Use capitalisation as a feature.
        characters: Number of characters of a word that are features, a multiple of 8; 0: none.
        pos: Use part-of-speech tags as a feature.
        max_pairs: Maximum number of pairs of a token and an item per batch in validation, test and
            prediction; larger batches are divided, since tests need memory for each pair.
        target: What is predicted of a sentence.
        sentence_chunk: Chunk type that `sentence` predicts.
        mark_seed: Seed of the tokens that `marked` predicts.
        **kwargs: Arguments of `CorpusDataModule`.

    Raises:
        InputError: Options are out of range or mutually exclusive.
    """

    def __init__(
        self,
        path: str = "eriktks/conll2000",
        name: str | None = None,
        revision: str | None = "refs/convert/parquet",
        local: str | None = None,
        word_column: int | str = "tokens",
        label_column: int | str = "chunk_tags",
        pos_column: int | str | None = "pos_tags",
        mark_columns: dict[str, int | str] | None = None,
        train: str = "train",
        validation: str | None = None,
        test: str | None = "test",
        validation_fraction: float | None = None,
        test_fraction: float | None = None,
        subset: dict[str, int | float] | None = None,
        split_seed: int = 0,
        chunks: list[str] | None = None,
        strict: bool = True,
        min_document_frequency: int = 1,
        max_vocabulary: int | None = None,
        lowercase: bool = True,
        digits: str | None = None,
        suffixes: list[int] | None = None,
        case: bool = False,
        characters: int = 0,
        pos: bool = False,
        max_pairs: int = 1 << 16,
        target: TargetName = "tokens",
        sentence_chunk: str = "SBAR",
        mark_seed: int = 0,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        require_at_least(
            1,
            min_document_frequency=min_document_frequency,
            max_vocabulary=max_vocabulary,
            max_pairs=max_pairs,
        )
        self.path = path
        self._selection = Selection(
            validation_fraction=validation_fraction,
            subset=dict(subset or {}),
            seed=split_seed,
            test_fraction=test_fraction,
        )
        self._main_source = Source(path, name, revision, local)
        splits = {"train": train, "validation": validation, "test": test}
        self._named_sources = named_sources(self._main_source, splits, self._selection)
        columns = (word_column, label_column, pos_column if pos else None)
        self.columns = [column for column in columns if column is not None]
        self.mark_columns = dict(mark_columns or {})
        named = [*self.columns, *self.mark_columns.values()]
        options = ["word_column", "label_column", "pos_column"] + ["mark_columns"] * bool(
            mark_columns
        )
        which = f"{', '.join(options[:-1])} and {options[-1]}"
        if pos and pos_column is None:
            raise InputError("pos needs the column of part-of-speech tags: set pos_column.")
        if len(set(named)) < len(named):
            raise InputError(f"{which} must be different columns.")
        if len({type(column) for column in named}) > 1:
            raise InputError(f"{which} must all be names, or, in column files, numbers.")
        self.chunks = chunks
        self.strict = strict
        self.vocabulary = (min_document_frequency, max_vocabulary)
        self.rules = TextRules(lowercase, digits, boundary_tokens=False)
        self.feature_rules = FeatureRules(tuple(suffixes or ()), case, characters, pos)
        check_columns("mark_columns", self.mark_columns, self.feature_rules.columns)
        self.max_pairs = max_pairs
        self.target = target
        self.target_spec = Target(target, sentence_chunk)
        self.mark_seed = mark_seed

    @override
    def evaluate_as(self, encoding: Encoding, name: str) -> None:
        raise InputError(
            f"{self.corpus_name} is not the corpus that the tagger was trained on; taggers are "
            "only evaluated on their training corpus: give the `data` of its fit.yaml."
        )

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The source of each split, except for those split off the training sentences."""
        if isinstance(self.columns[0], int):  # the folder of column files does not name splits
            return self._named_sources
        return complete_sources(self._main_source, self._named_sources, self._selection, self.cache)

    @cached_property
    def selection(self) -> Selection:
        """Which sentences are used, by default with a tenth of those of training for validation."""
        if "validation" in self.sources or self._selection.validation_fraction is not None:
            return self._selection
        return replace(self._selection, validation_fraction=0.1)

    @override
    def recipe(self) -> dict[str, Any]:
        in_files = isinstance(self.columns[0], int)
        recipe: dict[str, Any] = {
            "sources": {split: source.identity(in_files) for split, source in self.sources.items()},
            "columns": self.columns,
            "selection": self.selection.identity(),
            "tags": [self.chunks, self.strict],
            "vocabulary": list(self.vocabulary),
            "rules": asdict(self.rules),
            "features": asdict(self.feature_rules),
        }
        if self.target != "tokens":  # so that fingerprints for `tokens` do not change
            parameter = {"marked": self.mark_seed, "sentence": self.target_spec.chunk}
            recipe["target"] = [self.target, parameter[self.target]]
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
            # Tags of all training sentences, before some of them are split off.
            tags = corpus_tags(parts["train"].reader, parts["train"].rows, self.chunks)
            parts, shared = select_splits(parts, self.selection)
            train, classes = parts["train"], self.target_spec.classes(tags)
            words = learn_vocabulary(self.rules, train.texts, *self.vocabulary)
            tokenizer = make_tokenizer(self.rules, words)
            words_and_pos = (
                (sentence.words, sentence.pos) for sentence in train.reader(train.rows)
            )
            features = TokenFeatures.learn(self.feature_rules, words_and_pos, self.vocabulary[0])
            numbers = {tag: number for number, tag in enumerate(tags)}
            for split, part in parts.items():
                index = torch.arange(len(part.labels))
                keys = draw_keys(self.mark_seed, index, torch.zeros_like(index), 1, 1)
                write_tagged(
                    folder / split,
                    part,
                    tokenizer,
                    features,
                    numbers,
                    self.target_spec,
                    self.strict,
                    keys.flatten().numpy(),
                )
                if self.target != "sentence":
                    continue
                without_chunk, with_chunk = TokenDataset(folder / split).label_counts(2)
                if not without_chunk or not with_chunk:
                    raise InputError(
                        f"the {split} split of {self.corpus_name} has no sentence "
                        f"{'without' if with_chunk else 'with'} a chunk of type "
                        f"{self.target_spec.chunk}; target sentence needs both kinds (sentence_chunk sets the type)."
                    )
        describe_splits(
            folder,
            tokenizer.to_str(pretty=True),
            classes=classes,
            splits={split: part.counts() | shared[split] for split, part in parts.items()},
            extras=[
                *self.target_spec.columns,
                *self.feature_rules.columns,
                *self.mark_columns,
            ],
            features=features.as_dict(),
        )

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
from attnlight.data.parts import divide, open_sentences
from attnlight.data.selection import Selection
from attnlight.data.sources import Source
from attnlight.data.splits import complete_sources, named_sources
from attnlight.data.tagged import found_tags
from attnlight.data.targets import Target, TargetName
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.data.vocabulary import learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError, require_at_least
from attnlight.functional import draw_keys


class ChunkingDataModule(CorpusDataModule):
    """Sentences whose tokens have BIO tags: CoNLL-2000 (Tjong Kim Sang & Buchholz, 2000) or another.

    A corpus of the hub or a local folder of the same schema has columns of lists, named here. A
    folder of column files, as CoNLL-2000 was published (word, part of speech and chunk tag on each
    line, an empty line between sentences), has numbered ones: give numbers, and the files' names as
    the splits. Rows without a token, such as the last of each split in the hub's copy of
    CoNLL-2000, are dropped and counted.

    Classes are the tags that the source names or, where it names none, O with B and I of each type
    in the training split, alphabetically. Sentences to validate on are, where the corpus has no
    split of them, a seeded tenth of the training sentences. The vocabulary and the values of
    features come from what is left. Sentences that occur in two splits are counted in `corpus.json`
    (`also_in`).

    `target` decides what is asked of a sentence, and so which rows a tagger's output has:

    * `tokens`: the tag of each token.
    * `marked`: the tag of one token, of the same classes. It is token number k mod T of a sentence
      of T tokens, with k the one number of `attnlight.functional.draw_keys(mark_seed, index, 0, 1,
      1)` and index the sentence's row in the source, so that no other option moves it.
    * `sentence`: whether there is a chunk of the type `sentence_chunk`. A boundary token before the
      sentence answers: it attends to the sentence, and nothing attends to it. Classes are `no SBAR`
      and `SBAR`.

    A batch has labels (B, N), -100 on padding and wherever nothing is asked for, `marked` in
    `extras`, 1 where something is, unless that is everywhere, and each feature in `extras`, (B, N),
    ids with 0 on padding and 1 for values that training lacks. Characters are packed so that they
    keep that shape: eight in each number of `characters_0`, `characters_1` and so on, one byte each
    from the lowest up.

    Args:
        path: Hub id, or a local folder.
        name: Configuration of the corpus on the hub.
        revision: Commit, tag or branch on the hub; CoNLL-2000 itself is a loading script, which
            `datasets` no longer runs, but has this branch of parquet files.
        local: Folder under `$ATTNLIGHT_DATA` that is read in place of `path` where that variable
            is set.
        word_column: Column of the words; a number, from 0, in column files.
        label_column: Column of the tags; -1 is the last one of a column file.
        pos_column: Column of part-of-speech tags, read with `pos` alone.
        train: Split to train on (slices like `train[:10%]` are understood), or a column file.
        validation: The same for validation; null: the first of the splits validation, valid, dev
            and val that the corpus has and that is neither `train` nor `test`, or, where it has
            none of them and in column files, a share of the training sentences.
        test: The same for testing; null where there is none.
        validation_fraction: Share of the training sentences to validate on, in place of a split;
            null: 0.1 where there is none.
        test_fraction: Share of the training sentences to test on, in place of `test`, chosen by a
            hash of seed and row; equal sentences stay on one side.
        subset: Split to a seeded choice of its sentences: a share (0.2) or a number (500).
        split_seed: Seed of what is split off and of `subset`.
        chunks: Chunk types, in order, in place of those found.
        strict: Refuse an I that goes on with no chunk of its type; else it begins one, as conlleval
            reads it.
        min_document_frequency: Training sentences that a word, suffix or character must occur in.
        max_vocabulary: Words to keep at most, those in most sentences first.
        lowercase: Lower-case words; features are of the word as it is written.
        digits: Token that stands for any word with a digit in it.
        suffixes: Lengths of endings that are features.
        case: Make capitalisation a feature.
        characters: Characters of a word that are features, a multiple of 8; 0: none.
        pos: Make part-of-speech tags a feature.
        max_pairs: Pairs of a token and an item per batch in validation, test and prediction: a
            batch of sentences that exceeds it is cut, since what is asked of attention takes
            memory for each pair.
        target: What is asked of a sentence.
        sentence_chunk: Chunk type that `sentence` asks for.
        mark_seed: Seed of the tokens that `marked` asks for.
        **kwargs: Arguments of `CorpusDataModule`.

    Raises:
        InputError: Options are out of range or exclude each other.
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
        self._given = Selection(
            validation_fraction=validation_fraction,
            subset=dict(subset or {}),
            seed=split_seed,
            test_fraction=test_fraction,
        )
        self._main = Source(path, name, revision, local)
        splits = {"train": train, "validation": validation, "test": test}
        self._named = named_sources(self._main, splits, self._given)
        columns = (word_column, label_column, pos_column if pos else None)
        self.columns = [column for column in columns if column is not None]
        if pos and pos_column is None:
            raise InputError("pos needs the column of part-of-speech tags: give pos_column.")
        if len(set(self.columns)) < len(self.columns):
            raise InputError("word_column, label_column and pos_column must be different columns.")
        if len({type(column) for column in self.columns}) > 1:
            raise InputError(
                "word_column, label_column and pos_column must all be names, or, in column files, "
                "numbers."
            )
        self.chunks = chunks
        self.strict = strict
        self.vocabulary = (min_document_frequency, max_vocabulary)
        self.rules = TextRules(lowercase, digits, boundary_tokens=False)
        self.feature_rules = FeatureRules(tuple(suffixes or ()), case, characters, pos)
        self.max_pairs = max_pairs
        self.target = target
        self.asked = Target(target, sentence_chunk)
        self.mark_seed = mark_seed

    @override
    def evaluate_as(self, encoding: Encoding, name: str) -> None:
        raise InputError(
            f"{self.corpus_name} is not the corpus that the tagger was trained on, and a tagger is "
            "evaluated on its own alone: give the `data` of its fit.yaml."
        )

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Where each split comes from, but for those that are split off the training sentences."""
        if isinstance(self.columns[0], int):  # column files: their folder names no splits
            return self._named
        return complete_sources(self._main, self._named, self._given, self.cache)

    @cached_property
    def selection(self) -> Selection:
        """Which sentences are used: a tenth of the training sentences validates where none do."""
        if "validation" in self.sources or self._given.validation_fraction is not None:
            return self._given
        return replace(self._given, validation_fraction=0.1)

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
        if self.target != "tokens":  # corpora of all tags keep the fingerprint that they had
            about = {"marked": self.mark_seed, "sentence": self.asked.chunk}
            recipe["target"] = [self.target, about[self.target]]
        return recipe

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            parts = {
                split: open_sentences(split, source, self.columns, Path(scratch))
                for split, source in self.sources.items()
            }
            # Before sentences are split off, since those may have any tag.
            tags = found_tags(parts["train"].reader, parts["train"].rows, self.chunks)
            parts, shared = divide(parts, self.selection)
            train, classes = parts["train"], self.asked.classes(tags)
            words = learn_vocabulary(self.rules, train.texts, *self.vocabulary)
            tokenizer = make_tokenizer(self.rules, words)
            seen = ((sentence.words, sentence.pos) for sentence in train.reader(train.rows))
            features = TokenFeatures.learn(self.feature_rules, seen, self.vocabulary[0])
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
                    self.asked,
                    self.strict,
                    keys.flatten().numpy(),
                )
                if self.target != "sentence":
                    continue
                without, found = TokenDataset(folder / split).label_counts(2)
                if not without or not found:
                    raise InputError(
                        f"the {split} split of {self.corpus_name} has no sentence "
                        f"{'without' if found else 'with'} a chunk of type {self.asked.chunk}; "
                        "target sentence needs both kinds (sentence_chunk names the type)."
                    )
        self.describe(
            folder,
            tokenizer.to_str(pretty=True),
            classes=classes,
            splits={split: part.counts() | shared[split] for split, part in parts.items()},
            extras=[*self.asked.columns, *self.feature_rules.columns],
            features=features.held(),
        )

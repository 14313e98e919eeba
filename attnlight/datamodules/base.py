"""The base class of corpora: prepared once on disk, read by memory map, shared among devices."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.utils.data import DataLoader
from typing_extensions import override

from attnlight.batch import HasWholeWords, TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.digests import text_digest
from attnlight.data.erased_words import ErasedWords
from attnlight.data.features import TokenFeatures
from attnlight.data.marks import check_columns, mark_words
from attnlight.data.parts import describe_counts
from attnlight.data.pieces import corpus_tokenizer
from attnlight.data.prepared import cache_root, prepare_once
from attnlight.data.raw_text import RawText
from attnlight.data.removed_words import RemovedWords, remove_words
from attnlight.data.samplers import BucketSampler, OnceSampler
from attnlight.data.selection import Selection
from attnlight.data.sentences import SentenceRules
from attnlight.data.sources import Source
from attnlight.data.splits import (
    MISSING_SPLIT_ADVICE,
    Splits,
    find_splits,
    named_sources,
    split_names,
    with_options,
)
from attnlight.data.targets import TargetName
from attnlight.data.tokenization import TextRules
from attnlight.data.word2vec import CorpusText, Word2VecSettings, train_word2vec
from attnlight.data.word_sampler import WordSampler
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import FORMAT, check_splits
from attnlight.errors import InputError, require_at_least
from attnlight.probing.removal import delete_tokens, replace_items

Split = Literal["train", "validation", "test"]
_VERSION = 2  # of the recipe that is hashed


@dataclass(frozen=True)
class CorpusOptions:
    """The options of every corpus.

    Args:
        batch_size: Texts per training batch on each device.
        eval_batch_size: Texts per batch on each device in validation, test and prediction.
        seed: Seed of the training batches, which are determined by it and the epoch.
        shortest_first: Whether the first epoch goes from short to long texts (SortaGrad, Amodei et al.
            2016), as models of transformers need that are to find one sentence among many; others are
            shuffled.
        num_workers: Processes that load batches; 0 loads them in the main process, which is
            equally fast for memory-mapped tokens.
        predict_split: Split that `predict` reads.
        cache_dir: Folder of prepared corpora; null: `$ATTNLIGHT_CACHE`, or `attnlight` in
            `$XDG_CACHE_HOME`, or `~/.cache/attnlight`.
        marks: Words by the column of `TextBatch.extras` that is 1 on tokens that are one of them and
            0 elsewhere: `{impermissible: [he, she]}`. Case and the like are those of the corpus; of
            pairs, passages are marked. Null: none.
        removed_words: Remove the words that a method ranks first from the texts of every split, of
            pairs from the passages: `[{scores: RUN, method: gradient, share: 0.5}]`. Each of several
            ranks what the one before left, by scores of a model of that. Null: none.
        erased_words: Erase words of training texts, anew in each epoch: `{texts: 0.5, share: uniform,
            replacement: delete}`, or `{}` for these defaults. Words are the tokens that attention may
            reach, of pairs those of the passage; where items are whole words, these. Null: none.
    """

    batch_size: int = 32
    eval_batch_size: int = 128
    seed: int = 0
    num_workers: int = 0
    predict_split: Split = "test"
    cache_dir: str | None = None
    marks: dict[str, list[str]] | None = None
    removed_words: list[RemovedWords] | None = None
    erased_words: ErasedWords | None = None
    shortest_first: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, batch_size=self.batch_size, eval_batch_size=self.eval_batch_size)
        check_columns("marks", self.marks or {})
        for column, words in (self.marks or {}).items():
            if isinstance(words, str) or not words:
                raise InputError(f"marks.{column} is {words!r}; expected a list of words.")


class CorpusDataModule(LightningDataModule, ABC):
    """A corpus that is written to disk once and then read by memory map.

    A subclass describes what determines the content (`recipe`) and writes it (`build`); all else is
    implemented here: `prepared_format` says what the folder holds, `fingerprint` what it is called.

    Args:
        common: The options of every corpus.

    Attributes:
        path: Where the corpus is read from; None for a generated corpus.
        max_pairs: Pairs of tokens at which `OnceSampler` divides a batch; None: no limit.
        sentence_rules: How raw and test texts become sentences; None where they are not split.
        nested: Whether batches keep sentences separate, (B, S, N).
        whole_words: Whether batches keep words that the tokenizer divides separate, (B, W, N); the
            model of the Trainer says so (`whole_words`).
        paired: Whether texts are passages with a query each.
        joined: Whether each text is a passage and its query.
        first_pieces: Whether the first token of each word is a row of a tagger.
        tokenizer_path: Folder or hub id of a pretrained model, whose tokenizer makes the tokens, if any.
        rules: How texts that are read become tokens.
        target: What a tagger predicts, where a corpus has a choice.
        encoding: RawText of a trained model, used in place of the corpus's own.
        recorded_as: Name of this corpus in records of a model that was trained on another one.
        selection: Which texts are used.
        test_rows: Dataset rows of the texts that `test` reads; None: all.
    """

    path: str | None = None
    max_pairs: int | None = None
    sentence_rules: SentenceRules | None = None
    nested: bool = False
    whole_words: bool = False
    paired: bool = False
    joined: bool = False
    first_pieces: bool = False
    target: TargetName = "tokens"
    encoding: RawText | None = None
    recorded_as: str | None = None
    test_rows: NDArray[np.int64] | None = None
    selection = Selection()
    tokenizer_path: str | None = None
    rules: TextRules
    _main_source: Source | None = None
    _files: list[str] | None = None  # that `datasets` does not read, in place of splits
    _splits, _resolved = Splits(), False

    @flat_options
    def __init__(self, common: CorpusOptions) -> None:
        super().__init__()
        self.batch_size, self.eval_batch_size = common.batch_size, common.eval_batch_size
        self.seed, self.num_workers = common.seed, common.num_workers
        self.shortest_first = common.shortest_first
        self.predict_split: Split = common.predict_split
        self.cache = cache_root(common.cache_dir)
        self.marks = dict(common.marks or {})
        self.removed_words = list(common.removed_words or ())
        self.erased_words = common.erased_words
        self._prepared: Path | None = None
        self._datasets: dict[str, TokenDataset] = {}

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Everything that determines the content of the prepared corpus, as plain JSON."""

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Write the prepared corpus (`prepared_format`) into an existing, empty folder.

        Raises:
            InputError: The source cannot be read as configured.
        """

    @override
    def setup(self, stage: str) -> None:
        self.test_rows = None
        network = getattr(self.trainer and self.trainer.lightning_module, "model", None)
        whole_words = isinstance(network, HasWholeWords) and network.whole_words
        if whole_words != self.whole_words:
            self.whole_words = whole_words
            self._datasets.clear()

    @property
    def corpus_name(self) -> str:
        """Name of the corpus in messages: its path or, where it has none, its class."""
        return self.path or type(self).__name__

    @property
    def sources(self) -> dict[str, Source]:
        """The source of each split with one; empty for a generated corpus."""
        if not self._resolved:
            self.resolve()
        main, splits, selection = self._main_source, self._splits, self.selection
        return {} if main is None else named_sources(main, splits, selection)

    def resolve(self, verb: str | None = None) -> dict[str, Any]:
        """The options that are null, with the values that the corpus itself gives them.

        The `verb` is `fit` or the split that is evaluated; None: neither is known.

        Raises:
            InputError: A column or split is ambiguous or missing.
        """
        if self._main_source is None:
            return {}
        self._resolved, main = True, self._main_source
        of_corpus, files = partial(split_names, main, self.cache), self._files
        names = of_corpus if files is None else files.copy
        found = find_splits(main, self._splits, self.selection, names, verb)
        self._splits, self.selection = with_options(found, self._splits, self.selection)
        unclear: dict[str, Sequence[str]] = {}
        read = verb if self.encoding or verb not in (None, "fit") else "train"
        fraction = vars(self.selection).get(f"{read}_fraction")
        if read and read not in self.sources and fraction is None:
            unclear[read] = names() or ["none is known"]
        for source in self.sources.values():
            columns, others = self._find_columns(source)
            found, unclear = columns | found, {**others, **unclear}
            if columns or others:  # which all splits of the corpus share
                break
        if unclear:
            named = [f"--data.{name} ({' or '.join(some)})" for name, some in unclear.items()]
            pairs = " Of pairs: set --data.passage and --data.query." * (
                len(unclear.get("text", ())) > 1
            )
            raise InputError(
                f"{self.corpus_name} leaves open what is meant: set {' and '.join(named)}.{pairs}"
            )
        return found

    def _find_columns(self, source: Source) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        """The function `find_columns` of this corpus, whose results it reads from now on."""
        return {}, {}

    def evaluate_as(self, encoding: RawText, name: str) -> None:
        """Evaluate a model with its encoding and classes; records name this corpus `name`."""
        if self.paired or self.joined:
            self.joined = encoding.joined or encoding.joins
            self.paired = not self.joined
        expected = encoding.paired or encoding.joined or (encoding.joins and self.joined)
        if expected != (self.paired or self.joined):
            kinds = ["single texts", "passages with queries"]
            raise InputError(
                f"the model was trained on {kinds[expected]}, but {self.corpus_name} "
                f"holds {kinds[not expected]}: give `data` of the same kind."
            )
        self.encoding, self.recorded_as = encoding, name
        sentences = encoding.sentences
        self.sentence_rules = None if sentences is None else SentenceRules.from_identity(sentences)
        self.nested = bool(sentences and sentences.get("nested"))
        self._prepared = None
        cached = ("fingerprint", "_corpus", "tokenizer_json", "parsed_tokenizer", "word_sampler")
        for attribute in cached:
            self.__dict__.pop(attribute, None)
        self._datasets.clear()

    def unknown_share(self, split: str) -> float:
        """Fraction of a split's tokens that are not in the vocabulary, without boundary tokens."""
        counts = self._corpus["splits"][split]
        return float(counts["unknown_tokens"] / counts["tokens"])

    @cached_property
    def fingerprint(self) -> str:
        """Version and hash of recipe and format, such as `v2-0123456789abcdef`."""
        return self._hash(self.removed_words, self.encoding and self.encoding.identity())

    def _hash(self, removed_words: Sequence[RemovedWords], encoding: object = None) -> str:
        """The fingerprint with some of the words removed, encoded for some other model."""
        parts = {"marks": self.marks, "encoding": encoding}
        parts["removed_words"] = [removal.identity() for removal in removed_words]
        # Included only if used: a corpus without them is the same corpus.
        used = {name: part for name, part in parts.items() if part}
        content = {"format": FORMAT, "kind": type(self).__name__, "recipe": self.recipe() | used}
        return f"v{_VERSION}-{text_digest(json.dumps(content, sort_keys=True))}"

    def prepare(self) -> Path:
        """The folder of the prepared corpus, written on the first call on this machine.

        Safe when several processes call it at once (`prepare_once`).

        Raises:
            InputError: The cache folder cannot be created, a split is empty or has only one class,
                `marks` has words that the corpus lacks, scores of `removed_words` do not fit it, or
                `build` raises for its source.
        """
        if self._prepared is None:
            target = self.cache / f"{type(self).__name__.lower()}-{self.fingerprint}"
            prepare_once(target, partial(self._write, target))
            self._prepared = target
        return self._prepared

    def _write(self, target: Path, folder: Path) -> None:
        self.build(folder)
        if self.marks:
            mark_words(folder, self.corpus_name, self.marks)
        scored = [
            self._hash(self.removed_words[:place]) for place in range(len(self.removed_words))
        ]
        remove_words(folder, self.corpus_name, self.removed_words, scored)
        splits = check_splits(folder, self.corpus_name, count_unknown=self.encoding is not None)
        counts = ", ".join(starmap(describe_counts, splits.items()))
        # Printed only by the process that wrote the corpus: one line for any number of ranks.
        print(f"{self.corpus_name}: {counts}; prepared in {target}", file=sys.stderr)

    @cached_property
    def _model_tokenizer(self) -> Tokenizer | None:
        """The pretrained model's tokenizer, with the truncation of this corpus; None: it has none."""
        if self.tokenizer_path is None:
            return None
        return corpus_tokenizer(self.tokenizer_path, self.rules.truncate, self.joined)

    @cached_property
    def _corpus(self) -> dict[str, Any]:
        return dict(json.loads((self.prepare() / "corpus.json").read_text(encoding="utf-8")))

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their labels."""
        return list(self._corpus["classes"])

    @cached_property
    def tokenizer_json(self) -> str:
        """The tokenizer as JSON text, including normalisation and splitting."""
        return (self.prepare() / "tokenizer.json").read_text(encoding="utf-8")

    @property
    def token_features(self) -> TokenFeatures | None:
        """Token features besides the word; None where there are none."""
        state = self._corpus.get("features")
        return None if state is None else TokenFeatures.from_dict(state)

    @cached_property
    def parsed_tokenizer(self) -> Tokenizer:
        """`tokenizer_json` as an object."""
        return Tokenizer.from_str(self.tokenizer_json)

    @property
    def vocab_size(self) -> int:
        """Number of ids, including the special ones."""
        return int(self.parsed_tokenizer.get_vocab_size())

    @cached_property
    def word_sampler(self) -> WordSampler:
        """The words of the training texts, which tests draw in place of the words of a text."""
        return WordSampler(self.tokenizer_json, self.dataset("train"))

    @property
    def spec(self) -> dict[str, Any]:
        """The properties of the corpus that a model needs, see `attnlight.problems.Problem`."""
        features = self.token_features
        spec = {
            "vocab_size": self.vocab_size,
            "classes": self.classes,
            "features": {} if features is None else features.sizes,
            "target": self.target,
        }
        return spec | ({"query": True} if self.paired else {})

    @property
    def label_counts(self) -> list[int]:
        """Number of training texts of each class, for class weights."""
        return self.dataset("train").label_counts(len(self.classes))

    @property
    def splits(self) -> list[str]:
        """Names of the splits that the corpus has."""
        return list(self._corpus["splits"])

    def dataset(self, split: str) -> TokenDataset:
        """One split of the corpus."""
        if split not in self._corpus["splits"]:
            available = ", ".join(self._corpus["splits"])
            advice = f": {MISSING_SPLIT_ADVICE[split]}" if split in MISSING_SPLIT_ADVICE else ""
            raise InputError(
                f"{self.corpus_name} gives no {split} split, only {available}{advice}."
            )
        if split not in self._datasets:
            folder = self.prepare() / split
            self._datasets[split] = TokenDataset(folder, self.nested, self.whole_words)
        return self._datasets[split]

    @property
    def training_text(self) -> tuple[str, list[TokenDataset]]:
        """The tokenizer and the splits that word vectors are trained on: all but the test split."""
        splits = [split for split in ("train", "validation") if split in self._corpus["splits"]]
        return self.tokenizer_json, [self.dataset(split) for split in splits]

    def word_vectors(self, settings: Word2VecSettings) -> Path:
        """The word2vec file beside the corpus, trained on its training and validation texts once."""

        def write(folder: Path) -> None:
            print(f"{self.corpus_name}: training word vectors on its text, once", file=sys.stderr)
            vectors = train_word2vec(CorpusText([self.training_text]), settings)
            vectors.save_word2vec_format(folder / "vectors.bin", binary=True)

        corpus, identity = self.prepare(), json.dumps(asdict(settings), sort_keys=True)
        target = corpus.with_name(f"word2vec-{corpus.name}-{text_digest(identity)}")
        prepare_once(target, write)
        return target / "vectors.bin"

    def train_dataloader(self) -> DataLoader[TextBatch]:
        """Training batches of similar lengths, determined by seed and epoch."""
        return self._loader("train", training=True)

    @override
    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """The batch; in training without its `erased_words`, which depend on the epoch."""
        if self.erased_words is None or self.trainer is None or not self.trainer.training:
            return batch
        tokens, epoch = batch.attendable(), self.trainer.current_epoch
        words = tokens.any(-1) if self.whole_words else tokens
        erased = self.erased_words.draw(words.flatten(1), batch.index, epoch, self.seed)
        erased = erased.view(*words.shape, *[1] * (tokens.ndim - words.ndim)) & tokens
        if self.erased_words.replacement == "unk":
            return replace_items(batch, erased, "unk")
        return delete_tokens(batch, erased)

    def val_dataloader(self) -> DataLoader[TextBatch]:
        """Each validation text once; in fit on several devices, repeats fill the last batch."""
        # In fit, DDP broadcasts buffers at each forward, so all ranks need as many batches.
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        return self._loader("validation", pad=fitting)

    def test_dataloader(self) -> DataLoader[TextBatch]:
        """Each test text exactly once over all devices."""
        chosen, dataset = self.test_rows, self.dataset("test")
        return self._loader(
            "test", chosen=None if chosen is None else np.isin(dataset.index, chosen).nonzero()[0]
        )

    def predict_dataloader(self) -> DataLoader[TextBatch]:
        """Each text of `predict_split` exactly once over all devices."""
        return self._loader(self.predict_split)

    def _loader(
        self,
        split: str,
        training: bool = False,
        pad: bool = False,
        chosen: NDArray[np.intp] | None = None,
    ) -> DataLoader[TextBatch]:
        """This device's share of the batches of a split; with `pad` all have equally many."""
        dataset, trainer = self.dataset(split), self.trainer
        rank, world = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        count = len(dataset if chosen is None else chosen)
        if count < world:
            raise InputError(
                f"the {split} split of {self.corpus_name} has {count} texts for {world} "
                "devices: use at most one device per text."
            )
        lengths, size = dataset.shapes, self.eval_batch_size
        batches = (self.batch_size, self.seed, rank, world, self.shortest_first)
        return DataLoader(
            dataset=dataset,
            sampler=BucketSampler(lengths, *batches)
            if training
            else OnceSampler(lengths, size, rank, world, pad, self.max_pairs, chosen),
            batch_size=None,  # the sampler yields whole batches
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

"""Any table of texts and their translations."""

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
from tokenizers import Tokenizer
from typing_extensions import override

from attnlight.batch import POSSIBLE, SPECIAL_TOKENS, SURE, UNK
from attnlight.data.columns import require_columns
from attnlight.data.dataset import split_writer
from attnlight.data.documents import DocumentReader
from attnlight.data.parts import Part, select_splits
from attnlight.data.selection import Selection
from attnlight.data.sources import Corpus, Source, identities
from attnlight.data.splits import MISSING_SPLIT_ADVICE, Splits, named_sources
from attnlight.data.tokenization import Splitting, TextRules, encode_texts, make_tokenizer
from attnlight.data.vocabulary import VocabularyLimits, learn_vocabulary
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.datamodules.symbols import END
from attnlight.errors import InputError

_SPECIAL = (END, SPECIAL_TOKENS[UNK])  # classes before the words: the end, and an unknown word


@dataclass(frozen=True)
class TranslationCorpus(Corpus):
    """A table of texts and their translations.

    Args:
        source: Column of the texts.
        target: Column of their translations.
        alignment: Column of links, `i-j` for a sure and `i?j` for a possible one, from source token i to
            target token j, both from 0, between spaces. Null: they are not known.
    """

    path: str = field()  # required
    source: str = "source"
    target: str = "target"
    alignment: str | None = None


@dataclass(frozen=True)
class TranslationRules(TextRules):
    """How a text becomes tokens: at white space, to which links refer.

    Args:
        lowercase: Lower-case texts and translations.
    """

    splitting: Splitting = field(default="whitespace", init=False)
    digits: None = field(default=None, init=False)
    markup: bool = field(default=False, init=False)
    boundary_tokens: bool = field(default=False, init=False)
    truncate: None = field(default=None, init=False)


class TranslationDataModule(CorpusDataModule):
    """Texts and their translations, with a vocabulary each, learned from the training split.

    Classes are the end of a translation, an unknown word, and the words of the target vocabulary. Rows
    with an empty side are dropped and counted, as are links that point past the end of a side
    (`links_dropped` in `corpus.json`).

    Args:
        corpus: The corpus.
        splits: The splits to read.
        selection: Which of their rows are used.
        vocabulary: Which words have ids, on both sides.
        rules: How a text becomes tokens.
        common: The options of every corpus.

    Raises:
        InputError: Options are out of range or mutually exclusive.
    """

    @flat_options
    def __init__(
        self,
        corpus: TranslationCorpus,
        splits: Splits,
        selection: Selection,
        *,
        vocabulary: VocabularyLimits,
        rules: TranslationRules,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        place = {name: value for name, value in vars(corpus).items() if name in vars(Corpus())}
        self.path, self.corpus = corpus.path, corpus
        self._main_source: Source = Source(**place, text=corpus.source)
        self._splits, self.selection = splits, selection
        named_sources(self._main_source, splits, selection)  # refuses what excludes each other
        self.vocabulary, self.rules = vocabulary, rules

    @override
    def recipe(self) -> dict[str, Any]:
        return {
            "sources": identities(self.sources),
            "columns": [self.corpus.source, self.corpus.target, self.corpus.alignment],
            "selection": self.selection.identity(),
            "vocabulary": list(vars(self.vocabulary).values()),
            "rules": asdict(self.rules),
        }

    @override
    def build(self, folder: Path) -> None:
        with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
            parts = {
                split: self._open(source, Path(scratch), split)
                for split, source in self.sources.items()
            }
            parts, shared = select_splits(parts, self.selection, self.encoding is None)
            train = parts.get("train")
            if self.encoding is not None:
                tokenizer, classes = self.encoding.parsed_tokenizer, list(self.encoding.classes)
            else:
                assert train is not None
                assert train.queries is not None
                words, targets = (
                    learn_vocabulary(self.rules, partial(side.texts, train.rows), self.vocabulary)
                    for side in (train.reader, train.queries)
                )
                tokenizer = make_tokenizer(self.rules, words)
                classes = [*_SPECIAL, *targets]
            counts = {}
            for split, part in parts.items():
                written = self._write_split(folder / split, part, tokenizer, classes)
                counts[split] = part.counts() | written | shared[split]
        describe_splits(
            folder, tokenizer.to_str(pretty=True), classes=classes, splits=counts, extras=[]
        )

    def _open(self, source: Source, scratch: Path, split: str) -> Part[DocumentReader]:
        """The rows of a split that have words on both sides."""
        rows = source.load(scratch, MISSING_SPLIT_ADVICE[split])
        corpus = self.corpus
        columns = [corpus.source, corpus.target, *filter(None, [corpus.alignment])]
        options = dict(zip(columns, ("source", "target", "alignment"), strict=False))
        require_columns(rows, source, columns, options)
        targets = DocumentReader(rows, replace(source, text=corpus.target))
        part = Part(
            str(source),
            np.arange(len(rows)),
            reader=DocumentReader(rows, source),
            labels=np.zeros(len(rows), np.int64),
            queries=targets,
        )
        if corpus.alignment is not None:
            part.links = rows.select_columns([corpus.alignment]).with_format("arrow")[:][
                corpus.alignment
            ]
        sides = (part.reader, targets)
        filled = [
            np.array([bool(text.split()) for chunk in side.texts(part.rows) for text in chunk])
            for side in sides
        ]
        part.keep(part.rows[filled[0] & filled[1]], "empty", "rows with an empty side")
        return part

    def _write_split(
        self, folder: Path, part: Part[DocumentReader], tokenizer: Tokenizer, classes: list[str]
    ) -> dict[str, int]:
        """Write a split, and count the links that were dropped."""
        target_tokenizer = make_tokenizer(self.rules, classes[len(_SPECIAL) :])
        dropped = 0
        assert part.queries is not None
        texts = chain.from_iterable(part.queries.texts(part.rows))
        with split_writer(folder) as write:
            for sources in part.reader(part.rows):
                targets = list(islice(texts, len(sources.rows)))
                ids, _ = encode_texts(tokenizer, sources.texts)
                words, _ = encode_texts(target_tokenizer, targets)
                moved = len(SPECIAL_TOKENS) - len(_SPECIAL)  # from ids of words to their classes
                classified = [[1 if n == UNK else n - moved for n in row] + [0] for row in words]
                columns: dict[str, Any] = {
                    "index": sources.rows,
                    "length": list(map(len, ids)),
                    "tokens": ids,
                    "target": classified,
                    "text": sources.texts,
                    "target_text": targets,
                }
                if part.links is not None:
                    named = part.links.take(pyarrow.array(sources.rows)).to_pylist()
                    found = [
                        read_links(
                            links or "", len(source), len(target), f"row {row} of {part.name}"
                        )
                        for row, links, source, target in zip(
                            sources.rows, named, ids, words, strict=True
                        )
                    ]
                    columns["links"] = [links for links, _ in found]
                    dropped += sum(number for _, number in found)
                write(columns)
        return {"links_dropped": dropped} if part.links is not None else {}


def read_links(links: str, source: int, target: int, place: str) -> tuple[list[int], int]:
    """Triples of target token, source token and kind, one after the other; and the links left out.

    `links` has `i-j` for sure and `i?j` for possible ones, from source to target, between spaces;
    those past the number of source or target tokens are left out. `place` is the row in messages.
    """
    triples: list[int] = []
    dropped = 0
    for link in links.split():
        sign = "?" if "?" in link else "-"
        first, _, second = link.partition(sign)
        if not (first.isdecimal() and second.isdecimal()):
            raise InputError(
                f"{place} has the link {link!r}; expected i-j or i?j, the numbers of a source and a "
                "target token from 0."
            )
        i, j = int(first), int(second)
        if i < source and j < target:
            triples += [j, i, POSSIBLE if sign == "?" else SURE]
        else:
            dropped += 1
    return triples, dropped

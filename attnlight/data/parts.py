"""Open and select the splits of a corpus before they are encoded."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from attnlight.data.conll import load_columns
from attnlight.data.documents import DocumentReader
from attnlight.data.duplicates import Keys, also_in, story_keys, text_keys
from attnlight.data.edits import EditColumns, pair_edits
from attnlight.data.selection import SelectedRows, Selection
from attnlight.data.sources import Source
from attnlight.data.splits import MISSING_SPLIT_ADVICE
from attnlight.data.tagged import TaggedReader
from attnlight.data.tokenization import TextRules, count_tokens
from attnlight.errors import InputError

AnyReader = TypeVar("AnyReader", DocumentReader, TaggedReader)


@dataclass(kw_only=True)
class Part(SelectedRows, Generic[AnyReader]):
    """A split before it is encoded: selected rows, their reader and their labels.

    Attributes:
        reader: Reads the source.
        labels: Class of each row of the source, (rows,).
        queries: Reads the queries of pairs, whose passages `reader` reads; None for single texts.
        allowed: Classes that each row of the source may be answered with, (rows,); None: all.
        edit_of: Row of the original of each row that is the edit of a pair, -1 for others, (rows,).
        links: Links of each row of the source, a translation whose targets `queries` reads, (rows,).
    """

    reader: AnyReader
    labels: NDArray[np.int64]
    queries: DocumentReader | None = None
    allowed: pyarrow.ListArray | None = None
    edit_of: NDArray[np.int64] | None = None
    links: pyarrow.ChunkedArray | None = None

    def texts(self) -> Iterator[list[str]]:
        """The texts of the split, in chunks; of pairs, the passages and then the queries."""
        queries = () if self.queries is None else self.queries.texts(self.rows)
        return chain(self.reader.texts(self.rows), queries)

    def keys(self) -> Keys:
        """`text_keys` of the rows of the source; of pairs, of passage and query together."""
        rows, size = self.rows, len(self.labels)
        keys = text_keys(self.reader.texts(rows), rows, size)
        if self.queries is None:
            return keys
        queries = text_keys(self.queries.texts(rows), rows, size)
        return keys * np.uint64(0x9E3779B97F4A7C15) + queries


def open_documents(
    reader: DocumentReader, labels: NDArray[np.int64], rules: TextRules, selection: Selection
) -> Part[DocumentReader]:
    """A split of the texts that have a class, not -1 in `labels`, and a length within the limits."""
    part = Part(str(reader.source), np.arange(len(labels)), reader=reader, labels=labels)
    part.keep(np.flatnonzero(labels >= 0), "classes", reader.source.classes)
    low, high = selection.min_tokens, selection.max_tokens
    if (low, high) != (None, None):
        tokens = count_tokens(rules, reader.texts(part.rows))
        if low is not None:
            part.keep(part.rows[tokens >= low], "min_tokens", low)
            tokens = tokens[tokens >= low]
        if high is not None:
            part.keep(part.rows[tokens <= high], "max_tokens", high)
    return part


def open_sentences(
    split: str,
    source: Source,
    columns: Sequence[int | str],
    scratch: Path,
    marks: Mapping[str, int | str],
) -> Part[TaggedReader]:
    """A split of the rows that have at least one token.

    `columns` are those of words, of tags and, where they are read, of part-of-speech tags: names
    or, where the source is a folder of column files, numbers; `marks` those of numbers, by their
    new names.
    """
    numbers = [column for column in (*columns, *marks.values()) if isinstance(column, int)]
    file = None
    if numbers:
        if source.folder is None:
            raise InputError(
                f"{source.path} is not a local folder; column numbers need column files in a local "
                "folder."
            )
        file = source.folder / str(source.split)
        if not file.is_file():
            raise InputError(f"there is no column file {file}.")
        rows = load_columns(file, numbers, scratch / f"{split}.columns")
    else:
        rows = source.load(scratch, MISSING_SPLIT_ADVICE[split])
    named = {name: str(column) for name, column in marks.items()}
    reader = TaggedReader(rows, source, [str(column) for column in columns], file, named)
    words = rows.select_columns(reader.columns[:1]).with_format("arrow")[:][reader.columns[0]]
    lengths = pyarrow.compute.fill_null(pyarrow.compute.list_value_length(words), 0).to_numpy()
    classes = np.zeros(len(rows), np.int64)  # a sentence has none
    part = Part(str(source), np.arange(len(rows)), reader=reader, labels=classes)
    part.keep(np.flatnonzero(lengths), "empty", "rows without a token")
    return part


def select_splits(
    parts: Mapping[str, Part[AnyReader]],
    selection: Selection,
    complete: bool = True,
    edits: EditColumns | None = None,
) -> tuple[dict[str, Part[AnyReader]], dict[str, dict[str, dict[str, int]]]]:
    """All splits after selection, in order, and for each the counts of `also_in` and `pair_edits`.

    Of pairs, no passage is split off from another that it continues (`story_keys`). An original and
    its edits are not divided. A subset of a split that a `complete` corpus lacks is refused.
    """
    keys = {split: part.keys() for split, part in parts.items()}
    cut = (selection.validation_fraction, selection.test_fraction) != (None, None)
    if cut and (train := parts.get("train")):
        groups, reader, paired = keys["train"], train.reader, train.queries is not None
        if train.originals is not None:
            groups = (train.originals + 1).view(np.uint64)  # 0 is an empty text
        elif paired and isinstance(reader, DocumentReader):
            documents = reader(train.rows)
            passages = (some.words or [[text] for text in some.texts] for some in documents)
            groups = story_keys(passages, train.rows, len(train.labels))
        moved = selection.split_off(train, train.labels, groups, together=paired)
        parts, keys = {**parts, **moved}, keys | dict.fromkeys(moved, keys["train"])
    parts = {split: parts[split] for split in MISSING_SPLIT_ADVICE if split in parts}
    for split, part in parts.items():
        if edits and part.originals is not None and split not in edits.edits_in:
            unedited = part.rows[part.originals[part.rows] == part.rows]
            part.keep(unedited, "edits_in", edits.edits_in)
    selection.apply_subsets(parts, complete)
    counts = also_in({split: keys[split][part.rows] for split, part in parts.items()})
    trained = keys["train"][parts["train"].rows] if "train" in parts else np.empty(0, np.uint64)
    for split, part in parts.items():
        if part.originals is not None:
            others = trained if split != "train" else trained[:0]
            found = pair_edits(part.rows, part.originals, part.labels, keys[split], others)
            part.edit_of, pairs = found
            counts[split] |= pairs
    if edits and edits.edit_of:
        total = sum((Counter(split.get("pairs")) for split in counts.values()), Counter[str]())
        if not total.pop("edits", 0):
            left_out = "".join(f", {count:,} {words}" for words, count in total.items())
            raise InputError(
                f"edit_of: {edits.edit_of} joins no text to an edit of it in the splits "
                f"{', '.join(edits.edits_in)}{left_out}: name the column that both share, or other "
                "edits_in"
            )
    return parts, counts


def describe_counts(split: str, counts: dict[str, Any]) -> str:
    """Counts of a split in words: "test 7 (1 empty, kept as one unknown token; 2 also in train)"."""
    kinds = {"empty": "empty, kept as one unknown token", "dropped": "dropped"}
    kinds |= {"truncated": "cut at the model's longest text"}
    kinds |= {"links_dropped": "links past the end of a side, dropped"}
    notes = [f"split {counts['split']}"] if "split" in counts else []
    pairs = dict(counts.get("pairs", {}))
    notes += [f"{pairs.pop('edits'):,} pairs of an original and an edit"] if pairs else []
    notes += [f"{counts[kind]:,} {words}" for kind, words in kinds.items() if counts.get(kind)]
    if counts.get("cut"):
        removed = f"{counts['cut_sentences']:,} sentences and {counts['cut_tokens']:,} tokens"
        notes.append(f"{counts['cut']:,} cut by {removed}")
    if counts.get("evidence_cut"):
        notes.append(f"{counts['evidence_cut']:,} cut before the end of their evidence")
    notes += [f"{n:,} with {column} tokens" for column, n in counts.get("marked", {}).items()]
    notes += [f"{n:,} {words} left out of pairs" for words, n in pairs.items()]
    notes += [f"{n:,} also in {other}" for other, n in counts.get("also_in", {}).items()]
    return f"{split} {counts['rows']:,}" + (f" ({'; '.join(notes)})" if notes else "")

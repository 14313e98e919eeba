"""Scores of items that another program computed, such as SHAP or LIME."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from reprlib import repr as short
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, HasWholeWords, HasWords, TextBatch
from attnlight.errors import InputError, did_you_mean, one_line
from attnlight.functional.readout.instances import row_texts
from attnlight.storage.files import suggest_file

_KINDS = {
    "index": (pa.int64(), "whole numbers"),
    "item": (pa.int64(), "whole numbers"),
    "word": (pa.string(), "words"),
    "score": (pa.float64(), "numbers"),
    "position": (pa.int64(), "whole numbers"),
}


class _Items(NamedTuple):
    """The items of a row: their scores (L,) and the words that were scored, as codes (L,)."""

    scores: NDArray[np.float64]
    words: NDArray[np.int64]


@dataclass
class External(Attribution):
    """Scores from a table with one row per item.

    Its columns are `index`, the dataset row of the text, `item`, the number of the item from 0
    among those that attention may reach (boundary tokens have none), `word`, the item as it stands
    in the text, `score`, and for models of tokens `position`, the row's token in its text. The word
    is the item's of `attnlight predict`, of a sentence its tokens, joined; white space does not
    count. A missing score is NaN. The scores are of the class that the other program explained,
    whatever the `target`.

    Args:
        file: A parquet file or, with the ending `.csv`, comma-separated values with a header.

    Raises:
        InputError: The file does not exist or is no such table, lacks a column, has two scores of
            one item or an infinite one; and, in use, it lacks a text or has other items of it, or the
            words of the texts are not known.
    """

    name = "external"
    signed = True
    explains = "as in the file"

    file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file:
            raise InputError("external needs the option file, a table of index, item and score.")
        path = Path(self.file)
        if not path.is_file():
            raise InputError(f"external: {path} is not a file{suggest_file(path)}.")

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        texts = zip(batch.index.tolist(), batch.mask, strict=True)
        words = [self._words(index, mask) for index, mask in texts]
        rows = zip(output.rows.tolist(), row_texts(batch, output), output.mask.cpu(), strict=True)
        found = [
            self._of_row(
                index, position, [words[text][n] for n in mask.nonzero().flatten().tolist()]
            )
            for (index, position), text, mask in rows
        ]
        flat = torch.from_numpy(np.concatenate([np.empty(0), *found])).to(output.mask.device)
        return flat.new_zeros(output.mask.shape).masked_scatter(output.mask, flat), {}

    def _words(self, index: int, mask: Tensor) -> list[str]:
        """What stands at each place of a text that attention may reach: a word, or a sentence.

        `mask` are its tokens, (N,), or (S, N) of sentences or whole words.
        """
        split = self.split
        if not isinstance(split, HasWords):
            raise InputError(
                f"external: {self.file} cannot be compared with texts whose words are not known: their "
                "dataset needs `index` and a method `words(position)`, as those of "
                "attnlight.datamodules have them; in Python it is the method's `split`."
            )
        if index < 0:  # a repeat that a sampler added
            return [""] * len(mask)
        places = np.flatnonzero(np.asarray(split.index) == index)
        if not len(places):
            raise InputError(f"external: the method's `split` has no row {index}.")
        words: list[str] = split.words(int(places[0]))
        if mask.ndim == 1 or (isinstance(split, HasWholeWords) and split.whole_words):
            return words
        stops = mask.sum(-1).cumsum(0).tolist()
        return [" ".join(words[start:stop]) for start, stop in pairwise([0, *stops])]

    def _of_row(self, index: int, position: int, words: list[str]) -> NDArray[np.float64]:
        """Scores (L,) of the items of a row, whose words are given."""
        if index < 0:
            return np.zeros(len(words))
        table, distinct = self._table
        items = table.get((index, position))
        row = f"row {index}" + (f", position {position}" if position else "")
        if items is None:
            raise InputError(
                f"external: {self.file} has no scores of {row}: it is of other texts or of a part."
            )
        if len(items.scores) != len(words):
            raise InputError(
                f"external: {self.file} has {len(items.scores)} items in {row}, but the model attends "
                f"to {len(words)}: it is of other texts, or of texts split or cut differently."
            )
        for item, (code, word) in enumerate(zip(items.words.tolist(), words, strict=True)):
            both = distinct[code], word  # white space is not compared
            if len({*both}) > 1 and len({"".join(text.split()) for text in both}) > 1:
                raise InputError(
                    f"external: {self.file} has the word {short(distinct[code])} at item {item} of "
                    f"{row}, but the text has {short(word)}: it is of other texts or of another split; "
                    "score the `tokens` that `attnlight predict` writes."
                )
        return items.scores

    @cached_property
    def _table(self) -> tuple[dict[tuple[int, int], _Items], list[str]]:
        """The items of each row, by index and position, and the words that have codes."""
        frame = self._read().to_pandas()
        if "position" not in frame:
            frame["position"] = 0
        row = ["index", "position"]
        frame = frame.sort_values([*row, "item"], kind="stable", ignore_index=True)
        number = frame.groupby(row).cumcount()
        for place in np.flatnonzero(number != frame["item"])[:1]:
            raise InputError(
                f"external: {self.file} has the item {frame['item'][place]} of row "
                f"{frame['index'][place]} where {number[place]} is expected; items are numbered from 0, "
                "each once."
            )
        for place in np.flatnonzero(np.isinf(frame["score"]))[:1]:
            raise InputError(
                f"external: {self.file} has the score {frame['score'][place]} at item {number[place]} of "
                f"row {frame['index'][place]}; expected finite numbers, and none where an item has no "
                "score."
            )
        starts = np.flatnonzero(number == 0)
        codes, words = frame["word"].factorize()
        parts = (np.split(values, starts[1:]) for values in (frame["score"].to_numpy(), codes))
        keys = map(tuple, frame.loc[starts, row].to_numpy().tolist())
        return dict(zip(keys, map(_Items, *parts), strict=True)), words.tolist()

    def _read(self) -> pa.Table:
        """The table's columns, each of its kind."""
        try:
            if self.file.endswith(".csv"):
                table = pyarrow.csv.read_csv(
                    self.file,
                    parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                    convert_options=pyarrow.csv.ConvertOptions(column_types={"word": pa.string()}),
                )
            else:
                table = pyarrow.parquet.read_table(self.file)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"external: {self.file} is not a table: {one_line(error)}.") from None
        if not table.num_rows:
            raise InputError(f"external: {self.file} has no rows; expected one for each item.")
        columns = {}
        for name, (kind, expected) in _KINDS.items():
            if name not in table.column_names:
                if name == "position":
                    continue
                hint = did_you_mean(name, table.column_names)
                why = ": write each item as it stands in the text, so that other texts are refused"
                raise InputError(
                    f"external: {self.file} has no column {name}{hint}{why * (name == 'word')}."
                )
            with suppress(pa.ArrowException):
                columns[name] = table.column(name).cast(kind)
            if name not in columns or (name != "score" and columns[name].null_count):
                raise InputError(f"external: {self.file}: column {name} is not of {expected}.")
        return pa.table(columns)

"""Scores of items that another program computed, such as SHAP or LIME."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError, did_you_mean, one_line
from attnlight.files import suggest_file


@dataclass
class External(Attribution):
    """Scores from a table with one row per item.

    Its columns are `index`, the dataset row of the text, `item`, the number of the item from 0
    among those that attention may reach (boundary tokens have none), `score`, and for models of
    tokens `position`, the row's token in its text. A missing score is NaN. The scores are of the
    class that the other program explained, whatever the `target`.

    Args:
        file: A parquet file or, with the ending `.csv`, comma-separated values with a header.

    Raises:
        InputError: The file does not exist or is no such table, lacks a column, or has two scores of
            one item; and, in use, it lacks a text or has other items of it.
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
        lengths, rows = output.mask.sum(-1).tolist(), output.rows.tolist()
        found = [
            self._of_row(index, position, length)
            for (index, position), length in zip(rows, lengths, strict=True)
        ]
        flat = torch.from_numpy(np.concatenate([np.empty(0), *found])).to(output.mask.device)
        scores = flat.new_zeros(output.mask.shape)
        return scores.masked_scatter(output.mask, flat), {}

    def _of_row(self, index: int, position: int, length: int) -> NDArray[np.float64]:
        """Scores (L,) of the items of a row."""
        scores = self._table.get((index, position))
        if scores is None and index < 0:  # a repeat that a sampler added
            return np.zeros(length)
        row = f"row {index}" + (f", position {position}" if position else "")
        if scores is None:
            raise InputError(
                f"external: {self.file} has no scores of {row}: it is of other texts or of a part."
            )
        if len(scores) != length:
            raise InputError(
                f"external: {self.file} has {len(scores)} items in {row}, but the model attends to "
                f"{length}: it is of other texts, or of texts split or cut differently."
            )
        return scores

    @cached_property
    def _table(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Scores (L,) of the items of each row, by index and position."""
        table = self._read()
        index, item, score = (table[name] for name in ("index", "item", "score"))
        position = table.get("position", np.zeros_like(index))
        order = np.lexsort((item, position, index))
        keys = np.stack([index, position], axis=1)[order]
        first = np.ones(len(keys), dtype=bool)
        first[1:] = (keys[1:] != keys[:-1]).any(1)
        starts = np.flatnonzero(first)
        numbers = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
        wrong = np.flatnonzero(numbers != item[order])
        if len(wrong):
            row, place = keys[wrong[0]], int(numbers[wrong[0]])
            raise InputError(
                f"external: {self.file} has the item {int(item[order][wrong[0]])} of row {row[0]} "
                f"where {place} is expected; items are numbered from 0, each once."
            )
        parts = np.split(score[order], starts[1:])
        return dict(zip(map(tuple, keys[starts].tolist()), parts, strict=True))

    def _read(self) -> dict[str, NDArray[np.generic]]:
        """The table's columns: numbers, and whole ones except the scores."""
        try:
            if self.file.endswith(".csv"):
                table = pyarrow.csv.read_csv(self.file)
            else:
                table = pyarrow.parquet.read_table(self.file)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"external: {self.file} is not a table: {one_line(error)}.") from None
        columns = {}
        for name in ("index", "item", "score", "position"):
            if name not in table.column_names:
                if name == "position":
                    continue
                hint = did_you_mean(name, table.column_names)
                raise InputError(f"external: {self.file} has no column {name}{hint}.")
            kind = pa.float64() if name == "score" else pa.int64()
            try:
                values = table.column(name).cast(kind)
            except pa.ArrowException:
                values = None
            if values is None or (name != "score" and values.null_count):
                expected = "numbers" if name == "score" else "whole numbers"
                raise InputError(f"external: {self.file}: column {name} is not of {expected}.")
            columns[name] = values.to_numpy()
        return columns

"""Rows of texts, labels and the like as batches of a trained model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from reprlib import repr as short
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.batch import BOS, SPECIAL_TOKENS, TextBatch
from attnlight.data.labels import some
from attnlight.data.rows import ARRAYS, COLUMNS
from attnlight.data.targets import IGNORED
from attnlight.data.tokenization import Surface, count_cut
from attnlight.errors import InputError, did_you_mean
from attnlight.reference.trained import TrainedModel

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_MISSING = ("None", "nan", "<NA>", "NaT")


class GivenTexts:
    """The texts of some rows, with the attributes that tests ask of a split of a corpus.

    All batches but the last are of equal size; rows are as `read_rows` returns them, read by the
    reader, or None where the batches were given.

    Attributes:
        index: Dataset index of each text.
        lengths: Number of tokens of each text, (n,), boundary tokens included.
        whole_words: Whether batches keep words that the tokenizer divides separate.
    """

    def __init__(
        self, batches: Sequence[TextBatch], reader: TrainedModel | None, rows: Sequence[Any]
    ) -> None:
        self.index = torch.cat([batch.index for batch in batches]).cpu().numpy()
        counts = [batch.mask.flatten(1).sum(-1) for batch in batches]
        self.lengths = torch.cat(counts).cpu().numpy()
        self.whole_words = reader is not None and reader.raw.whole_words
        self._batches, self._reader, self._rows = batches, reader, rows

    @property
    def cut(self) -> int:
        """Number of texts that were cut at the most tokens that a pretrained model reads."""
        if self._reader is None:
            return 0
        queries, raw = [row.get("query") for row in self._rows], self._reader.raw
        texts = [row["text"] for row in self._rows]
        if None not in queries and raw.reads_joined(queries):
            texts = list(zip(texts, queries, strict=True))
        return count_cut(raw.parsed_tokenizer, texts, self.lengths.tolist()) or 0

    def token_counts(self, size: int) -> NDArray[np.int64]:
        """How often each of `size` ids occurs, boundary tokens included."""
        found = torch.cat([batch.tokens[batch.mask] for batch in self._batches])
        return found.bincount(minlength=size).cpu().numpy()

    def words(self, position: int) -> list[str]:
        """Surface form of each id or whole word of a text; raises as `surface`."""
        return self.surface(position).forms

    def surface(self, position: int) -> Surface:
        """Surface of the ids or whole words of a text.

        Raises:
            InputError: The texts are known as batches alone.
        """
        if self._reader is None:
            raise InputError("batches hold no words: give texts, pairs or mappings in their place.")
        number, row = divmod(position, len(self._batches[0]))
        mask = self._batches[number].mask[row]
        count = int((mask.any(-1) if self.whole_words else mask).sum())
        given = self._rows[position]
        text, spans, forms = self._reader.raw.surface(given["text"], given.get("query"))
        before = count - len(forms)
        return Surface(text, [(0, 0)] * before + spans, [SPECIAL_TOKENS[BOS]] * before + forms)

    def query_words(self, position: int) -> list[str]:
        """Surface form of each id of the query of a text."""
        assert self._reader is not None  # since `words`
        return self._reader.raw.surface(self._rows[position]["query"]).forms


def encode_rows(reader: TrainedModel, rows: Sequence[Mapping[str, Any]], start: int) -> TextBatch:
    """A batch of rows, as `read_rows` returns them, whose dataset index begins at `start`.

    Raises:
        InputError: A label is unknown, or the model reads other rows.
    """
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    given = columns.pop("label", None)
    batch = reader.encode(**{COLUMNS[name]: values for name, values in columns.items()})
    batch = replace(batch, index=batch.index + start)
    if given is None:
        return batch
    number, has = class_reader(reader.classes), "row {} of the data has"
    if not reader.problem.tags:
        numbers = [number(label, has.format(row)) for row, label in enumerate(given, start)]
        return replace(batch, labels=torch.tensor(numbers))
    labels = torch.full_like(batch.tokens, IGNORED)
    for text, (values, places) in enumerate(zip(given, batch.instances(), strict=True)):
        count, row = int(places.sum()), start + text
        if not isinstance(values, list | tuple):
            raise InputError(
                f"row {row} of the data has the label {short(values)}; expected a list of one for each "
                "token."
            )
        if len(values) != count:
            raise InputError(f"row {row} has {len(values)} labels for {count} tokens.")
        labels[text, places] = torch.tensor([number(label, has.format(row)) for label in values])
    return replace(batch, labels=labels)


def class_reader(classes: Sequence[str]) -> Callable[[Any, str], int]:
    """A function of a label that returns the number of its class; of a wrong one it says who `has` it.

    A string is a class's name. A number is the class of that name where all names are numbers, and a
    class's place, from 0, where no name is. A truth value is a name, or 0 or 1 where names are numbers.
    """
    places = {name: place for place, name in enumerate(classes)}
    numeric = [name for name in classes if _NUMBER.fullmatch(name)]
    by_value: dict[float, list[str]] = {}
    for name in numeric:
        by_value.setdefault(float(name), []).append(name)

    def number(label: Any, has: str) -> int:  # noqa: ANN401
        label = label.item() if isinstance(label, ARRAYS) else label
        if not isinstance(label, str) and str(label) in _MISSING:
            raise InputError(f"{has} no label ({label}): give one to each row or to none.")
        counted = isinstance(label, int | float)
        if counted and numeric:
            named = by_value.get(label, [])
        elif isinstance(label, bool):
            named = [name for name in classes if name.lower() == str(label).lower()]
        elif counted:
            named = [classes[int(label)]] if label in range(len(classes)) else []
        else:
            named = [label] if isinstance(label, str) and label in places else []
        if len(named) > 1 or (counted and 0 < len(numeric) < len(classes)):
            raise InputError(
                f"{has} the label {label}, which is ambiguous among the classes {some(classes)}: give "
                "the class's name as a string."
            )
        if not named:
            hint = did_you_mean(label, classes) if isinstance(label, str) else ""
            if counted and not numeric and not isinstance(label, bool):
                hint = f", or its place from 0 to {len(classes) - 1}"
            raise InputError(
                f"{has} the label {short(label)}; expected one of the classes {some(classes)}{hint}."
            )
        return places[named[0]]

    return number

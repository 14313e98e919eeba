"""Rows of texts, labels and the like as batches of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from attnlight.batch import BOS, SPECIAL_TOKENS, TextBatch
from attnlight.data.targets import IGNORED
from attnlight.data.tokenization import count_cut
from attnlight.errors import InputError, did_you_mean
from attnlight.reference.trained import TrainedModel

# What a row may hold, and the argument of `TrainedModel.encode` that takes a list of it.
_COLUMNS = {"text": "texts", "pos": "pos", "query": "queries", "candidates": "candidates"}
_SYNONYMS = {"passage": "text", "tokens": "text"}


class GivenTexts:
    """The texts of some rows, with the attributes that tests ask of a split of a corpus.

    Args:
        batches: The rows as batches; all but the last are of equal size.
        reader: The model that read the rows; None if the batches were given.
        rows: The rows.

    Attributes:
        index: Dataset index of each text.
        whole_words: Whether batches keep words that the tokenizer divides separate.
    """

    def __init__(
        self, batches: Sequence[TextBatch], reader: TrainedModel | None, rows: Sequence[Any]
    ) -> None:
        self.index = torch.cat([batch.index for batch in batches]).cpu().numpy()
        self.whole_words = reader is not None and reader.raw.whole_words
        self._batches, self._reader, self._rows = batches, reader, rows

    @property
    def cut(self) -> int:
        """Number of texts that were cut at the most tokens that a pretrained model reads."""
        if self._reader is None:
            return 0
        texts = [_named(row, number)["text"] for number, row in enumerate(self._rows)]
        lengths = (int(count) for batch in self._batches for count in batch.mask.flatten(1).sum(-1))
        return count_cut(self._reader.raw.parsed_tokenizer, texts, lengths) or 0

    def words(self, position: int) -> list[str]:
        """Surface form of each id or whole word of a text.

        Raises:
            InputError: The texts are known as batches alone.
        """
        if self._reader is None:
            raise InputError(
                "batches hold no words: give texts, pairs or mappings in their place to record texts."
            )
        number, row = divmod(position, len(self._batches[0]))
        mask = self._batches[number].mask[row]
        count = int((mask.any(-1) if self.whole_words else mask).sum())
        words = self._reader.raw.words(_named(self._rows[position], position)["text"])
        return [SPECIAL_TOKENS[BOS]] * (count - len(words)) + words

    def query_words(self, position: int) -> list[str]:
        """Surface form of each id of the query of a text."""
        assert self._reader is not None  # since `words`
        return self._reader.raw.words(_named(self._rows[position], position)["query"])


def _named(row: Any, number: int) -> dict[str, Any]:  # noqa: ANN401
    """The columns of a row, with its text as `text`.

    Raises:
        InputError: The row has another form, or no text.
    """
    named = {"text": row} if isinstance(row, str) else row
    if isinstance(row, tuple) and len(row) == 2:
        named = dict(zip(("text", "label"), row, strict=True))
    if not isinstance(named, Mapping):
        raise InputError(
            f"row {number} of the data is of type {type(row).__name__}; expected a text, a pair of "
            "text and label, or a mapping with `text`."
        )
    found = {_SYNONYMS.get(name, name): value for name, value in named.items()}
    text = found.get("text")
    found["text"] = " ".join(text) if isinstance(text, list | tuple) else text
    if not isinstance(found["text"], str):
        raise InputError(
            f"row {number} of the data has no `text`; its columns are {', '.join(named)}."
        )
    return found


def encode_rows(reader: TrainedModel, rows: Sequence[Any], start: int) -> TextBatch:
    """A batch of rows, whose dataset index begins at `start`.

    Raises:
        InputError: A row has another form than the first or lacks its text, or a label is unknown.
    """
    columns: dict[str, list[Any]] = {}
    for number, row in enumerate(rows, start=start):
        found = _named(row, number)
        for name in (*_COLUMNS, "label"):
            if name in found:
                columns.setdefault(name, []).append(found[name])
    for name, values in columns.items():
        if len(values) < len(rows):
            raise InputError(f"{len(rows) - len(values)} rows from {start} on have no `{name}`.")
    given = {_COLUMNS[name]: columns[name] for name in _COLUMNS if name in columns}
    batch = reader.encode(**given)
    batch = replace(batch, index=batch.index + start)
    if "label" not in columns:
        return batch
    classes = reader.classes

    def label(value: Any) -> int:  # noqa: ANN401
        """The number of a class."""
        if value in classes:
            return classes.index(value)
        if isinstance(value, int) and 0 <= value < len(classes):
            return value
        hint = did_you_mean(str(value), classes)
        raise InputError(
            f"the label {value!r} is not among the classes {', '.join(classes)}{hint}."
        )

    if not isinstance(columns["label"][0], list | tuple):
        return replace(batch, labels=torch.tensor(list(map(label, columns["label"]))))
    labels = torch.full_like(batch.tokens, IGNORED)
    for text, (values, places) in enumerate(zip(columns["label"], batch.instances(), strict=True)):
        if len(values) != int(places.sum()):
            raise InputError(
                f"row {start + text} has {len(values)} labels for {int(places.sum())} tokens."
            )
        labels[text, places] = torch.tensor(list(map(label, values)))
    return replace(batch, labels=labels)

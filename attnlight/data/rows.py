"""Rows of Python: texts, pairs, mappings and tables of columns, in one form."""

from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.labels import feature_names
from attnlight.data.raw_text import HasColumns, require_text
from attnlight.errors import InputError

ARRAYS = (np.ndarray, np.generic, Tensor)  # whose values Python has types of its own for
# What a row may hold, and the argument of `TrainedModel.encode` that takes a list of it.
COLUMNS = {"text": "texts", "pos": "pos", "query": "queries", "candidates": "candidates"}
_SYNONYMS = {"passage": "text", "tokens": "text", "labels": "label", "tags": "label"}
_LESSER = ("labels", "tags")  # count where there is no `label`
_EXPECTED = (
    "a list of texts, such as ['a film'], of pairs of text and label, or of mappings with `text`, or a "
    "table with the column `text`, such as pandas.read_csv(FILE)"
)


@runtime_checkable
class _Dataset(Protocol):
    """A `datasets.Dataset`, which is not imported to ask."""

    features: Any


@runtime_checkable
class _DataFrame(HasColumns, Protocol):
    """A DataFrame of pandas, which is not imported either."""

    iloc: Any
    to_dict: Any


def read_rows(data: Any, batches: bool = False) -> list[Any]:  # noqa: ANN401
    """The rows of what `attnlight.run` reads, as mappings with `text`, or allowed batches."""
    if isinstance(data, Mapping):
        data = _rows_of_columns(data)
    elif isinstance(data, _DataFrame):
        twice = data.columns[data.columns.duplicated()]
        if len(twice):
            raise InputError(
                f"the data have several columns {str(twice[0])!r}: rename or remove all but one."
            )
        data = data.to_dict("records")
    elif isinstance(data, str | bytes) or not isinstance(data, Iterable):
        text = isinstance(data, str)
        kind = f"the string {short(data)}" if text else f"of type {type(data).__name__}"
        raise InputError(f"the data are {kind}; expected {_EXPECTED}.")
    # Labels of a `datasets.Dataset` that are numbers count its own names.
    features = data.features if isinstance(data, _Dataset) else None
    kinds = features if isinstance(features, Mapping) else {}
    label = next((kinds[x] for x in ("label", *_LESSER) if x in kinds), None)
    names = feature_names(label, of_lists=True)
    rows = list(data)
    if batches and all(isinstance(row, TextBatch) for row in rows):
        return rows
    named = [_named(row, number, names) for number, row in enumerate(rows)]
    for number, row in enumerate(named):
        for name in sorted(named[0].keys() ^ row.keys()):
            without, other = (number, 0) if name in named[0] else (0, number)
            raise InputError(
                f"row {without} of the data has no `{name}`, which row {other} has: give it to each "
                "row or to none."
            )
    return named


def _rows_of_columns(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of columns of equal length."""
    if any(
        isinstance(column, Mapping | HasColumns) or hasattr(column, "column_names")
        for column in columns.values()
    ):
        split = "test" if "test" in columns else next(iter(columns))
        raise InputError(
            f"the data are a {type(columns).__name__} that has the splits {', '.join(map(str, columns))}; "
            f"expected the rows of one, such as data[{split!r}]."
        )
    lists = {}
    for name, column in columns.items():
        if isinstance(column, str | bytes) or not isinstance(column, Iterable):
            raise InputError(
                f"column {name} of the data is {short(column)}; expected a list with a value of each "
                "row, or, of a single row, [row]."
            )
        lists[name] = list(column)
    if len(set(map(len, lists.values()))) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in lists.items())
        raise InputError(f"columns of the data differ in length: {lengths}.")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _named(row: Any, number: int, names: Sequence[str] | None) -> dict[str, Any]:  # noqa: ANN401
    """The columns of row `number` that are read, with its text as `text`; `names` are of labels."""
    place = f"row {number} of the data"
    given = {"text": row} if isinstance(row, str) else row
    if isinstance(row, tuple) and len(row) == 2:
        given = dict(zip(("text", "label"), row, strict=True))
    if not isinstance(given, Mapping):
        raise InputError(
            f"{place} is of type {type(row).__name__}; expected a text, a pair of text and label, or a mapping "
            "with `text`."
        )
    found: dict[str, Any] = {}
    left_out = _LESSER if "label" in given else ()
    for name, value in given.items():
        column = _SYNONYMS.get(name, name) if name not in left_out else name
        if column in found:
            both = [other for other in given if _SYNONYMS.get(other, other) == column]
            raise InputError(f"{place} has both {' and '.join(both)}; remove one of them.")
        if column in COLUMNS or column == "label":  # NumPy's values and lists as Python's
            found[column] = value.tolist() if isinstance(value, ARRAYS) else value
    if "text" not in found:
        raise InputError(f"{place} has no `text`; its columns are {', '.join(map(str, given))}.")
    text, label = found["text"], found.get("label")
    if isinstance(text, list | tuple) and all(isinstance(word, str) for word in text):
        found["text"] = " ".join(text)
    for name in ("text", "query"):
        if name in found:
            require_text(found[name], f"{name} of {place}")
    if names is not None and label is not None:
        known = dict(enumerate(names))
        listed = isinstance(label, list)
        found["label"] = [known.get(x, x) for x in label] if listed else known.get(label, label)
    return found

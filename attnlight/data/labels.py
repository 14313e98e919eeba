"""Labels of a source as numbers of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.data.columns import is_text, require_columns
from attnlight.errors import InputError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

    from attnlight.data.sources import Source

Value = int | str


def read_labels(
    rows: Dataset, source: Source, names: Sequence[str] | None = None
) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the classes and the class of each row.

    Args:
        rows: The source's n rows.
        source: Where they come from: its `label` column and its `classes`.
        names: The corpus's classes, which the training split has decided; None for that split.

    Returns:
        The classes, and each row's number among them, (n,), -1 where `classes` drops its label.

    Raises:
        InputError: The column is missing, holds no labels or is -1 throughout; `classes` lists a
            label twice or one that the source does not have; or a label is outside the classes.
    """
    column = _column(rows, source)
    values, row_values = _distinct(column)
    if set(values) == {-1}:
        raise InputError(
            f"{source} is labelled -1 throughout: its labels are not published, use another split"
        )
    named = _named_by_corpus(rows, source) or {value: str(value) for value in values}
    if source.classes is not None:
        complete = names is None or bool(_named_by_corpus(rows, source))
        named = _chosen(source, named, complete, is_text(column.type))
    if names is None:
        names = list(source.classes or dict.fromkeys(named.values()))
    numbers = [_number(value, named, names, source) for value in values]
    return list(names), np.array(numbers, np.int64)[row_values]


def _column(rows: Dataset, source: Source) -> pyarrow.ChunkedArray:
    import pyarrow

    require_columns(rows, source, [str(source.label)])
    column = rows.select_columns([source.label]).with_format("arrow")[:][source.label]
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    if not (pyarrow.types.is_integer(column.type) or is_text(column.type)):
        raise InputError(
            f"column {source.label} of {source} holds {column.type}; a label is a whole number "
            "or a string"
        )
    if column.null_count:
        raise InputError(f"{column.null_count} rows of {source} have no {source.label}")
    return column


def _distinct(column: pyarrow.ChunkedArray) -> tuple[list[Value], NDArray[np.int64]]:
    """The different values in their order, and which of them each row has."""
    import pyarrow.compute

    values = pyarrow.compute.unique(column)
    values = values.take(pyarrow.compute.sort_indices(values))
    places = pyarrow.compute.index_in(column, value_set=values)
    return values.to_pylist(), places.to_numpy().astype(np.int64)


def _named_by_corpus(rows: Dataset, source: Source) -> dict[Value, str]:
    """Labels to which the corpus itself gives names, whether they occur or not."""
    return dict(enumerate(getattr(rows.features[str(source.label)], "names", ())))


def _chosen(
    source: Source, known: dict[Value, str], complete: bool, text: bool
) -> dict[Value, str]:
    """Class of each label that `classes` lists; other labels are dropped.

    Args:
        source: Its `classes` list numbers, or names of labels.
        known: Name of each label.
        complete: Whether labels that are not known are mistakes: a test split may lack a label.
        text: Whether labels are strings.
    """
    by_name = {name: value for value, name in known.items()}
    named: dict[Value, str] = {}
    for name, labels in (source.classes or {}).items():
        for label in labels:
            value = label if isinstance(label, int) else by_name.get(label, label)
            value = str(label) if text else value
            if complete and value not in known:
                there = ", ".join(repr(value) for value in known)
                raise InputError(
                    f"classes lists {label!r} for {name!r}, which is no label of {source}; its "
                    f"labels are {there}"
                )
            if value in named:
                raise InputError(f"classes lists label {label!r} of {source} twice")
            named[value] = name
    return named


def _number(value: Value, named: dict[Value, str], names: Sequence[str], source: Source) -> int:
    if value not in named and source.classes is not None:
        return -1
    if named.get(value) not in names:
        raise InputError(
            f"{source} has label {value!r}, outside the classes {', '.join(names)}; list the "
            "labels to use in `classes`"
        )
    return list(names).index(named[value])

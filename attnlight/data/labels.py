"""Read the labels of a source as class numbers."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from attnlight.data.columns import is_text, require_columns
from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError, did_you_mean

Value = int | str
_DISTINCT = 20  # a column with more rows than this and a different value in each has no classes
_SHOWN = 30


def read_labels(
    rows: Dataset, source: Source, names: Sequence[str] | None = None
) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the classes, and the class of each row, (rows,), -1 where `classes` drops its label.

    `names` are the corpus's classes, as set by the training split; None for that split.
    """
    import pandas

    column = _column(rows, source)
    row_values, distinct = pandas.factorize(column.to_pandas(), sort=True)
    values: list[Value] = distinct.tolist()
    if set(values) == {-1}:
        raise InputError(
            f"{source} has label -1 in all rows: its labels are not published; name another split, "
            "or split test texts off the training texts with `test_fraction: 0.2`"
        )
    if names is None and len(values) == len(rows) > _DISTINCT:
        raise InputError(
            f"column {source.label} of {source} has a different value in each of {len(rows)} rows: "
            f"set label to the column of classes, one of {', '.join(rows.column_names)}"
        )
    # Labels that the corpus itself names, whether they occur or not.
    numbered = enumerate(feature_names(rows.features[str(source.label)]) or ())
    label_names: dict[Value, str] = dict(numbered)
    named = label_names or {value: str(value) for value in values}
    if source.classes is not None:
        complete = names is None or bool(label_names)
        named = _chosen(source, named, complete, is_text(column.type))
    if names is None:
        names = list(source.classes or dict.fromkeys(named.values()))
    places = {name: place for place, name in enumerate(names)}
    for value in values:
        if named.get(value) not in places and (value in named or source.classes is None):
            raise InputError(
                f"{source} has label {value!r}, which is not among the classes {some(names)}; "
                "list the labels to use in classes, and rows with others are dropped"
            )
    numbers = [places[named[value]] if value in named else -1 for value in values]
    return list(names), np.array(numbers, np.int64)[row_values]


def _column(rows: Dataset, source: Source) -> pyarrow.ChunkedArray:
    require_columns(rows, source, [str(source.label)])
    column = rows.select_columns([source.label]).with_format("arrow")[:][source.label]
    if column.null_count == len(column):
        raise InputError(f"no row of {source} has a {source.label}")
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    if pyarrow.types.is_floating(column.type):  # integers with missing values, as read from CSV
        with suppress(pyarrow.ArrowInvalid):
            column = column.cast(pyarrow.int64())
    if not (pyarrow.types.is_integer(column.type) or is_text(column.type)):
        raise InputError(
            f"column {source.label} of {source} holds {column.type}; expected whole numbers "
            "or strings"
        )
    if column.null_count:
        first = column.is_null().to_pylist().index(True)
        raise InputError(
            f"{column.null_count} of the {len(column)} rows of {source} have no {source.label}, "
            f"first row {first} (from 0): fill them in or remove those rows from the corpus"
        )
    return column


def _chosen(
    source: Source, label_names: dict[Value, str], complete: bool, text: bool
) -> dict[Value, str]:
    """Class of each label that `classes` lists, by number or by name; other labels are dropped.

    If `label_names` are `complete`, other labels are refused; a test split may lack a label.
    """
    by_name = {name: value for value, name in label_names.items()}
    named: dict[Value, str] = {}
    for name, labels in (source.classes or {}).items():
        for label in labels if isinstance(labels, list) else [labels]:
            value = label if isinstance(label, int) else by_name.get(label, label)
            value = str(label) if text else value
            if complete and value not in label_names:
                hint = did_you_mean(str(label), map(str, (*label_names, *label_names.values())))
                if isinstance(label, bool):
                    hint = " (put yes, no, on, off, true and false in quotes: YAML reads them as "
                    hint += "truth values)"
                raise InputError(
                    f"classes lists {label!r} for {name!r}, which is not a label of {source}{hint}; its "
                    f"labels are {some(map(repr, label_names))}"
                )
            if value in named:
                raise InputError(f"classes lists label {label!r} of {source} twice")
            named[value] = name
    return named


def some(values: Iterable[str]) -> str:
    """The first values, joined with commas."""
    shown = list(islice(values, _SHOWN + 1))
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")


def feature_names(feature: Any, of_lists: bool = False) -> list[str] | None:  # noqa: ANN401
    """The names of classes that a feature of `datasets` has, or that its lists have; None without any."""
    if of_lists:
        feature = getattr(feature, "feature", feature)
    names: list[str] | None = getattr(feature, "names", None)
    return names

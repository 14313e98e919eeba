"""What a column of a source holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlight.data.sources import Source
from attnlight.errors import InputError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset


def require_columns(rows: Dataset, source: Source, names: Sequence[str]) -> None:
    """Refuse a source that lacks one of these columns.

    Raises:
        InputError: It names the column and lists those that are there.
    """
    for name in names:
        if name not in rows.column_names:
            there = ", ".join(rows.column_names)
            raise InputError(f"{source} has no column {name!r}; it has {there}")


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type holds strings."""
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def list_element(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Type of the elements of a list column, null for what is no list."""
    import pyarrow

    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    return kind.value_type if is_list else pyarrow.null()

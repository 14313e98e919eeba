"""The format of a record, for code that writes and code that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from attnlight.errors import InputError

FORMAT = 1
KEY = ("index", "position")
EXCLUDED = -1  # the prediction of a row that was not measured
METADATA = b"attnlight"  # key of the record's metadata in the file's
PIECE_ROWS = 32_768  # read and written at a time


class RecordError(InputError):
    """A record that lacks a row, holds one twice, or is no record at all."""


@dataclass(frozen=True)
class Record:
    """One test's rows.

    Attributes:
        columns: Each column, (R,) or (R, K), or (R,) of objects where it holds text or lists of
            varying length; what is null on disk is NaN here, and None among objects.
        metadata: `test`, `stage`, `epoch`, `checkpoint`, `partial`, `rows` and the like.
    """

    columns: dict[str, NDArray[Any]]
    metadata: dict[str, Any]

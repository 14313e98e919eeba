"""The format of a record, shared by writers and readers."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from attnlight.errors import InputError

FORMAT = 1
KEY = ("index", "position")
EXCLUDED = -1  # the prediction of a row that was not measured
METADATA = b"attnlight"  # key of the record's metadata within the file's metadata
# Types, in JSON, of the metadata that readers rely on.
METADATA_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("rows", "format", "non_finite"), int),
    **dict.fromkeys(("classes", "measures", "parts", "frontier_epsilons", "shares"), list),
    **dict.fromkeys(("model", "settings", "several_classes", "range", "direction"), dict),
    **dict.fromkeys(("test", "stage", "corpus", "clusters", "items", "target"), (str, type(None))),
    **dict.fromkeys(("checkpoint", "checkpoint_hash", "against"), (str, type(None))),
    **dict.fromkeys(("epsilon", "tie", "unknown_words"), (int, float)),
    "epoch": (int, type(None)),
    "partial": bool,
    "methods": (dict, list),
}
PIECE_ROWS = 32_768  # rows read or written at a time


class RecordError(InputError):
    """A record with missing or repeated rows, or a file that is not a record."""


@dataclass(frozen=True)
class Record:
    """One test's rows."""

    # Each column, (R,) or (R, K), or (R,) of objects where it holds text or lists of varying
    # length; nulls are NaN, or None in columns of objects.
    columns: dict[str, NDArray[Any]]
    # `test`, `stage`, `epoch`, `checkpoint`, `partial`, `rows` and the like.
    metadata: dict[str, Any]

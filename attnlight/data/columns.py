"""The columns of a source: check their types, read their rows in chunks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow
from numpy.typing import NDArray

from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError, did_you_mean

READ_ROWS = 1000


@dataclass(frozen=True)
class TokenColumns:
    """Columns with values for the elements of token lists.

    Args:
        extras: Columns with a number for each element of the token lists, aligned with the tokens
            after splitting and truncation in `TextBatch.extras`.
        rationale: Column of what people marked in the token lists as the reason of the label: a
            number for each token, marked where it is positive, or a list of such lists, one for each
            annotator. `TextBatch.extras` has `rationale`, 1 on the tokens that more than half of the
            text's annotators marked and, with several, `annotators`, whose bit k is set where
            annotator k marked the token. A split that is read as raw text or that lacks the column
            has neither.
        rationale_labels: The column holds a label of each token instead; the tokens whose label
            belongs to the class of the text are its rationale.
        remove: Column with a number for each element of the token lists; elements where it is positive
            are left out of every text, with their values of `extras`. Length limits and vocabulary
            are those of what remains.
    """

    extras: list[str] | None = None
    rationale: str | None = None
    rationale_labels: bool = False
    remove: str | None = None


def require_columns(
    rows: Dataset, source: Source, names: Sequence[str], options: Mapping[str, str] | None = None
) -> None:
    """Check that a source has these columns, which `options` (by default its own) name.

    Raises:
        InputError: Columns are missing; the message names them, the available ones and their options.
    """
    if options is None:
        options = {name: "tokens" if source.tokens else "text" for name in source.columns}
        options[str(source.label)] = "label"
    missing = [name for name in names if name not in rows.column_names]
    if not missing:
        return
    listed = " or ".join(f"{n!r}{did_you_mean(n, rows.column_names)}" for n in missing)
    wrong = [options[name] for name in missing if name in options]
    advice = (
        f": set {' and '.join(wrong)} to the right one{'s' * (len(wrong) > 1)}" if wrong else ""
    )
    available = ", ".join(rows.column_names)
    raise InputError(f"{source} has no column {listed}; it has {available}{advice}")


def is_text(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def list_element(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Element type of a list column; null for other columns."""
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    return kind.value_type if is_list else pyarrow.null()


def read_columns(
    rows: Dataset, columns: Sequence[str], chosen: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], pyarrow.Table]]:
    """Columns of the `chosen` rows of a source, which must ascend, in chunks with row numbers."""
    stored = rows.select_columns(list(columns)).with_format("arrow")
    for start in (np.unique(chosen // READ_ROWS) * READ_ROWS).tolist():
        inside = chosen[slice(*np.searchsorted(chosen, (start, start + READ_ROWS)))]
        yield inside, stored[start : start + READ_ROWS].take(inside - start)

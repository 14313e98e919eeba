"""What people marked in a text as the reason of its label."""

import numpy as np
import pyarrow
from numpy.typing import NDArray

from attnlight.data.columns import is_text, list_element, require_columns
from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError

RATIONALE = "rationale"  # per-token column: 1 on the tokens of the rationale
ANNOTATORS = "annotators"  # per-token column: bit k is set where annotator k marked the token
MAX_ANNOTATORS = 7  # bits of a stored number


def mark_rationale(
    rows: Dataset, source: Source, column: str, labels: NDArray[np.int64] | None = None
) -> tuple[Dataset, list[str]]:
    """The rows with `rationale` and, if several people marked a text, `annotators`; their names.

    The `column` is `TokenColumns.rationale`; nothing is marked in texts that have no list. With
    `rationale_labels`, `labels` (rows,) are the class of each row, -1 for rows that are dropped.
    """
    require_columns(rows, source, [column], {column: RATIONALE})
    (tokens,) = source.columns
    kind = rows.features.arrow_schema.field(column).type
    several = not pyarrow.types.is_null(list_element(list_element(kind)))
    number = list_element(list_element(kind) if several else kind)
    if not (pyarrow.types.is_integer(number) or pyarrow.types.is_floating(number)) and not (
        pyarrow.types.is_boolean(number) or (labels is not None and is_text(number))
    ):
        raise InputError(
            f"column {column} of {source} holds {kind}; expected a list of numbers for each text, or "
            "one for each annotator"
        )
    table = rows.select_columns([tokens, column, *([source.label] * (labels is not None))])
    stored = table.with_format("arrow")[:]
    classes: dict[object, int] = {}
    if labels is not None:
        classes = dict(zip(stored[source.label].to_pylist(), labels.tolist(), strict=True))
    majority, marks = [], []
    for row, (words, lists) in enumerate(
        zip(stored[tokens].to_pylist(), stored[column].to_pylist(), strict=True)
    ):
        size, lists = len(words or ()), (lists or []) if several else [lists] * bool(lists)
        for values in lists:
            if len(values or ()) != size or None in values:
                raise InputError(
                    f"row {row} of {source} has {size} tokens, but a list of {len(values or ())} "
                    f"numbers in {column}"
                )
        if len(lists) > MAX_ANNOTATORS:
            raise InputError(
                f"row {row} of {source} has {len(lists)} lists in {column}; at most "
                f"{MAX_ANNOTATORS} annotators are read"
            )
        if labels is not None:
            lists = [[classes.get(v) == labels[row] for v in values] for values in lists]
        lists = lists or [[0] * size]
        marked = np.array(lists, np.float64).reshape(len(lists), size) > 0
        majority.append((2 * marked.sum(0) > len(marked)).astype(np.int8))
        marks.append((marked.T @ (1 << np.arange(len(marked)))).astype(np.int8))
    added: dict[str, pyarrow.Array] = {RATIONALE: majority} | (
        {ANNOTATORS: marks} if several else {}
    )
    others = [name for name in rows.column_names if name not in added]
    rows = rows.select_columns(others)
    for name, values in added.items():
        rows = rows.add_column(name, pyarrow.array(values, pyarrow.large_list(pyarrow.int8())))
    return rows, list(added)

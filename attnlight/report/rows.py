"""The rows of a record that figures and tables are made of: few columns, a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.records import read_metadata, read_pieces, record_columns

MOST_ROWS = 1_000_000
Piece = dict[str, NDArray[Any]]
_ALWAYS = ("index", "position", "prediction", "max_attention")


def figure_rows(
    path: Path, columns: Sequence[str] | None = None, most: int = MOST_ROWS
) -> tuple[Piece, str]:
    """Rows that were measured, without those whose logits were not finite.

    Of a record with more than a million rows only the rows of some texts are read, chosen by a
    hash of their dataset index and never the first ones: corpora are sorted.

    Args:
        path: The record.
        columns: Columns to read beside `index`, `position`, `prediction` and `max_attention`,
            where the record holds them; None: all but lists of varying length.
        most: About how many rows to read at most.

    Returns:
        Columns (R,) or (R, K), and a sentence for the caption where rows were left out.
    """
    held = record_columns(path)
    wanted = [n for n, ragged in held.items() if not ragged] if columns is None else columns
    names = [name for name in dict.fromkeys([*_ALWAYS, *wanted]) if name in held]
    rows = int(read_metadata(path)["rows"])
    texts = _chosen_texts(path, most / rows) if rows > most else None
    measured = "prediction" in held
    pieces = [_rows_of(texts, p) for p in read_pieces(path, names, measured=measured)]
    pieces = pieces or [dict.fromkeys(names, np.empty(0))]
    found = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
    if texts is None:
        return found, ""
    return found, (
        f"Shows {len(found['index']):,} of {rows:,} rows, those of texts chosen by a hash."
    )


def is_whole(path: Path) -> bool:
    """Whether a record has all its measures: of some runs, as in docs/results, a part is kept."""
    return set(read_metadata(path).get("measures", ())) <= record_columns(path).keys()


def _chosen_texts(path: Path, share: float) -> NDArray[np.int64]:
    from attnlight.data.selection import choose

    texts = np.concatenate([np.unique(piece["index"]) for piece in read_pieces(path, ["index"])])
    texts = np.unique(texts)
    return choose(texts, max(1, int(share * len(texts))), seed=0)


def _rows_of(texts: NDArray[np.int64] | None, piece: Piece) -> Piece:
    if texts is None:
        return piece
    kept = np.isin(piece["index"], texts)
    return {name: values[kept] for name, values in piece.items()}

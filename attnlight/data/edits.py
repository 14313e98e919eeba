"""Texts that people edited until their label turned, and their originals (Kaushik et al. 2020)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pyarrow.types import is_nested

from attnlight.data.columns import require_columns
from attnlight.data.duplicates import Keys
from attnlight.data.selection import Rows
from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError

_NO = ("", "original", "false", "no", "0", "0.0")  # of an original, in a column of strings


@dataclass(frozen=True)
class EditColumns:
    """Which texts are edits of which.

    Args:
        edit_of: Column whose value an original and its edits share, such as an id; a text without a
            value has neither. They are never divided by `subset` or the fractions of training texts.
        edited: Column that is false, 0, empty or `original` in originals, and anything else in edits.
            Null: of two texts that share a value of `edit_of`, the first is the original.
        edits_in: Splits that keep edits; the others have originals alone.
    """

    edit_of: str | None = None
    edited: str | None = None
    edits_in: tuple[Literal["train", "validation", "test"], ...] = ("validation", "test")

    def __post_init__(self) -> None:
        if self.edited is not None and self.edit_of is None:
            raise InputError(
                f"edited is {self.edited}, which needs edit_of: the column that joins an original "
                "and its edits"
            )
        if not self.edits_in:
            raise InputError(f"edits_in is {self.edits_in}; it must name at least one split")


def read_originals(rows: Dataset, source: Source, columns: EditColumns) -> Rows | None:
    """Row of the original of each row of a source, (rows,): its own for all but edits.

    It is -1 - row for an edit whose original the source lacks; None without `edit_of`.
    """
    if columns.edit_of is None:
        return None
    options = {columns.edit_of: "edit_of"}
    options |= {columns.edited: "edited"} if columns.edited is not None else {}
    require_columns(rows, source, list(options), options)
    for name, option in options.items():
        if is_nested(kind := rows.features.arrow_schema.field(name).type):
            raise InputError(
                f"column {name} of {source} holds {kind}; {option} needs single values"
            )
    table = rows.select_columns(list(options)).to_pandas()
    shared, own = table[columns.edit_of], np.arange(len(table))
    joined = shared.notna().to_numpy()
    place = f"{columns.edit_of} of {source}"
    if columns.edited is None:
        edited = joined & shared.duplicated().to_numpy()
        sizes = shared.value_counts()
        if len(sizes) and sizes.iloc[0] > 2:
            raise InputError(
                f"{sizes.iloc[0]} texts share the {place} {sizes.index[0]!r}: set edited to the "
                "column that tells edits from their original"
            )
    else:
        words = table[columns.edited].astype("string").fillna("").str.strip().str.lower()
        edited = np.asarray(~words.isin(_NO), dtype=np.bool_)
    originals = shared[joined & ~edited]
    if (twice := originals.duplicated()).any():
        value = originals[twice].iloc[0]
        raise InputError(
            f"{(originals == value).sum()} texts that share the {place} {value!r} are originals: "
            f"{columns.edited} must be true for all but one of them"
        )
    rows_by_value = {value: row for row, value in originals.items()}
    found = shared.map(rows_by_value).to_numpy(np.float64, na_value=-1.0).astype(np.int64)
    return np.where(edited, np.where(found < 0, -1 - own, found), own)


def pair_edits(
    rows: Rows, originals: Rows, labels: Rows, keys: Keys, trained: Keys
) -> tuple[Rows, dict[str, dict[str, int]]]:
    """Pairs of a split: the original of each edit, and how many there are.

    An edit is no pair with an original that the split lacks, has the same text or the same label, and
    neither of a pair is a training text.

    Args:
        rows: Rows of the split, (n,), ascending.
        originals: `read_originals` of the source, (rows,).
        labels: Class of each row of the source, (rows,).
        keys: `text_keys` of the rows of the source, (rows,).
        trained: Keys of the training texts; none if the split is that of training.

    Returns:
        Row of the original of each row of the source, -1 for all that are no edit of a pair, (rows,);
        and counts for `corpus.json`, of edits of pairs and of edits left out, by reason.
    """
    edits = rows[originals[rows] != rows]
    of = originals[edits]
    lacking = ~np.isin(of, rows)
    left_out = {
        "without an original": lacking,
        "with an equal text": ~lacking & (keys[edits] == keys[of]),
        "with an equal label": ~lacking & (labels[edits] == labels[of]),
        "with a text of the training split": ~lacking & np.isin(keys[[edits, of]], trained).any(0),
    }
    valid = ~np.any(list(left_out.values()), axis=0)
    edit_of = np.full(len(originals), -1, np.int64)
    edit_of[edits[valid]] = of[valid]
    counts = {words: int(found.sum()) for words, found in left_out.items() if found.any()}
    return edit_of, {"pairs": {"edits": int(valid.sum())} | counts} if len(edits) else {}

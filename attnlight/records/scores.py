"""Scores of items in records: what tests keep with `keep_scores`, a list for each row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from attnlight.errors import InputError
from attnlight.records.reading import record_columns
from attnlight.records.shards import list_column

if TYPE_CHECKING:
    from torch import Tensor

SCORES = "scores_"


def score_columns(scores: Mapping[str, Tensor], mask: Tensor) -> dict[str, pa.ListArray]:
    """Columns `scores_<name>` of scores (R, N): for each row those of its items, by a mask (R, N)."""
    lengths = mask.sum(-1).cpu().numpy()
    return {
        f"{SCORES}{name}": list_column(values.detach()[mask].double().cpu().numpy(), lengths)
        for name, values in scores.items()
    }


def kept_scores(path: Path, test: str) -> list[str]:
    """Names of the scores that a record keeps.

    Args:
        path: The record.
        test: The test that writes it, as a configuration names it.

    Raises:
        InputError: There is no record, or it keeps no scores.
    """
    if not path.is_file():
        raise InputError(
            f"there is no {path}: run `attnlight test` with {test} and keep_scores: true."
        )
    columns = record_columns(path)
    names = [name.removeprefix(SCORES) for name in columns if name.startswith(SCORES)]
    if not names:
        raise InputError(f"{path} holds no scores: test again with keep_scores: true.")
    return names

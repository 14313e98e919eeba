"""Scores of items in records: what tests keep with `keep_scores`, a list for each row."""

from __future__ import annotations

from pathlib import Path

from attnlight.errors import InputError
from attnlight.records.reading import record_columns

SCORES = "scores_"
TEXTS = "texts"  # the record of texts with scores of their items, which has no measures
TEXT_MARKS = ("evidence", "rationale", "impermissible")  # columns of the tokens that it keeps


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

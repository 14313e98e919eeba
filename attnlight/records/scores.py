"""Scores of items in records: what tests keep with `keep_scores`, a list for each row."""

from __future__ import annotations

import shlex
from pathlib import Path

from attnlight.errors import InputError
from attnlight.records.reading import record_columns

SCORES = "scores_"
TEXTS = "texts"  # the record of texts with scores of their items, which has no measures
TEXT_MARKS = ("evidence", "rationale", "impermissible")  # columns of the tokens that it keeps


def kept_scores(path: Path) -> list[str]:
    """Names of the scores that a test's record in the folder of a run keeps.

    Raises:
        InputError: There is no record, or it keeps no scores.
    """
    if not path.is_file():
        raise InputError(f"there is no {path}: run `{_command(path)}`.")
    names = [n.removeprefix(SCORES) for n in record_columns(path) if n.startswith(SCORES)]
    if not names:
        raise InputError(f"{path} holds no scores: run `{_command(path)} --overwrite`.")
    return names


def _command(path: Path) -> str:
    """The command that writes a record with scores."""
    run, (stage, _, corpus) = path.parents[2], path.parent.name.partition("-")
    verb = {"val": "validate"}.get(stage, stage)
    place = ["-c", str(run / f"{verb}-{corpus}.yaml")] if corpus else [str(run)]
    words = ["attnlight", verb, *place, "--tests", path.stem]
    return shlex.join([*words, "--trainer.callbacks.keep_scores=true"])

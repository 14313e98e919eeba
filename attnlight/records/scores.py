"""Scores of items in records: columns of lists, one score per item, written with `keep_scores`."""

import shlex
from pathlib import Path

from attnlight.errors import InputError
from attnlight.records.reading import record_columns

SCORES = "scores_"  # prefix of these columns
TEXTS = "texts"  # a record that shows texts with scores of their items, without measures
TEXT_MARKS = ("evidence", "rationale", "impermissible")  # per-token columns of that record


def kept_scores(path: Path) -> list[str]:
    """Names of the scores in a test's record in a run folder, without their prefix.

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
    """The command that writes RUN/records/STAGE/TEST.parquet, or STAGE-CORPUS, with scores."""
    run, (stage, _, corpus) = path.parents[2], path.parent.name.partition("-")
    verb = {"val": "validate"}.get(stage, stage)
    place = ["-c", str(run / f"{verb}-{corpus}.yaml")] if corpus else [str(run)]
    if verb == "predict":  # whose folder names a split in place of a corpus
        place = [str(run), f"--data.predict_split={corpus}"]
    keep = ["--trainer.callbacks.keep_scores=true"] * (path.stem != TEXTS)  # which always has some
    return shlex.join(["attnlight", verb, *place, "--tests", path.stem, *keep])

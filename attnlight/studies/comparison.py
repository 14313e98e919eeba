"""The conditions of a study beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlight.studies.collect import JSON
from attnlight.studies.locks import alone
from attnlight.studies.plan import plan
from attnlight.studies.state import StudyFolder


def compare(folders: Sequence[StudyFolder], output: Path) -> None:
    """Compare the conditions of a study of taggers whose adversaries are all finished.

    Args:
        folders: The conditions' folders, or that of a study without any.
        output: The folder that the comparison goes to.

    Raises:
        InputError: A file cannot be read or written.
    """
    there = {
        str(folder.study.condition): folder.path
        for folder in folders
        if folder.study.condition is not None and folder.study.tagger and _comparable(folder)
    }
    if there:
        with alone(output):
            print(write(there, output)[0])


def _comparable(folder: StudyFolder) -> bool:
    adversaries = [run for run in plan(folder.study) if run.role == "adversary"]
    collected = (folder.path / JSON).is_file()
    return bool(adversaries) and collected and all(folder.done(run) for run in adversaries)


def write(folders: Mapping[str, Path], output: Path) -> list[Path]:
    """Write how exclusive attention is under each condition, by its name and its study's folder."""
    from attnlight.report.study.conditions import write_exclusivity

    return write_exclusivity(folders, output)

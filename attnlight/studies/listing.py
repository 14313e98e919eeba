"""The plan of a study as a table, and how long what is missing of it may take."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from attnlight.studies.plan import PlannedRun
from attnlight.studies.runner import minutes
from attnlight.studies.state import StudyFolder


def table(folder: StudyFolder, runs: Sequence[PlannedRun], asked: Sequence[PlannedRun]) -> str:
    """The plan with what is there of it, and how long the rest may take."""
    known = _durations(folder, runs)
    lines = [("run", "role", "state", "needs", "estimate")]
    total, unknown = 0.0, 0
    for run in asked:
        state, seconds = folder.state(run), known.get(run.role, known.get("base"))
        if state == "finished":
            told = "-"
        else:
            told = "unknown" if seconds is None else minutes(seconds)
            total, unknown = total + (seconds or 0.0), unknown + (seconds is None)
        lines.append((run.name, run.role, state, _needs(run), told))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    left = "unknown" if unknown else minutes(total)
    return "\n".join([*rows, f"{len(asked)} runs of {len(runs)}; one after the other: {left}"])


def _durations(folder: StudyFolder, runs: Sequence[PlannedRun]) -> dict[str, float]:
    """How long a run takes by role, in seconds, from those that are finished."""
    seconds: dict[str, list[float]] = {}
    for run in runs:
        took = folder.seconds(run)
        if took is not None:
            seconds.setdefault(run.role, []).append(took)
    return {role: median(values) for role, values in seconds.items()}


def _needs(run: PlannedRun) -> str:
    shown = list(run.needs[:2])
    return ", ".join(shown) + (f" and {len(run.needs) - 2} more" if len(run.needs) > 2 else "")

"""What a study has not got, or not yet, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attnlight.report.study.plan import Plan

RUNS = {
    "base": "bases",
    "uniform": "runs with uniform attention",
    "seed": "other seeds of a base",
    "guide": "guided MLPs",
    "adversary": "adversaries",
}
_MOST = 5  # names; more are counted


def missing(
    study: Plan, roles: Iterable[str] = tuple(RUNS), words: Mapping[str, str] = RUNS
) -> list[str]:
    """A sentence for each role that the study does not plan or has not finished."""
    found = []
    for role in roles:
        planned = study.planned(role)
        waiting = [run.name for run in planned if not run.finished]
        if not planned:
            found.append(f"The study has no {words[role]}.")
        elif waiting:
            more = len(waiting) - _MOST
            names = ", ".join(waiting[:_MOST]) + (f" and {more} more" if more > 0 else "")
            found.append(f"Not finished: {len(waiting)} of {len(planned)} {words[role]} ({names}).")
    return found

"""Prediction problems: instances, labels, loss, metrics, and words for the pages."""

from attnlight.foreign import import_class
from attnlight.problems.base import Problem
from attnlight.problems.classification import Classification
from attnlight.problems.pairs import Pairs
from attnlight.problems.tagging import Tagging
from attnlight.problems.words import Words

__all__ = ["PROBLEMS", "Classification", "Pairs", "Problem", "Tagging", "Words", "problem_class"]

PROBLEMS: dict[str, type[Problem]] = {kind.name: kind for kind in (Classification, Pairs, Tagging)}


def problem_class(name: str) -> type[Problem]:
    """The problem with a registered name or an import path.

    Raises:
        InputError: There is no such problem.
    """
    return PROBLEMS[name] if name in PROBLEMS else import_class(name, Problem)  # type: ignore[type-abstract]

"""Prediction problems: instances, labels, loss, metrics, and words for the pages."""

from attnlight.errors import InputError, did_you_mean
from attnlight.problems.base import Problem, Words
from attnlight.problems.classification import Classification, Pairs
from attnlight.problems.tagging import Tagging
from attnlight.problems.translation import Translation
from attnlight.storage.foreign_classes import import_class

__all__ = [
    "PROBLEMS",
    "Classification",
    "Pairs",
    "Problem",
    "Tagging",
    "Translation",
    "Words",
    "problem_class",
    "problem_of_task",
]

_KINDS = (Classification, Pairs, Tagging, Translation)
PROBLEMS: dict[str, type[Problem]] = {kind.name: kind for kind in _KINDS}
_TASKS = {
    "AttentionClassifier": Classification.name,
    "ChunkTagger": Tagging.name,
    "Translator": Translation.name,
}


def problem_of_task(class_path: object) -> str | None:
    """Name of the problem of a shipped task class, by its import path; None: of any problem."""
    return _TASKS.get(str(class_path).rpartition(".")[2])


def problem_class(name: str) -> type[Problem]:
    """The problem with a registered name or an import path.

    Raises:
        InputError: There is no such problem.
    """
    if name in PROBLEMS:
        return PROBLEMS[name]
    if "." in name:
        return import_class(name, Problem)  # type: ignore[type-abstract]
    expected = f"expected one of: {', '.join(PROBLEMS)}, or the import path of another"
    raise InputError(f"there is no problem {name!r}{did_you_mean(name, PROBLEMS)}; {expected}.")

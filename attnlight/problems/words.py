"""The words of a problem: what pages call its instances and its quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What pages and sentences call the parts of a problem; `study.json` holds them as a mapping.

    Attributes:
        problem: Name of the problem: `classification`, `tagging`.
        instance: One prediction: `text`, `token`.
        cluster: What intervals resample: `text`, `sentence`.
        quality: The measure of quality: `F1 of positive`, `macro F1`, `chunk F1`, `accuracy`.
        criterion: The measure by which validation chooses.
        guided: A model whose attention is given, with its article: `an MLP`, `a tagger`.
    """

    problem: str
    instance: str
    cluster: str
    quality: str
    criterion: str
    guided: str


def words_of(problem: str, target: str | None = None, classes: Sequence[str] = ()) -> Words:
    """The words of a problem by its name.

    Args:
        problem: Its name.
        target: What the corpus asks of a text, where it may ask for several things.
        classes: Names of the classes.
    """
    if problem == "classification":
        f1 = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
        return Words(problem, "text", "text", f1, f1, "an MLP")
    if problem == "tagging":
        quality = ("chunk F1", "chunk F1") if target == "tokens" else ("accuracy", "macro F1")
        return Words(problem, "token", "sentence", *quality, "a tagger")
    return Words(problem, "instance", "text", "accuracy", "macro F1", "a guided model")

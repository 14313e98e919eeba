"""The words of a problem: how pages name its instances and its quality."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """The words for a problem's parts on pages; `study.json` has them as a mapping.

    Attributes:
        problem: Name of the problem: `classification`, `tagging`.
        instance: One prediction: `text`, `token`.
        cluster: The resampling unit of confidence intervals: `text`, `sentence`.
        quality: The measure of quality: `F1 of positive`, `macro F1`, `chunk F1`, `accuracy`.
        criterion: The measure of model selection on validation.
        guided: A guided model, with its article: `an MLP`, `a tagger`.
    """

    problem: str
    instance: str
    cluster: str
    quality: str
    criterion: str
    guided: str

"""The words of a problem: what pages call its instances and its quality."""

from __future__ import annotations

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

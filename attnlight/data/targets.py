"""What a tagger predicts of a sentence: all tags, one tag, or whether a chunk type occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch.nn.functional import pad

from attnlight.batch import BOS, MARKED, PAD, TextBatch
from attnlight.data.bio import split_tag
from attnlight.errors import InputError

IGNORED = -100  # label of padding and of tokens without a prediction, ignored by torch's losses
TargetName = Literal["tokens", "marked", "sentence"]


@dataclass(frozen=True)
class Target:
    """The prediction target of a tagger and the tokens that carry a prediction.

    A prediction is a row of the model's output: `tokens`, the tag of each token; `marked`, the tag
    of one token; `sentence`, whether a chunk of a given type occurs, predicted at a boundary token
    that precedes the sentence and attends to all of it.

    Args:
        name: One of these three.
        chunk: Type of the chunk that `sentence` predicts.

    Raises:
        InputError: `name` is not one of the three.
    """

    name: TargetName = "tokens"
    chunk: str = "SBAR"

    def __post_init__(self) -> None:
        if self.name not in get_args(TargetName):
            raise InputError(
                f"target is {self.name!r}; it must be one of {', '.join(get_args(TargetName))}."
            )

    @property
    def columns(self) -> list[str]:
        """Per-token columns of a batch that mark tokens with a prediction; none if all have one."""
        return [] if self.name == "tokens" else [MARKED]

    def classes(self, tags: Sequence[str]) -> list[str]:
        """Class names, given the names of the corpus's tags."""
        return [f"no {self.chunk}", self.chunk] if self.name == "sentence" else list(tags)

    def labels(self, tags: Sequence[str], numbers: Mapping[str, int], marked: int) -> list[int]:
        """Labels of the tokens, (T,), or (1 + T,) with the boundary token of `sentence`.

        Args:
            tags: Tags of the T tokens.
            numbers: Number of each tag.
            marked: Position of the token that `marked` predicts.
        """
        if self.name == "sentence":
            present = any(split_tag(tag)[1] == self.chunk for tag in tags)
            return [int(present), *[IGNORED] * len(tags)]
        labels = [numbers[tag] for tag in tags]
        if self.name == "tokens":
            return labels
        return [label if place == marked else IGNORED for place, label in enumerate(labels)]


def prepend_boundary(batch: TextBatch) -> TextBatch:
    """The batch with a boundary token before each text, the only token with a prediction.

    Args:
        batch: B texts of N tokens, unlabelled.
    """
    tokens = pad(batch.tokens, (1, 0), value=BOS)
    return replace(
        batch,
        tokens=tokens,
        mask=pad(batch.mask, (1, 0), value=True),
        extras={name: pad(values, (1, 0), value=PAD) for name, values in batch.extras.items()}
        | {MARKED: (tokens == BOS).to(torch.int8)},
    )

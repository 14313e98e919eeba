"""What a tagger predicts of a sentence: all tags, one tag, or whether it has a type of chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch.nn.functional import pad

from attnlight.batch import BOS, MARKED, PAD, TextBatch
from attnlight.data.bio import split_tag
from attnlight.errors import InputError

IGNORED = -100  # label of what is not asked for, and of padding: torch's losses pass over it
TargetName = Literal["tokens", "marked", "sentence"]


@dataclass(frozen=True)
class Target:
    """What is asked of a sentence of T tokens, and which of them answer.

    An answer is a row of the model's output: `tokens`, the tag of each token; `marked`, the tag of
    one token; `sentence`, whether there is a chunk of a type, answered by a boundary token that
    stands before the sentence and attends to all of it.

    Args:
        name: Which of these.
        chunk: Type of the chunk that `sentence` asks for.

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
        """Per-token columns of a batch that say which tokens answer; none where all do."""
        return [] if self.name == "tokens" else [MARKED]

    def classes(self, tags: Sequence[str]) -> list[str]:
        """Names of the answers, where those of the corpus's tags are given."""
        return [f"no {self.chunk}", self.chunk] if self.name == "sentence" else list(tags)

    def labels(self, tags: Sequence[str], numbers: Mapping[str, int], marked: int) -> list[int]:
        """Labels of all that stands there, (T,), or (1 + T,) with what stands before the sentence.

        Args:
            tags: Tags of the T tokens.
            numbers: Number of each tag.
            marked: The token that `marked` asks for.
        """
        if self.name == "sentence":
            found = any(split_tag(tag)[1] == self.chunk for tag in tags)
            return [int(found), *[IGNORED] * len(tags)]
        labels = [numbers[tag] for tag in tags]
        if self.name == "tokens":
            return labels
        return [label if place == marked else IGNORED for place, label in enumerate(labels)]


def begun(batch: TextBatch) -> TextBatch:
    """The batch with a boundary token before each text, which alone answers.

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

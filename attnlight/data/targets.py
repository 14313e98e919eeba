"""What a tagger predicts of a sentence: all tags, one tag, or whether a chunk type occurs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch.nn.functional import pad

from attnlight.batch import BOS, MARKED, PAD, TextBatch
from attnlight.data.bio import split_tag
from attnlight.errors import InputError
from attnlight.functional.random import draw_keys

IGNORED = -100  # label of padding and of tokens without a prediction, ignored by torch's losses
TargetName = Literal["tokens", "marked", "sentence"]


@dataclass(frozen=True)
class Target:
    """The prediction target of a tagger and the tokens that carry a prediction.

    A prediction is a row of the model's output: `tokens`, the tag of each token; `marked`, the tag
    of one token; `sentence`, whether a chunk of a given type occurs, predicted at a boundary token
    that precedes the sentence and attends to all of it.

    Args:
        target: What is predicted of a sentence, one of these three.
        sentence_chunk: Chunk type that `sentence` predicts.
        mark_seed: Seed of the tokens that `marked` predicts.
    """

    target: TargetName = "tokens"
    sentence_chunk: str = "SBAR"
    mark_seed: int = 0

    def __post_init__(self) -> None:
        if self.target not in get_args(TargetName):
            raise InputError(
                f"target is {self.target!r}; it must be one of {', '.join(get_args(TargetName))}."
            )

    @property
    def columns(self) -> list[str]:
        """Per-token columns of a batch that mark tokens with a prediction; none if all have one."""
        return [] if self.target == "tokens" else [MARKED]

    def classes(self, tags: Sequence[str]) -> list[str]:
        """Class names, given the names of the corpus's tags."""
        chunk = self.sentence_chunk
        return [f"no {chunk}", chunk] if self.target == "sentence" else list(tags)

    def labels(self, tags: Sequence[str], numbers: Mapping[str, int], row: int) -> list[int]:
        """Labels of the T tokens, (T,), or (1 + T,) with the boundary token of `sentence`.

        The row in the source alone determines the token of `marked`: that of number
        `draw_keys(mark_seed, row, 0, 1, 1)` modulo T.
        """
        if self.target == "sentence":
            present = any(split_tag(tag)[1] == self.sentence_chunk for tag in tags)
            return [int(present), *[IGNORED] * len(tags)]
        labels = [numbers[tag] for tag in tags]
        if self.target == "tokens":
            return labels
        key = draw_keys(self.mark_seed, torch.tensor([row]), torch.tensor([0]), 1, 1)
        marked = int(key) % len(tags)
        return [label if place == marked else IGNORED for place, label in enumerate(labels)]


def prepend_boundary(batch: TextBatch) -> TextBatch:
    """An unlabelled batch with a boundary token before each text, the only one with a prediction."""
    tokens = pad(batch.tokens, (1, 0), value=BOS)
    return replace(
        batch,
        tokens=tokens,
        mask=pad(batch.mask, (1, 0), value=True),
        extras={name: pad(values, (1, 0), value=PAD) for name, values in batch.extras.items()}
        | {MARKED: (tokens == BOS).to(torch.int8)},
    )

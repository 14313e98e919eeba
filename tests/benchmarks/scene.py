"""The model and the texts that the tests without re-encoding are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

from attnlight.batch import SPECIAL_TOKENS, AttentionOutput, TextBatch
from attnlight.models import FlatClassifier

TEXTS, TOKENS, WORDS = 32, 200, 10_000
# What makes attention and predictions of parameters as they are drawn as spread as trained ones.
_PEAKED, _SPREAD = 200, 300


@dataclass(frozen=True)
class Scene:
    """A model, texts of random words, and what it says of them.

    Args:
        model: Jain and Wallace's BiLSTM, in evaluation mode: embeddings of 300, 128 states in each
            direction, additive attention, two classes.
        batches: Batches of texts of equal length.
        outputs: What the model says of each.
    """

    model: FlatClassifier
    batches: list[TextBatch]
    outputs: list[AttentionOutput]

    @property
    def size(self) -> str:
        """The texts in words."""
        texts, tokens = self.batches[0].tokens.shape
        return f"{len(self.batches)} batches of {texts} texts of {tokens} tokens"


@torch.no_grad()
def scene(batches: int, texts: int = TEXTS, tokens: int = TOKENS) -> Scene:
    """The model and texts that the tests without re-encoding share."""
    torch.manual_seed(0)
    drawn = [random_texts(number, texts, tokens, WORDS) for number in range(batches)]
    model = spread_out(FlatClassifier(WORDS, num_classes=2).eval(), drawn)
    return Scene(model, drawn, [model(batch) for batch in drawn])


@torch.no_grad()
def spread_out(model: FlatClassifier, batches: Sequence[TextBatch]) -> FlatClassifier:
    """The model with attention and predictions about as spread as after training.

    Untrained attention is all but uniform and no decision is ever in doubt, which could make tests
    easier than they are, and differences too small to see. The last layers are therefore scaled, and
    the bias is moved: the largest weight of a text is about 0.2 and about half of the texts of the
    batches are of either class.
    """
    model.attention.get_parameter("value.weight").mul_(_PEAKED)
    model.decoder.weight.mul_(_SPREAD)
    model.decoder.bias.sub_(torch.cat([model(batch).logits[:, 1] for batch in batches]).median())
    return model


def random_texts(number: int, texts: int, tokens: int, words: int) -> TextBatch:
    """Batch `number` of texts of random words without padding or boundary tokens."""
    return TextBatch(
        index=torch.arange(texts) + number * texts,
        tokens=torch.randint(len(SPECIAL_TOKENS), words, (texts, tokens)),
        mask=torch.ones(texts, tokens, dtype=torch.bool),
        labels=torch.randint(2, (texts,)),
    )


def from_states(model: FlatClassifier, output: AttentionOutput) -> AttentionOutput:
    """The output with its item logits computed once more from its hidden states."""
    items = pad(model.decoder(output.states), (1, 0)).unsqueeze(1)
    return replace(output, item_logits=items)

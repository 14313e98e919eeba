"""Classifiers with weights set by hand, whose attention is known to be faithful or not.

All are the encoderless `FlatClassifier`: an embedding contains the item's attention score and the
logits that the item would produce alone. Texts have a class of 1, 2 or 3; the logits of an empty
context favour class 0, so that erasing all items always changes the decision.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from attnlight.batch import PAD, SPECIAL_TOKENS, TextBatch
from attnlight.data.pairs import EVIDENCE
from attnlight.models import FlatClassifier

CLASSES = 4
TEXTS = 300
_VARIANTS = 64  # tokens of a kind and class that differ only in their attention score
_LENGTHS = (20, 31)
# Token ids by kind (filler, signal), class that the token supports, and variant.
_TOKENS = len(SPECIAL_TOKENS) + torch.arange(2 * CLASSES * _VARIANTS).reshape(2, CLASSES, -1)


class KnownAnswer(NamedTuple):
    """A model whose answer is known.

    Attributes:
        name: Its name on the page.
        kind: `F` (attention is on the signal), `R` (signal everywhere, attention random) or `D`
            (attention is off the signal).
        signals: Number of items of a text that carry the signal; 0: all.
        signal_score: Attention score of a signal; that of a filler is 0 on average.
        spread: Standard deviation of the scores.
        signal_logit: Logit of a signal for the text's class.
        filler_logit: Logit of a filler for one of the two other classes.
    """

    name: str
    kind: str
    signals: int
    signal_score: float
    spread: float
    signal_logit: float
    filler_logit: float


MODELS = (
    KnownAnswer("F1", "F", 1, 5.4, 0.0, 6.0, 0.5),
    KnownAnswer("F3", "F", 3, 4.3, 0.0, 6.0, 0.5),
    KnownAnswer("F10", "F", 10, 3.1, 0.0, 6.0, 0.5),
    KnownAnswer("R", "R", 0, 0.0, 1.5, 3.0, 0.0),
    KnownAnswer("D", "D", 3, -2.0, 0.5, 60.0, 0.02),
)


def batches(answer: KnownAnswer, size: int = 64, count: int = TEXTS) -> list[TextBatch]:
    """Padded batches of random texts of 20 to 30 tokens: signals of their class, and fillers.

    Signals are marked as `evidence`, unless all items are signals.

    Args:
        answer: The model that they are for.
        size: Texts in a batch.
        count: How many of the texts are in the batches, the first ones.
    """
    random, ids, evidence = torch.Generator().manual_seed(1), [], []
    labels = 1 + torch.arange(TEXTS) % (CLASSES - 1)
    for label in labels.tolist():
        length = int(torch.randint(*_LENGTHS, (), generator=random))
        others = torch.tensor([other for other in range(1, CLASSES) if other != label])
        other = others[torch.randint(len(others), (length,), generator=random)]
        variant = torch.randint(_VARIANTS, (length,), generator=random)
        signal = torch.arange(length) < (answer.signals or length)
        tokens = torch.where(signal, _TOKENS[1, label, variant], _TOKENS[0, other, variant])
        order = torch.randperm(length, generator=random)
        ids.append(tokens[order])
        evidence.append((signal & (answer.signals > 0)).long()[order])
    tokens, marked = (pad_sequence(values, batch_first=True) for values in (ids, evidence))
    texts = TextBatch(torch.arange(TEXTS), tokens, tokens != PAD, labels, extras={EVIDENCE: marked})
    return [texts.select(rows) for rows in torch.split(torch.arange(count), size)]


def classifier(answer: KnownAnswer) -> FlatClassifier:
    """The model of a known answer."""
    model = FlatClassifier(
        vocab_size=int(_TOKENS.max()) + 1,
        num_classes=CLASSES,
        encoder="none",
        attention="dot",
        embedding_size=1 + CLASSES,
    )
    generator = torch.Generator().manual_seed(0)
    rows = torch.zeros(*_TOKENS.shape, 1 + CLASSES)
    rows[..., 0] = answer.spread * torch.randn(_TOKENS.shape, generator=generator)
    rows[1, ..., 0] += answer.signal_score
    for label in range(CLASSES):
        rows[0, label, :, 1 + label] = answer.filler_logit
        rows[1, label, :, 1 + label] = answer.signal_logit
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.embedding.weight[_TOKENS] = rows
        model.attention.key.weight.copy_(torch.eye(1 + CLASSES)[:1])  # type: ignore[union-attr,operator]
        model.decoder.weight.copy_(torch.eye(1 + CLASSES)[1:])
        model.decoder.bias.copy_(torch.tensor([0.01, 0.0, 0.0, 0.0]))
    # In single precision, rounding would order near ties differently by processor.
    return model.double().eval()

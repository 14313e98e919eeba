"""What an encoder that is computed token by token costs beside torch's LSTM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from attnlight.models import LSTM, OrthogonalLSTM
from tests.benchmarks.measuring import Measured, interleave, over, timed

EMBEDDING = 300


def orthogonal(
    repetitions: int = 15, texts: int = 32, tokens: int = 100, units: int = 256
) -> Measured:
    """Processor time of the orthogonal LSTM / of nn.LSTM, taken in turn, on a batch of texts."""
    torch.manual_seed(0)
    embeddings, mask = torch.randn(texts, tokens, EMBEDDING), torch.ones(texts, tokens) > 0
    kinds = {"nn.LSTM": LSTM, "orthogonal": OrthogonalLSTM}
    encoders = {name: kind(EMBEDDING, units) for name, kind in kinds.items()}

    def training(encoder: nn.Module) -> None:
        encoder(embeddings.requires_grad_(), mask).square().sum().backward()

    @torch.no_grad()
    def inference(encoder: nn.Module) -> None:
        encoder(embeddings, mask)

    ways: dict[str, Callable[[], float]] = {
        f"{name}, {use.__name__}": partial(timed, partial(use, encoder))
        for name, encoder in encoders.items()
        for use in (training, inference)
    }
    found = interleave(ways, repetitions)
    pairs = {
        f"orthogonal_{use}": (f"orthogonal, {use}", f"nn.LSTM, {use}")
        for use in ("training", "inference")
    }
    return over(found, **pairs)

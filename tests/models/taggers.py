"""Taggers and batches of sentences for tests."""

from __future__ import annotations

from typing import Any

import torch

from attnlight.batch import TextBatch
from attnlight.models import SelfAttentionTagger

FEATURES = {"pos": 7, "case": 5, "characters": 30}
READOUTS = ("study", "text", "residual")
LENGTHS = (6, 1, 4, 9)


def tagger(readout: str = "study", vocab_size: int = 20, **options: Any) -> SelfAttentionTagger:
    """A small tagger of random parameters that are not small, in evaluation mode."""
    sizes = {"heads": 2, "hidden_size": 8, "filter_size": 6, "embedding_size": 5, "feature_size": 3}
    torch.manual_seed(0)
    model = SelfAttentionTagger(vocab_size, 4, readout=readout, **(sizes | options))  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.copy_(0.7 * torch.randn_like(parameter))
    return model.eval()


def sentences(lengths: tuple[int, ...] = LENGTHS, extra: int = 0, seed: int = 0) -> TextBatch:
    """Random sentences, each by its place alone, with `extra` places of padding."""
    shape = (len(lengths), max(lengths) + extra)
    drawn = {"tokens": (4, 20), "labels": (0, 4), "pos": (1, 7), "case": (1, 5)}
    columns = {
        name: torch.zeros(shape, dtype=torch.long)
        for name in (*drawn, "characters_0", "characters_1")
    }
    for row, length in enumerate(lengths):
        random = torch.Generator().manual_seed(1000 * seed + row)
        for name, ends in drawn.items():
            columns[name][row, :length] = torch.randint(*ends, (length,), generator=random)
        # Words of 3 to 11 characters.
        for place in range(length):
            letters = torch.randint(1, 30, (int(torch.randint(3, 12, (), generator=random)),))
            for number, letter in enumerate(letters.tolist()):
                name = f"characters_{number // 8}"
                columns[name][row, place] += letter << (8 * (number % 8))
    index, tokens, labels = (
        10 + torch.arange(len(lengths)),
        *map(columns.pop, ("tokens", "labels")),
    )
    mask = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    return TextBatch(index, tokens, mask, labels.masked_fill(~mask, -100), extras=columns)

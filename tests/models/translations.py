"""Translation networks far from their start, and sources with targets of other lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from attnlight.batch import TextBatch
from attnlight.data.collate import with_targets
from attnlight.models import Seq2Seq
from tests.models.oracles import VOCABULARY, far_from_start, padded

CLASSES = 7
LUONG = ("luong", "general", "scaled_dot")
KINDS = ("additive", "general", "scaled_dot", "uniform")
# Words of source and target: more, as many and fewer target words than source words.
LENGTHS = ((3, 6), (9, 4), (5, 5), (1, 3), (7, 1))


def batch(padding: int = 0, order: Sequence[int] = (0, 1, 2, 3, 4)) -> TextBatch:
    random = torch.Generator().manual_seed(0)
    sources = [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n, _ in LENGTHS]
    targets = [[*torch.randint(1, CLASSES, (n,), generator=random).tolist(), 0] for _, n in LENGTHS]
    links = [
        [value for t in range(len(target) - 1) for value in (t, t % len(source), 1 + t % 2)]
        for source, target in zip(sources, targets, strict=True)
    ]
    chosen = list(order)
    tokens = padded([sources[n] for n in chosen], padding)
    made = TextBatch(torch.tensor(chosen) + 20, tokens, tokens != 0)
    made = with_targets(made, [targets[n] for n in chosen], [links[n] for n in chosen])
    assert made.target is not None
    wider = torch.nn.functional.pad(made.target, (0, padding), value=-100)
    return replace(
        made, target=wider, links=torch.nn.functional.pad(made.links, (0, 0, 0, padding))
    )


def model(attention: str = "additive", **options: Any) -> Seq2Seq:
    sizes = {"hidden_size": 4, "decoder_size": 8, "attention_size": 5}
    parts = (
        "encoder",
        "cell",
        "start",
        *(["combine"] if (options.get("step") or attention) in LUONG else []),
    )
    return far_from_start(
        Seq2Seq, CLASSES, torch.float64, parts, attention=attention, **sizes | options
    )

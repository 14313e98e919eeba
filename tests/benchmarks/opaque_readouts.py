"""Worst-case attention of readouts that are not affine: what is found, beside stronger searches."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from attnlight.functional.adversary import local_search
from attnlight.models.readout import OpaqueReadout, readout_of
from tests.benchmarks.measuring import Measured
from tests.benchmarks.scene import random_texts
from tests.functional.adversary.opaque_decoders import EPSILON, adversaries, by_adam, decoders

# Items, classes and hidden size of the decoders, and rows of a batch.
CELLS, BATCH = ((6, 4, 16), (12, 2, 16), (12, 6, 16), (37, 6, 128)), 16
STRONG = 96  # random attentions of the strongest search
BERT = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 50}

# From options of `opaque_adversary` to the JS of each row.
Search = Callable[..., Tensor]


def compare(search: Search, *others: Tensor) -> dict[str, Any]:
    """Gaps of a search's JS to the best that any finds, and milliseconds of CPU a row."""
    found, times = {}, {}
    for name, options in (("before", {"programs": False}), ("now", {})):
        start = process_time()
        found[name] = search(**options)
        times[name] = 1000 * (process_time() - start) / len(found[name])
    if (found["now"] < found["before"] - 1e-9).any():
        raise RuntimeError("some JS is below that without local search")
    with patch.object(local_search, "_STARTS", STRONG):
        strong = search(evaluations=None, seed=1)
    best = torch.stack([*found.values(), strong, *others]).amax(0)
    gaps = {name: best - js for name, js in found.items()}
    return {"found": found, "best": best, "gaps": gaps, "ms": times}


def described(compared: dict[str, Any]) -> str:
    """What `compare` finds, in words."""
    ways = "; ".join(
        f"{name} {compared['found'][name].mean():.3f} (gap {gap.mean():.4f}, at most {gap.max():.3f}) "
        f"in {compared['ms'][name]:.0f} ms a row"
        for name, gap in compared["gaps"].items()
    )
    return f"mean JS {compared['best'].mean():.3f} by the strongest search; {ways}"


def opaque_readouts(
    rows: int = 32, cells: tuple[tuple[int, int, int], ...] = CELLS, texts: int = 16
) -> Measured:
    """Gaps of `opaque_adversary` to the best known JS, and its processor time a row."""
    details, gaps, taken = {}, [], {}
    for items, classes, hidden in cells:
        model = decoders(rows, items, classes, hidden)
        blocks = [slice(first, first + BATCH) for first in range(0, rows, BATCH)]

        def search(**options: Any) -> Tensor:
            return torch.cat([adversaries(model, block, **options)[1] for block in blocks])  # noqa: B023

        compared = compare(search, by_adam(model))
        details[f"tanh, {items} items, {classes} classes, hidden {hidden}"] = described(compared)
        gaps.append(compared["gaps"]["now"])
        taken[items] = compared["ms"]["now"]
    for classes in (2, 3):
        readout = last_layer(classes, texts)
        heads = compare(lambda **options: readout.worst_case(EPSILON, **options)[1])  # noqa: B023
        title = f"last layer of a random BERT, {classes} classes, 2,000 evaluations a head"
        details[title] = described(heads)
    values = {
        "opaque_mean_gap": [float(gap.mean()) for gap in gaps],
        "opaque_largest_gap": [float(gap.max()) for gap in gaps],
        "opaque_short": [taken[cells[-2][0]]],
        "opaque_long": [taken[cells[-1][0]]],
    }
    return Measured(values, details)


def last_layer(classes: int, texts: int) -> OpaqueReadout:
    """The last layer of a random BERT with two heads, on texts of 24 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    from attnlight.huggingface import HuggingFaceClassifier

    torch.manual_seed(0)
    config = BertConfig(num_labels=classes, num_hidden_layers=2, **BERT)
    bert = BertForSequenceClassification(config)
    for parameter in bert.parameters():
        if parameter.ndim > 1:  # the usual weights attend almost uniformly
            torch.nn.init.normal_(parameter, std=0.3)
    model, batch = HuggingFaceClassifier(bert).eval(), random_texts(0, texts, 24, 50)
    with torch.no_grad():
        readout = readout_of(batch, model(batch), model)
    assert isinstance(readout, OpaqueReadout)
    return readout

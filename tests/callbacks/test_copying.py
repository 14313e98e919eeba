"""Tests of layers on a tagger that copies: it is known which head looks, and at which word."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnlight.callbacks import HeadAblation
from tests.callbacks import copying


def require_copying(model: Any) -> None:
    """It copies, and ablation of the known head alone prevents it."""
    batch = copying.texts(300, seed=10**6)
    assert batch.labels is not None
    output = model(batch)
    labels = batch.labels[batch.mask]
    assert float((output.logits.argmax(-1) == labels).double().mean()) > 0.99
    columns = HeadAblation().measure(batch, output, model)
    known = copying.LAYER * copying.HEADS + copying.HEAD
    for ablation in ("uniform", "shuffled", "off"):
        for measure in ("tvd", "flip_rate"):
            heads = columns[f"{measure}_head_{ablation}_by_head"].mean(0)
            others = torch.cat([heads[:known], heads[known + 1 :]])
            assert float(heads[known]) > 0.5
            assert float(others.max()) < 0.1
        layers = columns[f"tvd_layer_{ablation}_by_layer"].mean(0)
        assert int(layers.argmax()) == copying.LAYER


def test_ablation_finds_the_head() -> None:
    require_copying(copying.trained())


@pytest.mark.slow
def test_its_training_gives_such_a_model() -> None:
    require_copying(copying.train())

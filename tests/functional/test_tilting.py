"""Tilted attention, against linear programs by scipy."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.nn.functional import pad

from attnlight.functional import read
from attnlight.functional.slab import one_item_js
from attnlight.functional.tilting import tilted_attentions
from tests.functional.adversaries import KINDS, case


@pytest.mark.parametrize(
    ("kind", "classes"),
    [*itertools.product(["random", "uniform"], [2, 3, 6]), ("sharp", 2), ("sharp", 3)],
)
def test_comes_near_the_linear_program_with_the_logits_kept(kind: str, classes: int) -> None:
    weights, logits, mask = case(kind, rows=24, items=12, classes=classes)
    found = tilted_attentions(weights, logits, mask)
    own, gain = read(weights, logits), one_item_js(weights)
    solved = 0
    for row in (mask.sum(-1) > classes).nonzero().flatten().tolist():
        kept = mask[row]
        prediction = own[row].softmax(-1)
        moved = [(read(a[row], logits[row]).softmax(-1) - prediction).abs().max() for a in found]
        if max(moved) > 1e-6:
            continue
        differences = logits[row, kept] - own[row]
        best = linprog(
            -gain[row, kept].numpy(),
            A_eq=np.vstack([(differences[:, 1:] - differences[:, :1]).T, np.ones(int(kept.sum()))]),
            b_eq=np.append(np.zeros(classes - 1), 1.0),
        )
        reached = [float(a[row] @ gain[row]) for a in found]
        assert max(reached) <= -best.fun + 1e-6
        for temperature, value in zip([0.1 / 2**k for k in range(11)], reached, strict=True):
            assert value >= -best.fun - temperature * np.log(12) - 1e-6
        solved += 1
    assert solved >= (10 if classes == 2 else 5)


@pytest.mark.parametrize("kind", KINDS)
def test_is_attention(kind: str) -> None:
    weights, logits, mask = case(kind, rows=24, items=12, classes=4)
    for attention in tilted_attentions(weights, logits, mask):
        defined = attention.isfinite().all(-1)
        assert defined.all()
        assert (attention[~mask] == 0).all()
        torch.testing.assert_close(attention.sum(-1), torch.ones(24, dtype=torch.float64))


def test_padding_and_batches_change_nothing() -> None:
    weights, logits, mask = case("random", rows=12, items=12, classes=3)
    together = tilted_attentions(weights, logits, mask)
    for row in range(12):
        one = slice(row, row + 1)
        alone = tilted_attentions(
            pad(weights[one], (1, 2)), pad(logits[one], (0, 0, 1, 2)), pad(mask[one], (1, 2))
        )
        for ours, theirs in zip(alone, together, strict=True):
            torch.testing.assert_close(ours[:, 1:-2], theirs[one], rtol=0, atol=1e-8)

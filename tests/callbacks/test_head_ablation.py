"""Ablation of heads and layers against a full pass for each, and of a head that is known to count."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import HeadAblation
from attnlight.figures import tables
from attnlight.probing.interception import intercept
from attnlight.probing.patches import shuffled
from tests.bases import one_text
from tests.callbacks import copying
from tests.models.taggers import sentences, tagger
from tests.report.fake import rows_of

LAYERS, HEADS, SEED = 3, 2, 4


def weights_by_hand(kind: str, own: Tensor, allowed: Tensor, order: list[int]) -> Tensor:
    """What becomes of the weights (Q, N) of one head of a text."""
    new = torch.zeros_like(own)
    for query, may in enumerate(allowed.tolist()):
        items = [item for item, reached in enumerate(may) if reached]
        if kind == "uniform":
            new[query, items] = 1 / len(items)
        if kind == "shuffled":
            new[query, items] = own[query, [item for item in order if item in items]]
    return new


def order_of(batch: TextBatch, text: int) -> list[int]:
    """The random order of a text's items, told from weights that name their items."""
    items = int(batch.mask[text].sum())
    names = torch.arange(items).double().view(1, 1, 1, -1)
    patch = shuffled(batch.index[text : text + 1], SEED)
    return [int(name) for name in patch(names, torch.ones_like(names, dtype=torch.bool)).flatten()]


@torch.no_grad()
def by_hand(model: Any, batch: TextBatch, kind: str, chosen: set[tuple[int, int]]) -> Any:
    """Total variation distance and flips (R,) without some heads, each text read alone."""
    change, flips = [], []
    for text in range(len(batch)):
        alone = one_text(batch, text)

        def patched(layer: int, order: list[int], own: Tensor, allowed: Tensor) -> Tensor:
            new = own.clone()
            for head in range(HEADS):
                if (layer, head) in chosen:
                    new[0, head] = weights_by_hand(kind, own[0, head], allowed[0, head], order)
            return new

        order = order_of(batch, text)
        before = model(alone).probabilities
        changed = {layer for layer, _ in chosen}
        with intercept(patch={layer: partial(patched, layer, order) for layer in changed}):
            after = model(alone).probabilities
        change += ((after - before).abs().sum(-1) / 2).tolist()
        flips += (after.argmax(-1) != before.argmax(-1)).double().tolist()
    return torch.tensor([change, flips], dtype=torch.float64)


@pytest.mark.parametrize("kind", ["uniform", "shuffled", "off"])
def test_every_part_by_hand(kind: Any) -> None:
    model, batch = tagger(layers=LAYERS).double(), sentences(extra=2)
    test = HeadAblation([kind], others=True, seed=SEED)
    columns = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    of_layer = [{(layer, head) for head in range(HEADS)} for layer in range(LAYERS)]
    parts = {
        "head": torch.stack([by_hand(model, batch, kind, {one}) for one in heads], -1),
        "layer": torch.stack([by_hand(model, batch, kind, layer) for layer in of_layer], -1),
        "others": torch.stack(
            [by_hand(model, batch, kind, of_layer[one[0]] - {one}) for one in heads], -1
        ),
        "all": by_hand(model, batch, kind, set(heads)).unsqueeze(-1),
    }
    expected = {}
    for place, measure in enumerate(("tvd", "flip_rate")):
        for part, both in parts.items():
            name = f"{measure}_{part}_{kind}"
            if part != "others":
                expected[name] = both[place].mean(-1)
            if part in ("head", "others"):
                expected[f"{name}_by_head"] = both[place]
        expected[f"{measure}_layer_{kind}_by_layer"] = parts["layer"][place]
        expected[f"{measure}_last_{kind}"] = parts["layer"][place][:, -1]
    assert set(test.measures) < expected.keys()
    torch.testing.assert_close(columns, expected, atol=1e-10, rtol=0)
    assert float(columns[f"flip_rate_all_{kind}"].sum()) > 0
    assert float(columns[f"tvd_head_{kind}_by_head"].min()) >= 0


def test_shuffles_are_uniform_and_keep_what_may_be_reached() -> None:
    index, n = torch.arange(6_000), 3
    allowed = torch.ones(len(index), 1, n, n, dtype=torch.bool).tril()
    names = torch.arange(n).double().expand(len(index), 1, n, n) + 1
    found = shuffled(index, 0)(names * allowed, allowed)[:, 0]
    assert (found[:, 0] == torch.tensor([1.0, 0, 0])).all()
    assert (found[:, 1].sort().values == torch.tensor([0.0, 1, 2])).all()
    orders, counts = np.unique(found[:, 2].numpy(), axis=0, return_counts=True)
    assert len(orders) == 6
    assert (abs(counts - 1_000) < 150).all()
    half = found[:, 1, 0] == 2  # the order of two is that of all three
    swapped = (found[:, 2] == 2).int().argmax(-1) < (found[:, 2] == 1).int().argmax(-1)
    assert torch.equal(half, swapped)
    left = torch.cat([torch.zeros_like(allowed[..., :2]), allowed], dim=-1)
    padded = torch.cat([torch.zeros_like(names[..., :2]), names * allowed], dim=-1)
    assert torch.equal(shuffled(index, 0)(padded, left)[:, 0, :, 2:], found)


def test_table_names_the_strongest_head() -> None:
    rows = rows_of("head_ablation")
    rows["tvd_head_off_by_head"][:, 6] += 2
    (table,) = tables("head_ablation", rows)
    assert len(table.rows) == 12
    names = [cells[0] for cells in table.rows]
    assert "off: one head, most: head 3 of layer 2" in names
    assert all(one != other for one, other in pairwise(names))
    strongest = table.rows[names.index("off: one head, most: head 3 of layer 2")]
    mean = float(strongest[1].split()[0])
    assert mean == pytest.approx(rows["tvd_head_off_by_head"][:, 6].mean(), abs=1e-3)


def require_copying(model: Any) -> None:
    """A tagger copies, and ablation of the one head that looks at the word before prevents it."""
    batch = copying.texts(300, seed=10**6)
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


def test_ablation_finds_the_head_that_copies() -> None:
    require_copying(copying.trained())


@pytest.mark.slow
def test_training_to_copy_gives_such_a_model() -> None:
    require_copying(copying.train())

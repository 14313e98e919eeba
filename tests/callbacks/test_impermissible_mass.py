"""Attention on impermissible items, and predictions without them, against loops over texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import ImpermissibleMass
from attnlight.reference import read_base
from tests.bases import Planted, save_base
from tests.callbacks.faithfulness_loops import one_text, reduced
from tests.callbacks.token_loops import columns_of
from tests.tasks.tagged import corpus as chunks
from tests.tasks.tagged import save_tagger, written

COLUMN = "impermissible"


def marked(batch: TextBatch) -> TextBatch:
    """Some tokens are impermissible, by row and token alone: in every fourth row none."""
    table = torch.rand(1000, generator=torch.Generator().manual_seed(0)) < 0.25
    index = batch.index.view(-1, *[1] * (batch.tokens.ndim - 1))
    marks = table[(batch.tokens * 7 + index) % 1000] & batch.attendable() & (index % 4 != 0)
    return replace(batch, extras=batch.extras | {COLUMN: marks.to(torch.int8)})


def changed(batch: TextBatch, text: int, gone: Tensor, replacement: str) -> TextBatch:
    """One text of a batch without the items of `gone` (N,), or with another token in their place."""
    return reduced(one_text(batch, text), gone.nonzero().flatten().tolist(), replacement)


def measured(model: Any, batch: TextBatch, **options: Any) -> dict[str, Tensor]:
    test = ImpermissibleMass(**options)
    columns = columns_of(test, model, batch)
    assert set(test.measures) <= columns.keys()
    return columns


def test_classifier_equals_a_loop(tmp_path: Path) -> None:
    data = Planted()
    model: Any = read_base(save_base(tmp_path / "base.ckpt", data)).model.double()  # type: ignore[attr-defined]
    batch = marked(data.dataset("test")[list(range(23))])
    found = measured(model, batch)
    output, without, moved = model(batch), 0, 0
    for text in range(23):
        gone = batch.extras[COLUMN][text] > 0
        without += not gone.any()
        mass = float(output.weights[text, 0][gone].sum()) if gone.any() else float("nan")
        for name in ("mass", "max_mass"):
            assert float(found[name][text]) == pytest.approx(mass, nan_ok=True)
        share = float(gone.sum() / batch.attendable()[text].sum())
        chance = share if gone.any() else float("nan")
        assert float(found["chance"][text]) == pytest.approx(chance, nan_ok=True)
        right = bool(output.logits[text].argmax() == batch.labels[text])
        assert found["accuracy"][text] == right
        for replacement in ("delete", "unk", "pad"):
            alone = changed(batch, text, gone, replacement)
            expected = bool(model(alone).logits[0].argmax() == batch.labels[text])
            assert found[f"accuracy_{replacement}"][text] == expected
            moved += expected != right
    assert found["without_impermissible"].sum() == without > 3
    assert moved > 3


def test_tagger_keeps_its_own_token(tmp_path: Path) -> None:
    data = chunks(written(tmp_path / "chunks"))
    model: Any = read_base(save_tagger(tmp_path / "tagger.ckpt", data)).model.double()  # type: ignore[attr-defined]
    batch = marked(data.dataset("train")[list(range(20))])
    found, output, moved = measured(model, batch, replacements=["delete"]), model(batch), 0
    assert found["mass_by_head"].shape == output.weights.shape[:2]
    for row, (index, position) in enumerate(output.rows.tolist()):
        text = batch.index.tolist().index(index)
        marks = batch.extras[COLUMN][text] > 0
        by_head = output.weights[row][:, marks].sum(-1)
        if marks.any():
            torch.testing.assert_close(found["mass_by_head"][row], by_head)
            torch.testing.assert_close(found["mass"][row], by_head.mean())
            torch.testing.assert_close(found["max_mass"][row], by_head.max())
        gone = marks & (torch.arange(len(marks)) != position)
        alone = model(changed(batch, text, gone, "delete"))
        place = int((~gone[:position]).sum())
        label = int(batch.labels[text, position])
        expected = int(alone.logits[place].argmax()) == label
        assert found["accuracy_delete"][row] == expected
        moved += expected != bool(found["accuracy"][row])
    assert moved > 1


def test_sentences_with_an_impermissible_word_are_impermissible(tmp_path: Path) -> None:
    data = Planted(True, num_classes=3)
    path = save_base(tmp_path / "base.ckpt", data, hierarchical=True)
    model: Any = read_base(path).model.double()  # type: ignore[attr-defined]
    batch = marked(data.dataset("test")[list(range(23))])
    found, output = measured(model, batch), model(batch)
    for text in range(23):
        gone = (batch.extras[COLUMN][text] > 0).any(-1)
        kept = changed(batch, text, gone, "delete")
        logits = model(kept).logits[0] if kept.mask.any() else output.bias
        assert found["accuracy_delete"][text] == (logits.argmax() == batch.labels[text])
        if gone.any():
            torch.testing.assert_close(found["mass"][text], output.weights[text, 0][gone].sum())

"""Attention on impermissible items, and predictions without them, against loops over texts."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.callbacks import ImpermissibleMass
from tests.attribution.scenes import TOKENS
from tests.bases import one_text
from tests.callbacks.faithfulness_loops import reduced
from tests.callbacks.test_erased_accuracy import labelled
from tests.callbacks.token_loops import columns_of


def marked(batch: TextBatch, column: str = "impermissible") -> TextBatch:
    """Some tokens are impermissible, by row and token alone: in every fourth row none."""
    table = torch.rand(1000, generator=torch.Generator().manual_seed(0)) < 0.4
    index = batch.index.view(-1, *[1] * (batch.tokens.ndim - 1))
    marks = table[(batch.tokens * 7 + index) % 1000] & batch.attendable() & (index % 4 != 0)
    return replace(batch, extras=batch.extras | {column: marks.to(torch.int8)})


@pytest.mark.parametrize("name", ["bilstm", "han", "heads"])
@torch.no_grad()
def test_equals_a_loop(name: str) -> None:
    """A sentence with an impermissible word is impermissible; a tagger keeps its own token."""
    model, batch = labelled(name)
    batch, test, of_tokens = marked(batch), ImpermissibleMass(), name in TOKENS
    found, output, moved = columns_of(test, model, batch), model(batch), 0
    assert set(test.measures) <= found.keys()
    for row, (index, position) in enumerate(output.rows.tolist()):
        text, items = batch.index.tolist().index(index), output.mask[row]
        marks = batch.extras["impermissible"][text] > 0
        marks = (marks if marks.ndim == 1 else marks.any(-1)) & items
        by_head = output.weights[row][:, marks].sum(-1)
        expected: dict[str, Any] = {
            "mass": by_head.mean(),
            "max_mass": by_head.max(),
            "chance": marks.sum() / items.sum(),
        }
        without = not marks.any()
        if without:
            expected = dict.fromkeys(expected, nan)
        elif of_tokens:
            torch.testing.assert_close(found["mass_by_head"][row], by_head)
            marks[position] = False
        expected["without_impermissible"] = without
        gone = marks.nonzero().flatten().tolist()
        labels: Any = batch.labels[text]  # type: ignore[index]
        label = int(labels[position] if of_tokens else labels)
        for end in ("", "_delete", "_unk", "_pad"):
            place = position - sum(item < position for item in gone) * (end == "_delete")
            single = reduced(one_text(batch, text), gone if end else [], end[1:])
            if not single.mask.any():
                guess = int(output.bias.argmax())
            else:
                again = model(single)
                guess = int(again.logits[again.rows[:, 1] == place][0].argmax())
            expected[f"accuracy{end}"] = float(guess == label) if label >= 0 else nan
            moved += expected[f"accuracy{end}"] != expected["accuracy"]
        for key, value in expected.items():
            assert float(found[key][row]) == pytest.approx(float(value), nan_ok=True), key
    assert moved > 1
    assert 0 < found["without_impermissible"].sum() < len(output.rows)

"""Conicity against a loop over states, on every kind of model."""

import numpy as np
import pytest
import torch

import attnlight
from attnlight.callbacks import Conicity
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.readout import readout_of
from tests.attribution.scenes import scene
from tests.models import test_classifier as flat


@pytest.mark.parametrize(
    "name", ["bilstm", "cnn", "orthogonal_lstm", "han", "pair", "heads", "transformer", "two heads"]
)
@torch.no_grad()
def test_equals_a_loop_over_states(name: str) -> None:
    model, batch = scene(name, padding=2)
    output = model(batch)
    columns = Conicity().measure(batch, output, readout_of(batch, output, model))
    assert list(columns) == [*Conicity.measures, "items"]
    texts = range(len(batch)) if len(output.rows) == len(batch) else texts_of_rows(output.rows)
    for row, text in enumerate(texts):
        items = output.mask[row].numpy()
        states = output.states[int(text)].double().numpy()[items]
        assert columns["items"][row] == len(states)
        if len(states) < 2:
            assert all(columns[measure][row].isnan() for measure in Conicity.measures)
            continue
        mean = sum(states) / len(states)
        cosines = []
        for state in states:
            lengths = np.linalg.norm(state) * np.linalg.norm(mean)
            cosines.append(state @ mean / lengths if lengths else 0.0)
        assert columns["conicity"][row] == pytest.approx(np.mean(cosines), abs=1e-9)
        assert columns["absolute_conicity"][row] == pytest.approx(np.abs(cosines).mean(), abs=1e-9)


@torch.no_grad()
def test_it_tells_states_that_are_alike_from_others() -> None:
    """Orthogonal ones are far from each other, and an empty encoder's are the words."""
    found = {}
    for encoder in ("lstm", "orthogonal_lstm"):
        model, batch = flat.model(encoder), flat.collate(flat.corpus()[2:4])
        model.embedding.weight[4:] = model.embedding.weight[4:5] + 0.1 * model.embedding.weight[4:]
        table = attnlight.run(model, [batch], tests=[Conicity()]).table()
        found[encoder] = table.set_index("measure")["mean"]["conicity"]
    assert found["lstm"] > 0.6
    assert found["orthogonal_lstm"] < 0.5

"""States against their tokens: erasure and deletion one at a time, shares text by text."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.attribution.hidden_tokens import hidden_token_attribution
from attnlight.batch import TextBatch
from attnlight.callbacks import StateTokenAgreement
from attnlight.functional import total_variation
from tests.attribution.scenes import evaluated
from tests.callbacks.faithfulness_loops import erased as without
from tests.callbacks.token_loops import columns_of, tau
from tests.models import test_classifier as flat
from tests.models.taggers import sentences, tagger
from tests.probing.oracles import moved


@torch.no_grad()
def by_loops(model: Any, batch: TextBatch, of_items: bool = False) -> Tensor:
    """Tau (R,) of each row: erase and delete one item after the other, of a token not itself."""
    output, taus = model(batch), []
    deleted = moved(model, batch, output, of_items)
    for row, items in enumerate(output.mask):
        places, erased = items.nonzero().squeeze(-1).tolist(), []
        if of_items:
            places.remove(int(output.rows[row, 1]))
        for item in places if len(places) > 1 else []:
            after = output.logits.new_tensor(without(model, output, row, [item])).softmax(-1)
            erased.append(float(total_variation(after, output.logits[row].softmax(-1))))
        taus.append(tau(erased, deleted[row, places[: len(erased)]]))
    return torch.tensor(taus, dtype=torch.float64)


@pytest.mark.parametrize("name", ["bilstm", "cnn", "han"])
def test_equals_loops_over_items(name: str) -> None:
    model, batch, output, _ = evaluated(name, padding=2)
    columns = columns_of(StateTokenAgreement(), model, batch)
    assert list(columns) == [*StateTokenAgreement.measures, "items"]
    found = columns["tau_erasure_deletion"]
    torch.testing.assert_close(found, by_loops(model, batch), equal_nan=True)
    assert found[columns["items"] < 2].isnan().all()
    assert 0 < found.isnan().sum() < 4
    shares, _ = hidden_token_attribution(model, batch, output)
    for row, mask in enumerate(output.mask):
        items = mask.nonzero().squeeze(-1)
        largest = [int(shares[row, item].argmax()) == int(item) for item in items]
        read = len(items) if name == "han" else batch.mask[row].sum()
        mean = shares[row, items, items].mean()
        assert float(columns["hidden_token_attribution"][row]) == pytest.approx(float(mean))
        assert float(columns["own_token_largest"][row]) == pytest.approx(np.mean(largest))
        assert float(columns["chance"][row]) == pytest.approx(1 / int(read))
        assert int(columns["items"][row]) == len(items)


@pytest.mark.parametrize("readout", ["study", "residual"])
@pytest.mark.parametrize("layers", [1, 2])
def test_tokens_have_the_states_of_their_sentence(readout: str, layers: int) -> None:
    model, batch = tagger(readout, layers=layers).double(), sentences()
    columns = columns_of(StateTokenAgreement(), model, batch)
    with torch.no_grad():
        output = model(batch)
    found = columns["tau_erasure_deletion"]
    torch.testing.assert_close(found, by_loops(model, batch, of_items=True), equal_nan=True)
    assert found.isfinite().sum() > 12
    shares, _ = hidden_token_attribution(model, batch, output)
    row = 0
    for text, length in enumerate((6, 1, 4, 9)):
        mean = shares[text].diagonal()[:length].mean().expand(length)
        rows = slice(row, row + length)
        torch.testing.assert_close(columns["hidden_token_attribution"][rows], mean)
        assert columns["chance"][rows].tolist() == pytest.approx([1 / length] * length)
        row += length
    if layers == 1:
        assert columns["hidden_token_attribution"].eq(1).all()  # projected tokens
    else:
        assert columns["hidden_token_attribution"].lt(1).sum() == 19


def test_probes_give_the_mean_and_its_error() -> None:
    model, batch = flat.model("bilstm"), flat.collate(flat.corpus()[5:])
    exact, ratios = columns_of(StateTokenAgreement(), model, batch)["hidden_token_attribution"], []
    for seed in range(6):
        found = columns_of(StateTokenAgreement(probes=16, seed=seed), model, batch)
        error = found["hidden_token_attribution_error"]
        distance = found["hidden_token_attribution"] - exact
        assert distance.abs().max() < 0.05
        ratios.append((distance / error).square())
    assert float(torch.stack(ratios).mean()) == pytest.approx(1, abs=0.6)


def test_dead_states_are_left_out() -> None:
    model, batch = flat.model("conv"), flat.collate(flat.corpus()[3:7])
    with torch.no_grad():
        for layer in model.encoder.convolutions:  # type: ignore[attr-defined]
            layer.bias.sub_(2.0)
        output = model(batch)
    columns = columns_of(StateTokenAgreement(), model, batch)
    shares, _ = hidden_token_attribution(model, batch, output)
    own = shares.diagonal(dim1=1, dim2=2).masked_fill(~output.mask, torch.nan)
    assert own[output.mask].isnan().any()
    torch.testing.assert_close(
        columns["hidden_token_attribution"], own.nanmean(-1), equal_nan=True, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(("encoder", "local"), [("none", True), ("cnn", True), ("bilstm", False)])
def test_hidden_tokens_of_local_encoders_alone(encoder: str, local: bool) -> None:
    model, batch = flat.model(encoder), flat.collate(flat.corpus())
    whole, part = (
        columns_of(StateTokenAgreement(), model, batch),
        columns_of(StateTokenAgreement(hidden_tokens="local"), model, batch),
    )
    assert whole.keys() == part.keys()
    for name, values in part.items():
        if local or name in ("tau_erasure_deletion", "items"):
            torch.testing.assert_close(values, whole[name], rtol=0, atol=0, equal_nan=True)
        else:
            assert values.isnan().all()


def test_a_long_text_says_once_why_it_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attnlight.callbacks.state_token_agreement._LONG", 5)
    for options, encoder, lines in (
        ({}, "bilstm", 1),
        ({"probes": 2}, "bilstm", 0),
        ({}, "cnn", 0),
    ):
        test, model = StateTokenAgreement(**options), flat.model(encoder)  # type: ignore[arg-type]
        with torch.no_grad():
            for items in (5, 7, 8):
                batch = flat.collate([range(4, 4 + items)])
                test.measure(batch, model(batch), model)  # type: ignore[arg-type]
        told = capsys.readouterr().err
        assert told.count("\n") == lines
        assert ("7 items" in told and "probes: 16" in told) == bool(lines)

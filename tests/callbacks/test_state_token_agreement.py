"""States against their tokens: erasure and deletion one at a time, shares text by text."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.attribution.hidden_tokens import hidden_token_attribution
from attnlight.batch import AttentionModel, TextBatch
from attnlight.callbacks import StateTokenAgreement
from attnlight.models import SelfAttentionTagger
from tests.callbacks.token_loops import columns_of, tau, tokens_of
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models.taggers import sentences, tagger


def measured(model: AttentionModel, batch: TextBatch, **options: Any) -> dict[str, Tensor]:
    return columns_of(StateTokenAgreement(**options), model, batch)


def moved(logits: Tensor, before: Tensor) -> float:
    return float((logits.softmax(-1) - before.softmax(-1)).abs().sum() / 2)


@torch.no_grad()
def naive(model: AttentionModel, batch: TextBatch, row: int) -> float:
    """Tau of one text: erase and delete one item after the other."""
    alone = batch.select(torch.tensor([row]))
    output, erased, deleted = model(alone), [], []
    items = output.mask[0].nonzero().squeeze(-1).tolist()
    if len(items) < 2:
        return math.nan
    for item in items:
        weights = output.weights.clone()
        weights[..., item] = 0
        weights /= weights.sum(-1, keepdim=True)
        erased.append(moved(model.readout(output, weights.unsqueeze(2))[0, 0], output.logits[0]))
        left = [place for place in range(alone.tokens.shape[1]) if place != item]
        shorter = TextBatch(alone.index, alone.tokens[:, left], alone.mask[:, left])
        deleted.append(moved(model(shorter).logits[0], output.logits[0]))
    return tau(erased, deleted)


@pytest.mark.parametrize("name", ["bilstm", "cnn", "han"])
def test_equals_loops_over_items(name: str) -> None:
    if name == "han":
        model, batch = hierarchical.model(), hierarchical.collate(hierarchical.corpus(), 1, 2)
    else:
        model, batch = flat.model(name), flat.collate(flat.corpus()[3:9], padding=2)  # type: ignore[assignment]
    columns = measured(model, batch)
    assert list(columns) == [*StateTokenAgreement.measures, "items"]
    expected = [naive(model, batch, row) for row in range(len(batch))]
    found = columns["tau_erasure_deletion"]
    torch.testing.assert_close(found, torch.tensor(expected).double(), equal_nan=True)
    assert found[columns["items"] < 2].isnan().all()
    assert 0 < found.isnan().sum() < 4
    with torch.no_grad():
        output = model(batch)
    shares, _ = hidden_token_attribution(model, batch, output)
    for row, items in enumerate(output.mask):
        own = [shares[row, item, item] for item in items.nonzero().squeeze(-1)]
        largest = [
            int(shares[row, item].argmax()) == int(item) for item in items.nonzero().squeeze(-1)
        ]
        read = batch.mask[row].sum() if name != "han" else items.sum()
        mean = torch.stack(own).mean()
        assert float(columns["hidden_token_attribution"][row]) == pytest.approx(float(mean))
        assert float(columns["own_token_largest"][row]) == pytest.approx(np.mean(largest))
        assert float(columns["chance"][row]) == pytest.approx(1 / int(read))
        assert int(columns["items"][row]) == items.sum()


@pytest.mark.parametrize("readout", ["study", "residual"])
@pytest.mark.parametrize("layers", [1, 2])
def test_tokens_have_the_states_of_their_sentence(readout: str, layers: int) -> None:
    model, batch = tagger(readout, layers=layers).double(), sentences()
    columns = measured(model, batch)
    assert isinstance(model, SelfAttentionTagger)
    with torch.no_grad():
        output = model(batch)
    shares, _ = hidden_token_attribution(model, batch, output)
    expected, row = [], 0
    for sentence, token in tokens_of(model.requires_grad_(False), batch) if layers == 1 else ():
        own, logits = sentence.output.weights[token], sentence.output.logits[token]
        erased, deleted = [], []
        for item in range(len(sentence)):
            if item == token:
                continue
            weights = own.clone()
            weights[:, item] = 0
            weights /= weights.sum(-1, keepdim=True)
            erased.append(moved(sentence.read(token, weights), logits))
            deleted.append(moved(sentence.without(item)[token - (token > item)], logits))
        expected.append(tau(erased, deleted))
    found = columns["tau_erasure_deletion"]
    if layers == 1:
        torch.testing.assert_close(found, torch.tensor(expected).double(), equal_nan=True)
        assert found.isfinite().sum() > 12
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
    exact, ratios = measured(model, batch)["hidden_token_attribution"], []
    for seed in range(6):
        found = measured(model, batch, probes=16, seed=seed)
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
    columns = measured(model, batch)
    shares, _ = hidden_token_attribution(model, batch, output)
    own = shares.diagonal(dim1=1, dim2=2).masked_fill(~output.mask, torch.nan)
    assert own[output.mask].isnan().any()
    torch.testing.assert_close(
        columns["hidden_token_attribution"], own.nanmean(-1), equal_nan=True, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(("encoder", "local"), [("none", True), ("cnn", True), ("bilstm", False)])
def test_hidden_tokens_of_local_encoders_alone(encoder: str, local: bool) -> None:
    model, batch = flat.model(encoder), flat.collate(flat.corpus())
    whole, part = measured(model, batch), measured(model, batch, hidden_tokens="local")
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

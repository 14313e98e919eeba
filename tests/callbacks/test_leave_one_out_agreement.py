"""Somers' D of attention and leave-one-out against a loop over texts and words."""

import math

import pytest
import torch
from scipy.stats import somersd

from attnlight.attribution import Occlusion
from attnlight.batch import NOT_ALLOWED
from attnlight.callbacks import LeaveOneOutAgreement
from tests.attribution.scenes import scene
from tests.bases import one_text
from tests.callbacks.faithfulness_loops import reduced
from tests.callbacks.test_importance_correlation import long_texts
from tests.callbacks.test_measured_use import agreement, odds
from tests.callbacks.token_loops import columns_of
from tests.data.test_word_sampler import word_sampler
from tests.models import test_classifier as flat


@pytest.mark.parametrize("name", ["bilstm", "han", "affine pair"])
@torch.no_grad()
def test_equals_a_loop(name: str) -> None:
    model, batch = scene(name)
    found, compared = columns_of(LeaveOneOutAgreement(), model, batch), 0
    for number in range(len(batch)):
        text = one_text(batch, number)
        output = model(text)
        places = output.mask[0].nonzero().flatten().tolist()
        choices = int((output.logits[0] > NOT_ALLOWED).sum())
        if len(places) < 2 or choices < 2:
            assert math.isnan(found["somers_d_attention"][number])
            continue
        target = int(output.logits[0].argmax())
        start = odds(output.logits[0], target)
        shorter = [reduced(text, [place], "delete") for place in places]
        effects = [start - odds(model(one).logits[0], target) for one in shorter]
        weights = output.weights[0].double().mean(0)[places].tolist()
        sizes, largest = [abs(x) for x in effects], max(map(abs, effects))
        expected = agreement(weights, sizes)
        assert found["somers_d_attention"][number] == pytest.approx(expected, abs=1e-6, nan_ok=True)
        assert found["largest_effect"][number] == pytest.approx(largest, abs=1e-6)
        assert found["log_odds"][number] == pytest.approx(start, abs=1e-6)
        assert found["supporting"][number] == sum(x > 0.1 * largest for x in effects)
        neutral = min(float(torch.tensor(effects).double().nanmedian()), 0.0)
        pairs = zip(weights, effects, strict=True)
        opposing = sum(w for w, x in pairs if x < neutral - 0.1 * largest)
        assert found["opposing_mass"][number] == pytest.approx(opposing, abs=1e-6)
        compared += 1
    assert compared >= 2


def test_resampled_words_on_some_texts_alone() -> None:
    """Where words are resampled the agreement is with the effects of `Occlusion` by resampling."""
    model, batch = scene("bilstm")
    test = LeaveOneOutAgreement(least=0.0, resampled_texts=2, resamples=3, seed=4)
    test._resampling.word_sampler = word_sampler()
    output = model(batch)
    longest = output.mask.sum(-1).argsort()[-2:]
    test._resampled = batch.index[longest]
    found = torch.as_tensor(columns_of(test, model, batch)["resampled_somers_d_attention"])
    assert (~found.isnan()).nonzero().flatten().tolist() == sorted(longest.tolist())
    occlusion = Occlusion(replacement="resample", resamples=3, seed=4)
    occlusion.word_sampler = word_sampler()
    effects = occlusion(model, batch, output, output.logits.argmax(-1)).abs()
    for row in longest.tolist():
        items = output.mask[row]
        pair = (values[row, items].tolist() for values in (effects, output.weights[:, 0]))
        assert found[row] == pytest.approx(somersd(*pair).statistic, abs=1e-6)


def test_a_method_that_the_model_lacks_is_undefined() -> None:
    model, batch = scene("opaque heads")
    found = columns_of(LeaveOneOutAgreement(), model, batch)
    missing = {name: torch.as_tensor(values).isnan() for name, values in found.items()}
    assert missing["somers_d_attention_value_norm"].all()
    assert not missing["somers_d_attention"].all()


def test_sampled_positions_estimate_what_all_of_them_give() -> None:
    model, batch = flat.model("bilstm"), flat.collate(long_texts())
    whole = columns_of(LeaveOneOutAgreement(least=0.0), model, batch)
    found = [
        columns_of(LeaveOneOutAgreement(least=0.0, positions=24, seed=seed), model, batch)
        for seed in range(20)
    ]
    for name, bound in (("somers_d_attention", 0.05), ("supporting", 4), ("log_odds", 1e-9)):
        values = torch.stack([columns[name] for columns in found])
        torch.testing.assert_close(values[:, 0], whole[name][0].expand(20))  # of 12 words
        assert (values.mean(0) - whole[name]).abs().max() < bound
    assert all((x["largest_effect"] <= whole["largest_effect"] + 1e-9).all() for x in found)
    assert all((x["opposing_mass"] <= 1).all() for x in found)

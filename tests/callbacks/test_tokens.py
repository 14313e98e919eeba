"""Every test on a tagger, whose rows are tokens, against loops over tokens."""

import itertools

import numpy as np
import pytest
import torch

from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    GradientSearch,
    ImportanceCorrelation,
    SingleErasure,
)
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.models import SelfAttentionTagger
from tests.callbacks.token_loops import columns_of, loop_of, paired, tokens_of
from tests.models.taggers import sentences, tagger

LENGTHS = (5, 1, 4, 6)
READOUTS = ("study", "residual")
LOOPS = [
    AttentionPermutation(draws=7, head_draws=4, seed=3),
    SingleErasure(),
    DecisionFlip(draws=3, seed=2),
    ImportanceCorrelation(),
]


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are treated as the many of a tagger's batch are."""
    monkeypatch.setattr("attnlight.models.readout.base._UNSPLIT_ROWS", 0)
    monkeypatch.setattr("attnlight.functional.erasure.flips._UNSCREENED", 0)


@pytest.fixture(params=READOUTS)
def model(request: pytest.FixtureRequest) -> SelfAttentionTagger:
    return tagger(request.param).double().requires_grad_(False)


@pytest.mark.parametrize("test", LOOPS, ids=lambda test: test.name)
def test_a_test_equals_its_loops(model: SelfAttentionTagger, test: InterpretabilityTest) -> None:
    batch = sentences(LENGTHS)
    columns, tokens = columns_of(test, model, batch), tokens_of(model, batch)
    # The minimum's other columns follow from which set it is, and equal sizes leave a choice.
    logged = {name for name in test.measures if not name.endswith("_minimal")}
    found = list(itertools.starmap(loop_of(test), tokens))
    assert logged <= set(found[0])
    ours, theirs = torch.tensor(paired(columns, found), dtype=torch.float64).T
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-9, equal_nan=True)
    assert len(ours) > 16 * len(logged)
    assert ours.nan_to_num().unique().numel() > 8


def test_programs_are_for_one_token_of_each_sentence(model: SelfAttentionTagger) -> None:
    batch = sentences(LENGTHS)
    found = columns_of(AdversarialAttention(epsilon=0.05), model, batch)
    every = columns_of(AdversarialAttention(epsilon=0.05, program_instances=0), model, batch)
    with torch.no_grad():
        output = model(batch)
    kept = ~found["worst_js"].isnan()
    index, position = output.rows[kept].unbind(-1)
    counts = output.rows[~every["worst_js"].isnan(), 0].unique()
    assert torch.equal(index, counts)
    assert len(position.unique()) > 1
    assert (found["worst_js_by_head"] >= every["worst_js_by_head"] - 1e-12)[kept].all()
    assert (found["worst_tvd_by_head"][kept] <= 0.05 + 1e-9).all()


@pytest.mark.parametrize("search", [False, GradientSearch(starts=2, steps=10)])
def test_adversaries_in_parts_are_those_of_all_rows(
    model: SelfAttentionTagger, monkeypatch: pytest.MonkeyPatch, search: GradientSearch | bool
) -> None:
    """Parts begin and end within sentences, and one holds no row of the first of them."""
    test = AdversarialAttention(search=search)
    batch = sentences(LENGTHS)
    whole = columns_of(test, model, batch)
    monkeypatch.setattr("attnlight.callbacks.adversarial_attention.WEIGHTS", 7 * 2 * max(LENGTHS))
    parts = columns_of(test, model, batch)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6, equal_nan=True)


def test_scores_leave_out_the_deleted_token_itself() -> None:
    model, batch = tagger("residual").double(), sentences((4,))
    found = columns_of(ImportanceCorrelation(keep_scores=True), model, batch)
    undefined = np.isnan(found["scores_loo"].to_pylist())  # type: ignore[attr-defined]
    assert np.array_equal(undefined, np.eye(4))

"""Models whose tokens attend only to tokens of their kind (Pruthi et al. 2020)."""

from typing import Any

import pytest
import torch

from attnlight.attribution.alti import attention_block
from attnlight.attribution.value_zeroing import changes_of_states
from attnlight.batch import IMPERMISSIBLE, TextBatch
from attnlight.errors import InputError
from attnlight.probing.interception import intercept
from attnlight.probing.layers import layer_calls
from attnlight.probing.patches import among
from tests.bases import one_text
from tests.huggingface.models import assert_near
from tests.huggingface.test_classifier import built, classifier, texts


def marked(**options: Any) -> TextBatch:
    batch = texts(**options)
    batch.extras[IMPERMISSIBLE] = ((batch.tokens % 3 == 0) & batch.attendable()).to(torch.int8)
    return batch


def reached(batch: TextBatch) -> torch.Tensor:
    """What each token may attend to, (B, N, N), by a loop."""
    found = torch.zeros(*batch.mask.shape, batch.mask.shape[1], dtype=torch.bool)
    kind = batch.extras[IMPERMISSIBLE]
    for text, real in enumerate(batch.mask):
        places = real.nonzero().flatten().tolist()
        for query in range(batch.mask.shape[1]):
            for item in places:
                same = kind[text, query] == kind[text, item] and item != places[0]
                found[text, query, item] = query == places[0] or bool(same)
    return found


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert"])
def test_equals_eager_attention_with_a_mask(name: str) -> None:
    batch = marked()
    model = classifier(name, information_flow="restricted")
    eager = built(name, num_labels=3)
    eager.set_attn_implementation("eager")
    allowed = reached(batch)
    allowed = allowed | ~allowed.any(-1, keepdim=True)  # padding, whose states nothing reads
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    expected = eager(batch.tokens, attention_mask=mask.unsqueeze(1)).logits
    assert_near(model(batch).logits, expected)
    assert (model(batch).logits - classifier(name)(batch).logits).abs().max() > 1e-2


def test_nothing_flows_round_the_row() -> None:
    batch = marked()
    model = classifier("bert", information_flow="restricted")
    embeddings = model.embed(batch).detach().requires_grad_()
    impermissible = batch.extras[IMPERMISSIBLE] > 0
    states = model(batch, embeddings=embeddings).states
    own = batch.mask & ~impermissible
    own[:, 0] = False
    (gradient,) = torch.autograd.grad(states[own].square().sum(), embeddings)
    assert gradient[impermissible].abs().max() < 1e-9  # rounding of the softmax
    assert gradient[own].abs().min() > 0


def test_candidates_equal_full_passes() -> None:
    batch = marked()
    model = classifier("bert", information_flow="restricted", special_tokens="attended")
    output = model(batch)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(output.weights.shape, generator=generator) * output.mask.unsqueeze(1)
    weights = weights / weights.sum(-1, keepdim=True)
    last = len(model.attention_layers) - 1
    patch = among(reached(batch).unsqueeze(1))

    def changed(given: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        kept = patch(given, allowed).clone()
        kept[:, :, 0] = weights
        return kept

    with intercept(patch={n: patch for n in range(last)} | {last: changed}):
        expected = model.transformer(batch.tokens, attention_mask=batch.mask.long()).logits
    assert_near(model.readout(output, weights.unsqueeze(2)).squeeze(1), expected)


def test_weights_of_zero_become_equal() -> None:
    weights = torch.tensor([[[[1.0, 0.0, 0.0, 0.0]]]])
    allowed = torch.tensor([[[[True, True, True, False]]]])
    keeps = torch.tensor([[[[False, True, True, True]]]])
    assert among(keeps)(weights, allowed).tolist() == [[[[0.0, 0.5, 0.5, 0.0]]]]


def test_corpus_without_the_column() -> None:
    with pytest.raises(
        InputError, match="information_flow is restricted, but the corpus has no column"
    ):
        classifier("bert", information_flow="restricted")(texts())


def test_guided_variants_are_refused() -> None:
    with pytest.raises(InputError, match="--model huggingface_pooled"):
        type(classifier("bert")).guided_net({}, guide="base", context=None, query_key=False)


@pytest.mark.parametrize("text", range(3))
def test_layers_that_are_computed_again_keep_the_flow(text: int) -> None:
    """No token has a share in the state of a token that it does not reach."""
    model = classifier("bert", information_flow="restricted")
    alone = one_text(marked(), text)
    apart = ~(reached(alone)[0] | torch.eye(len(alone.tokens[0]), dtype=torch.bool))
    calls = layer_calls(model, alone, "alti")
    for matrices in (
        [changes_of_states(call) for call in calls],
        [attention_block(call).contributions()[0] for call in calls],
    ):
        assert len(matrices) == len(calls)
        for matrix in matrices:
            assert apart.any()
            assert matrix[apart].abs().max() < 1e-6
            assert matrix[~apart].max() > 1e-3

"""Gradient times embedding, against derivatives of probabilities and finite differences."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from attnlight.batch import NOT_ALLOWED, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models import ENCODERS
from attnlight.probing.input_gradient import input_gradient
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models.taggers import sentences, tagger
from tests.turns import by_turns


def published(
    model: AttentionModel, batch: TextBatch, output: AttentionOutput, detached: bool
) -> Tensor:
    """|sum over E of dp_c / dE_e E_e|, summed over classes c, by the Jacobian: (B, N) or (B, S, N).

    Divided by 1 - p of the winner, as `input_gradient` is.
    """
    embeddings = model.embed(batch).detach()
    weights = output.weights if detached else None

    def probabilities(values: Tensor) -> Tensor:
        return model(batch, weights=weights, embeddings=values).logits.softmax(-1)

    jacobian = torch.autograd.functional.jacobian(probabilities, embeddings)  # type: ignore[no-untyped-call]
    texts = torch.arange(len(batch))
    own = jacobian[texts, :, texts]  # (B, C, ..., E)
    effects = (own * embeddings.unsqueeze(1)).sum(-1)
    if effects.ndim == 4:
        effects = (effects * batch.attendable().unsqueeze(1)).sum(-1)
    rest = 1 - output.logits.softmax(-1).amax(-1, keepdim=True)
    return (effects.abs().sum(1) / rest).detach().masked_fill(~output.mask, 0.0)


@pytest.mark.parametrize(
    ("encoder", "classes", "detached"), by_turns(product(ENCODERS, (2, 4)), (True, False))
)
def test_equals_the_derivatives_of_probabilities(
    encoder: str, classes: int, detached: bool
) -> None:
    model = flat.model(encoder, classes=classes)
    batch = flat.collate(flat.corpus()[:6], padding=2)
    output = model(batch)
    found = input_gradient(model, batch, output, detached=detached)
    expected = published(model, batch, output, detached)
    assert expected.max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    assert (found[~output.mask] == 0).all()
    assert not found.requires_grad


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_predicted_class_takes_one_backward_pass(
    classes: int, detached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = flat.model("bilstm", classes=classes)
    batch = flat.collate(flat.corpus()[:6], padding=2)
    output = model(batch)
    embeddings, texts = model.embed(batch).detach(), torch.arange(len(batch))
    weights, winner = output.weights if detached else None, output.logits.argmax(-1)

    def odds(values: Tensor) -> Tensor:
        shares = model(batch, weights=weights, embeddings=values).logits.softmax(-1)
        return torch.logit(shares[texts, winner])

    jacobian = torch.autograd.functional.jacobian(odds, embeddings)[texts, texts]  # type: ignore[no-untyped-call]
    expected = (jacobian * embeddings).sum(-1).abs().masked_fill(~output.mask, 0.0)
    passes, grad = [], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: passes.append(1) or grad(*a, **k))
    found = input_gradient(model, batch, output, detached=detached, classes="predicted")
    assert len(passes) == 1
    assert expected.max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_sentence_has_the_sum_of_its_words(classes: int, detached: bool) -> None:
    model = hierarchical.model(classes=classes)
    batch = hierarchical.collate(hierarchical.corpus()[:5], sentences=1)
    output = model(batch)
    found = input_gradient(model, batch, output, detached=detached)
    expected = published(model, batch, output, detached)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_finite_differences_of_the_log_odds() -> None:
    """For two classes: each item's share of the derivative as its embedding is scaled."""
    model, batch = flat.model("bilstm"), flat.collate(flat.corpus()[:4])
    output = model(batch)
    found = input_gradient(model, batch, output, detached=True)
    embeddings = model.embed(batch).detach()
    winner = output.logits.softmax(-1).amax(-1).detach()

    def log_odds(values: Tensor) -> Tensor:
        logits = model(batch, weights=output.weights, embeddings=values).logits.detach()
        return logits[:, 1] - logits[:, 0]

    step = 1e-5
    for place in range(embeddings.shape[1]):
        nudge = torch.zeros_like(embeddings)
        nudge[:, place] = step * embeddings[:, place]
        slope = (log_odds(embeddings + nudge) - log_odds(embeddings - nudge)) / (2 * step)
        expected = (2 * winner * slope.abs()).masked_fill(~output.mask[:, place], 0.0)
        torch.testing.assert_close(found[:, place], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_certain_prediction_is_ranked_as_one_in_doubt(classes: int) -> None:
    """Where the sigmoid is flat in float32, Jain and Wallace's own division is 0 / 0."""
    batch = flat.collate(flat.corpus())
    model = flat.model("cnn", classes=classes, dtype=torch.float32)
    doubtful = input_gradient(model, batch, model(batch))
    with torch.no_grad():
        model.decoder.bias[-1] += 300
    output = model(batch)
    assert (output.logits.softmax(-1).amax(-1) == 1).all()
    certain = input_gradient(model, batch, output)
    assert (certain.sum(-1) > 0).all()
    if classes == 2:
        scaled = [x / x.sum(-1, keepdim=True) for x in (doubtful, certain)]
        torch.testing.assert_close(*scaled, rtol=1e-4, atol=1e-6)


def test_logits_that_are_not_finite_are_undefined_for_their_text_alone() -> None:
    model, texts = flat.model("bilstm", classes=3), flat.corpus()
    clean = input_gradient(model, flat.collate(texts), model(flat.collate(texts)))
    with torch.no_grad():
        model.embedding.weight[59] = torch.nan
    bad = torch.tensor([59 in text for text in texts])
    assert 0 < bad.sum() < len(texts)
    batch = flat.collate(texts)
    output = model(batch)
    found = input_gradient(model, batch, output)
    assert found[bad].isnan().equal(output.mask[bad])
    torch.testing.assert_close(found[~bad], clean[~bad])


def test_rows_that_are_not_texts_are_refused() -> None:
    model, batch = flat.model(), flat.collate(flat.corpus())
    output = model(batch)
    with pytest.raises(InputError, match="one row per text"):
        input_gradient(model, batch, replace(output, rows=output.rows.flip(0)))


def test_blocks_of_tokens_see_all_of_their_query_and_their_classes() -> None:
    """Queries longer and shorter than the texts; a token of one class has no gradient."""
    queries = torch.arange(4 * 9).view(4, 9)
    allowed = torch.ones(4, 4, dtype=torch.bool)
    allowed[0, 1:] = False
    seen = []

    class Asked(torch.nn.Module):
        tagger = tagger().double()
        embed, readout = tagger.embed, tagger.readout

        def forward(
            self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
        ) -> AttentionOutput:
            seen.append((batch.index, batch.query, batch.tokens.shape[1]))
            output = self.tagger(replace(batch, query=None), weights, embeddings)
            text = (output.rows[:, :1] == batch.index).int().argmax(-1)
            off = ~batch.allowed_classes[text]
            return replace(output, logits=output.logits.masked_fill(off, NOT_ALLOWED))

    batch = replace(
        sentences((6, 1, 4, 600)), query=queries, query_mask=queries >= 0, allowed_classes=allowed
    )
    model = Asked()
    output = model(batch)
    found = input_gradient(model, batch, output)
    assert {length for *_, length in seen} == {6, 600}
    for index, query, _ in seen:
        assert torch.equal(query, queries[index - 10])
    only = output.rows[:, 0] == 10
    assert (found[only] == 0).all()
    assert (found[~only & (output.mask.sum(-1) > 1)].sum(-1) > 0).all()

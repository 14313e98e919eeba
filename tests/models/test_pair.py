"""What classifiers of pairs alone do: queries, allowed classes, shared embeddings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from attnlight.batch import BOS, EOS, TextBatch
from attnlight.models import ENCODERS, PairClassifier
from attnlight.models.readout import readout_of
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from tests.models.oracles import VOCABULARY, far_from_start, padded

Pair = tuple[list[int], list[int], list[int]]  # ids of passage and query, and allowed classes
CLASSES = 4
DECODERS = ("tanh", "affine")


def corpus(boundaries: bool = True, classes: int = CLASSES) -> list[Pair]:
    """Passages of 1 to 16 words and queries of 1 to 8, each with its allowed classes."""
    random = torch.Generator().manual_seed(0)
    pairs = []
    for number, length in enumerate([1, 2, 16, 5, 14, 9, 12]):
        sizes = (length, 1 + (3 * number) % 8)
        ids = [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n in sizes]
        ids = [[BOS, *words, EOS] for words in ids] if boundaries else ids
        allowed = [c for c in range(classes) if number % 3 == 0 or c in (1, number % classes)]
        pairs.append((ids[0], ids[1], [number % classes] if number == 4 else allowed))
    return pairs


def collate(
    pairs: list[Pair], padding: tuple[int, int] = (0, 0), classes: int = CLASSES
) -> TextBatch:
    tokens, query = (padded([pair[n] for pair in pairs], padding[n]) for n in (0, 1))
    allowed = torch.tensor([[c in pair[2] for c in range(classes)] for pair in pairs])
    index = torch.arange(len(pairs)) + 100
    pair_columns = {"query": query, "query_mask": query != 0, "allowed_classes": allowed}
    return TextBatch(index, tokens, tokens != 0, **pair_columns)


def model(
    encoder: str = "bilstm",
    attention: str = "additive",
    decoder: str = "tanh",
    classes: int = CLASSES,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> PairClassifier:
    kinds = {"encoder": encoder, "attention": attention, "decoder": decoder}
    parts = ("encoder", "query_encoder", "attention")
    return far_from_start(PairClassifier, classes, dtype, parts, **kinds | options)


@torch.no_grad()
def test_a_candidate_of_tanh_reads_the_projected_states_alone() -> None:
    made, batch = model(), collate(corpus())
    output = made(batch)
    weights = output.weights.unsqueeze(2)
    expected = made.readout(output, weights)
    assert output.memory["projected"].shape == (*batch.tokens.shape, made.decoder.out_features)
    blind = replace(output, states=torch.full_like(output.states, torch.nan))
    assert torch.equal(made.readout(blind, weights), expected)
    trained = made.train()(batch)
    assert "projected" not in trained.memory
    assert trained.item_logits is None
    torch.testing.assert_close(made.readout(trained, weights), expected)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("classes", [2, CLASSES])
def test_one_allowed_class_is_certain_and_nothing_is_nan(decoder: str, classes: int) -> None:
    made = model(decoder=decoder, classes=classes)
    batch = collate([(p, q, [1]) for p, q, _ in corpus(classes=classes)], (2, 2), classes)
    output = made(batch)
    assert (output.probabilities[:, 1] == 1).all()
    real = output.mask & (output.mask.sum(-1, keepdim=True) > 1)
    with torch.no_grad():
        assert (leave_one_out(made, batch, output)[real] == 0).all()
        readout = readout_of(batch, output, made)
        assert (readout.erase()[output.mask].argmax(-1) == 1).all()
        order = output.mask.byte().argsort(-1, descending=True)
        assert (readout.first_flips(order[:, None]) == -1).all()
    assert input_gradient(made, batch, output).isfinite().all()
    assert readout.gradient().isfinite().all()
    embeddings = made.embed(batch).detach().requires_grad_()
    made(batch, embeddings=embeddings).logits.softmax(-1).square().sum().backward()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_an_empty_query_is_a_vector_of_zeros(encoder: str) -> None:
    made, pairs = model(encoder), corpus(boundaries=False)
    batch = collate(pairs)
    batch.query[1], batch.query_mask[1] = 0, False
    output = made(batch)
    assert (output.memory["query"][1] == 0).all()
    assert output.logits.isfinite().all()
    assert (output.weights.sum(-1) - 1).abs().max() < 1e-12
    nothing = replace(batch, query=batch.query[:, :1], query_mask=batch.query_mask[:, :1] & False)
    assert (made(nothing).memory["query"] == 0).all()

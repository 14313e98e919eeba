"""Leave-one-out by what a deletion changes, against encoding each shortened text anew."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier
from attnlight.models import deletion as deletion_module
from attnlight.models.deletion import resumable
from attnlight.probing.leave_one_out import leave_one_out, left_out_logits, reencode
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
DTYPES = list(TOLERANCE)
COMBINATIONS = [*itertools.product(ENCODERS, ["additive"]), ("cnn", "dot"), ("bilstm", "uniform")]


def every_length(boundaries: bool = True) -> TextBatch:
    """Texts of 1 to 60 words, in no order."""
    random = torch.Generator().manual_seed(0)
    lengths = (torch.randperm(60, generator=random) + 1).tolist()
    texts = [torch.randint(4, 60, (n,), generator=random).tolist() for n in lengths]
    return flat.collate([[BOS, *text, EOS] for text in texts] if boundaries else texts, padding=2)


def read(model: nn.Module, batch: TextBatch) -> AttentionOutput:
    with torch.no_grad():
        output: AttentionOutput = model(batch)
    return output


def agree(found: Tensor, expected: Tensor) -> None:
    """The same probabilities, undefined at the same places."""
    assert found.dtype == expected.dtype
    torch.testing.assert_close(
        found.softmax(-1),
        expected.softmax(-1),
        rtol=0,
        atol=TOLERANCE[found.dtype],
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("encoder", "attention"), COMBINATIONS)
def test_equals_a_loop_over_lists(encoder: str, attention: str, dtype: torch.dtype) -> None:
    model, texts = flat.model(encoder, attention, classes=3, dtype=dtype), flat.corpus()
    batch = flat.collate(texts, padding=3)
    output = read(model, batch)
    found = leave_one_out(model, batch, output)
    own = output.logits.double().softmax(-1)
    expected = torch.zeros_like(found)
    for row, text in enumerate(texts):
        for place in range(1, len(text) - 1):
            alone = flat.collate([text[:place] + text[place + 1 :]])
            moved = read(model, alone).logits.double().softmax(-1) - own[row]
            expected[row, place] = moved.abs().sum() / 2 if len(text) > 3 else torch.nan
    assert expected.nan_to_num().max() > 0.05
    atol = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=atol, equal_nan=True)


@pytest.mark.parametrize("boundaries", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_equals_encoding_anew_at_every_length(
    encoder: str, dtype: torch.dtype, boundaries: bool
) -> None:
    model, batch = flat.model(encoder, dtype=dtype), every_length(boundaries)
    output = read(model, batch)
    found = left_out_logits(model, batch, output, budget=700)
    with torch.no_grad():
        expected = reencode(model, batch, output, budget=5000)
    assert expected.isnan().any(-1).equal(~output.mask | (output.mask.sum(-1, True) == 1))
    agree(found, expected)


@pytest.mark.parametrize(("encoder", "attention"), hierarchical.COMBINATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sentences_equal_encoding_anew(encoder: str, attention: str, dtype: torch.dtype) -> None:
    model = hierarchical.model(encoder, attention, dtype=dtype)
    texts = hierarchical.corpus()
    texts[2][3] = [BOS, EOS]  # between others, and read as if it were not there
    batch = hierarchical.collate(texts, sentences=2, words=1)
    output = read(model, batch)
    found = left_out_logits(model, batch, output, budget=8)
    with torch.no_grad():
        agree(found, reencode(model, batch, output, budget=100))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_sentences_equal_texts_that_lack_them(encoder: str) -> None:
    model, texts = hierarchical.model(encoder), hierarchical.corpus()
    batch = hierarchical.collate(texts)
    output = read(model, batch)
    found = left_out_logits(model, batch, output)
    for row, text in enumerate(texts):
        for place in range(len(text)):
            shortened = text[:place] + text[place + 1 :]
            if shortened:
                alone = read(model, hierarchical.collate([shortened]))
                agree(found[row, place, None], alone.logits)
            else:
                assert found[row, place].isnan().all()


@pytest.mark.parametrize("encoder", ["bilstm", "cnn", "average"])
def test_batch_padding_order_and_budget_change_nothing(encoder: str) -> None:
    model, texts = flat.model(encoder, classes=4), flat.corpus()
    whole = flat.collate(texts)
    found = left_out_logits(model, whole, read(model, whole), budget=1)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1)).tolist()
    turned = flat.collate([texts[i] for i in order], padding=5)
    other = left_out_logits(model, turned, read(model, turned), budget=300)
    agree(other[:, : found.shape[1]], found[order])
    assert other[:, found.shape[1] :].isnan().all()
    for row, text in enumerate(texts):
        alone = flat.collate([text])
        agree(left_out_logits(model, alone, read(model, alone))[0], found[row, : len(text)])


@pytest.mark.parametrize("encoder", ENCODERS)
def test_no_shortened_text_is_encoded_whole(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast path is taken, and encodes at most the budget at once."""
    model, batch = flat.model(encoder), every_length()
    output, sizes = read(model, batch), []
    original = type(model.encoder).forward

    def counted(self: nn.Module, embeddings: Tensor, mask: Tensor) -> Tensor:
        sizes.append(mask.numel())
        return original(self, embeddings, mask)

    monkeypatch.setattr(type(model.encoder), "forward", counted)
    left_out_logits(model, batch, output, budget=200)
    encoded_anew = sum((output.mask.sum(-1) * batch.mask.sum(-1)).tolist())
    assert sum(sizes) < encoded_anew / 2
    assert max(sizes, default=0) <= 200


def test_an_attention_that_context_cannot_explain_is_encoded_anew() -> None:
    class Middle(ATTENTIONS["uniform"]):  # type: ignore[misc]
        """All weight on the token in the middle of the text, which a deletion moves."""

        def forward(
            self, states: Tensor, mask: Tensor, query: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            middle = (mask.sum(-1) + 1) // 2
            weights = torch.eye(mask.shape[1], dtype=states.dtype)[middle] * mask
            return weights, weights

    class Louder(FlatClassifier):
        def forward(self, *args: object, **options: object) -> AttentionOutput:
            output = super().forward(*args, **options)  # type: ignore[arg-type]
            return replace(output, logits=output.logits + output.mask.sum(-1, keepdim=True) / 10)

    batch = flat.collate(flat.corpus())
    moved = flat.model("bilstm")
    moved.attention = Middle(32)
    louder = flat.model("bilstm")
    louder.__class__ = Louder
    for model in (moved, louder):
        output = read(model, batch)
        with torch.no_grad():
            expected = reencode(model, batch, output, budget=5000)
        assert torch.equal(left_out_logits(model, batch, output).isnan(), expected.isnan())
        torch.testing.assert_close(
            left_out_logits(model, batch, output), expected, rtol=0, atol=1e-10, equal_nan=True
        )


def test_networks_of_other_shapes_are_not_resumed() -> None:
    def known(model: FlatClassifier) -> bool:
        return resumable(model.encoder, model.attention)

    assert known(flat.model("bilstm"))
    assert known(flat.model("cnn"))
    for network in (
        nn.LSTM(5, 4, num_layers=2),
        nn.LSTM(5, 4, bidirectional=True),
        nn.LSTM(5, 4, bias=False),
        nn.LSTM(5, 4, proj_size=2),
        nn.RNN(5, 4),
    ):
        other = flat.model("bilstm")
        other.encoder.backwards = network
        assert not known(other)


def test_a_text_that_is_not_finite_leaves_the_others_alone() -> None:
    model, texts = flat.model("bilstm"), flat.corpus()
    with torch.no_grad():
        model.embedding.weight[59] = torch.nan
    bad = [59 in text for text in texts]
    assert 0 < sum(bad) < len(texts)
    batch = flat.collate(texts)
    found = leave_one_out(model, batch, read(model, batch))
    clean = flat.collate([text for text, broken in zip(texts, bad, strict=True) if not broken])
    rows = torch.tensor([not broken for broken in bad])
    expected = leave_one_out(model, clean, read(model, clean))
    torch.testing.assert_close(
        found[rows, : expected.shape[1]], expected, rtol=0, atol=1e-10, equal_nan=True
    )


@pytest.mark.parametrize("encoder", ["cnn", "bigru"])
def test_memory_of_a_block_is_bounded(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No block holds more than its share of the budget, and a long text comes in several."""
    model, batch = flat.model(encoder), every_length()
    output, sizes, states = read(model, batch), [], []
    softmax, score = deletion_module.masked_softmax, type(model.attention).score

    def counted(scores: Tensor, mask: Tensor) -> Tensor:
        sizes.append(scores.numel())
        return softmax(scores, mask)

    def scored(self: nn.Module, values: Tensor, query: Tensor | None) -> Tensor:
        states.append(values.shape[:2].numel())
        return score(self, values, query)

    monkeypatch.setattr(deletion_module, "masked_softmax", counted)
    monkeypatch.setattr(type(model.attention), "score", scored)
    left_out_logits(model, batch, output, budget=400)
    assert max(sizes) <= 8 * 400
    assert len(sizes) > len(batch) / 4
    assert max(states) <= 400
    if encoder == "bigru":  # several steps of several texts at a time
        assert len(states) < 3 * sum(states) / 100

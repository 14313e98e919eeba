"""The tagger: what its rows are, that its algebra holds, and that batches change nothing."""

from typing import Any

import numpy as np
import pytest
import torch

from attnlight.batch import AttentionModel
from attnlight.functional import read
from attnlight.functional._cpu import Budget
from attnlight.functional.readout.instances import texts_of_rows
from tests.bases import one_text
from tests.functional.test_masked_entmax import bisected
from tests.models.oracles import SPARSE, compare
from tests.models.taggers import FEATURES, LENGTHS, READOUTS, sentences, tagger

KINDS: dict[str, dict[str, Any]] = {
    "study": {"readout": "study", "features": FEATURES},
    "text": {"readout": "text"},
    "residual": {"readout": "residual", "features": {"case": 5}},
    "deep study": {"readout": "study", "layers": 3},
    "deep text": {"readout": "text", "layers": 2},
    "sparse": {"readout": "residual", "normalizer": "entmax15"},
    "bilstm": {"readout": "residual", "encoder": "bilstm", "features": FEATURES},
    "bilstm study": {"readout": "study", "encoder": "bilstm", "layers": 2},
}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_rows_are_the_real_tokens(kind: str) -> None:
    model, batch = tagger(**KINDS[kind]), sentences(extra=3)
    assert isinstance(model, AttentionModel)
    output = model(batch)
    expected = [[10 + row, place] for row, length in enumerate(LENGTHS) for place in range(length)]
    assert output.rows.tolist() == expected
    assert output.logits.shape == (20, 4)
    assert output.weights.shape == (20, 2, 12)
    assert output.mask.sum(-1).tolist() == [n for n in LENGTHS for _ in range(n)]
    off = ~output.mask.unsqueeze(1).expand_as(output.weights)
    assert (output.weights[off] == 0).all()
    torch.testing.assert_close(output.weights.sum(-1), torch.ones(20, 2))
    texts = [text for text, length in enumerate(LENGTHS) for _ in range(length)]
    assert texts_of_rows(output.rows).tolist() == texts


@kinds
@pytest.mark.parametrize("double", [False, True])
def test_neither_batch_nor_padding_changes_anything(kind: str, double: bool) -> None:
    model, batch = tagger(**KINDS[kind]), sentences(extra=4)
    model = model.double() if double else model
    output, start = model(batch), 0
    for row, length in enumerate(LENGTHS):
        compare(model(one_text(batch, row)), output, row, slice(start, start + length))
        assert all((layer[row, :, length:] == 0).all() for layer in output.layers or ())
        start += length


@kinds
@torch.no_grad()
def test_candidates_are_read_as_given_attention_is(kind: str) -> None:
    model, batch = tagger(**KINDS[kind]).double(), sentences(extra=1)
    output = model(batch)
    random = torch.rand(20, 2, 5, 10, dtype=torch.float64)
    candidates = random.masked_fill(~output.mask[:, None, None], 0.0)
    candidates = candidates / candidates.sum(-1, keepdim=True)
    candidates[:, :, 0], candidates[:, :, 1] = 0, output.weights
    logits = model.readout(output, candidates)
    torch.testing.assert_close(logits[:, 0], output.bias.expand_as(logits[:, 0]))
    torch.testing.assert_close(logits[:, 1], output.logits)
    for number in range(1, 5):
        given = model(batch, weights=candidates[:, :, number])
        torch.testing.assert_close(given.weights, candidates[:, :, number])
        torch.testing.assert_close(given.logits, logits[:, number])
    assert (output.item_logits is None) == (model.decoder.readout == "study")
    if output.item_logits is not None:
        assert output.item_logits.isfinite().all()
        read_items = read(candidates, output.item_logits)
        torch.testing.assert_close(read_items[:, 1:], logits[:, 1:])
        assert output.bias.shape == ((20, 4) if model.decoder.readout == "residual" else (4,))
    texts = torch.tensor([True, False, True, True])
    rows = texts[texts_of_rows(output.rows)]
    some = torch.tensor([0, 3, 4, 11, 19])
    for chosen, which in ((texts, rows), (texts_of_rows(output.rows)[some].unique(), some)):
        alone = model.readout(output.select(chosen, which), candidates[which])
        torch.testing.assert_close(alone, logits[which])


@pytest.mark.parametrize("alpha", SPARSE)
def test_sparse_heads_equal_a_bisection(alpha: float) -> None:
    model, batch = tagger(layers=2, normalizer=SPARSE[alpha]).double(), sentences(extra=2)
    output = model(batch)
    for row, items in enumerate(output.mask):
        for head in range(2):
            expected = bisected(output.scores[row, head, items].detach().numpy(), alpha)
            found = output.weights[row, head, items].detach().numpy()
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert ((output.weights == 0) & output.mask[:, None]).any()
    assert (
        (output.layers[0] == 0) & batch.mask[:, None, None] & batch.mask[:, None, :, None]
    ).any()


def test_one_sentence_shares_its_item_logits() -> None:
    """As a view, in place of a copy per token."""
    batch = sentences((500,))
    items = tagger("text")(batch).item_logits
    assert items.shape == (500, 2, 500, 4)
    assert items.stride(0) == 0
    assert items.untyped_storage().nbytes() == 4 * 2 * 500 * 4


@pytest.mark.parametrize("readout", READOUTS)
def test_what_a_token_hears_of_itself(readout: str) -> None:
    """In `text` through its attention to itself alone; in the others by its own path too."""
    model, batch = tagger(readout), sentences((5,))
    output = model(batch)
    elsewhere = output.weights.masked_fill(torch.eye(5, dtype=torch.bool)[:, None], 0.0)
    weights = elsewhere / elsewhere.sum(-1, keepdim=True)
    embeddings = model.embed(batch)
    changed = embeddings.clone()
    changed[0, 2] += 1.0
    one_way, other = (
        model(batch, weights=weights, embeddings=vectors).logits[2]
        for vectors in (embeddings, changed)
    )
    assert torch.allclose(one_way, other) == (readout == "text")


@pytest.mark.parametrize("block", [200, 1])
def test_readout_in_blocks_is_the_readout(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    output, candidates = tagger("study")(sentences()), torch.rand(20, 2, 3, 9)
    whole = tagger("study").readout(output, candidates)
    monkeypatch.setattr("attnlight.models.tagger._BLOCK", Budget(block, block))
    torch.testing.assert_close(tagger("study").readout(output, candidates), whole)


def test_repeats_of_padded_validation_are_texts_of_their_own() -> None:
    rows = torch.tensor([[3, 0], [3, 1], [-1, 0], [-1, 0], [-1, 0], [-1, 1], [4, 2], [4, 5]])
    assert texts_of_rows(rows).tolist() == [0, 0, 1, 2, 3, 3, 4, 4]
    assert texts_of_rows(rows[:0]).tolist() == []

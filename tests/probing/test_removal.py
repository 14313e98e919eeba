"""Texts without some items: what is deleted and replaced, by hand, and by two ways to the same text."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from attnlight.attribution import Occlusion
from attnlight.batch import BOS, EOS, MARKED, PAD, UNK, TextBatch
from attnlight.functional import log_odds
from attnlight.probing.removal import keep_items, replace_items, replaced_embeddings
from attnlight.probing.subsets import subset_logits
from tests.attribution.scenes import scene


def texts() -> TextBatch:
    tokens = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])
    return TextBatch(
        index=torch.tensor([3, 8]),
        tokens=tokens,
        mask=tokens != 0,
        labels=torch.tensor([1, 0]),
        query=torch.tensor([[1, 2], [3, 4]]),
        query_mask=torch.ones(2, 2, dtype=torch.bool),
        allowed_classes=torch.tensor([[True, False], [True, True]]),
        extras={"evidence": tokens * 10},
    )


def test_items_leave_with_all_that_belongs_to_them() -> None:
    kept = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0]]).bool()
    found, places = keep_items(texts(), torch.tensor([1, 0, 0]), kept)
    assert found.index.tolist() == [8, 3, 3]
    assert found.tokens.tolist() == [[9, 0, 0], [6, 7, 8], [5, 7, 0]]
    assert found.mask.int().tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]
    assert found.extras["evidence"].tolist() == [[90, 0, 0], [60, 70, 80], [50, 70, 0]]
    assert places[found.mask].tolist() == [0, 1, 2, 3, 0, 2]
    assert found.query.tolist() == [[3, 4], [1, 2], [1, 2]]
    assert found.query_mask.shape == (3, 2)
    assert found.allowed_classes.tolist() == [[True, True], [True, False], [True, False]]
    assert found.labels is None


def test_sentences_leave_whole() -> None:
    tokens = torch.tensor([[[5, 6], [7, 0], [8, 9]]])
    batch = TextBatch(torch.tensor([0]), tokens, tokens != 0)
    found, places = keep_items(batch, torch.tensor([0]), torch.tensor([[True, False, True]]))
    assert found.tokens.tolist() == [[[5, 6], [8, 9]]]
    assert torch.equal(found.mask, found.tokens != 0)
    assert places.tolist() == [[0, 2]]


@pytest.mark.parametrize(("token", "number"), [("unk", UNK), ("pad", PAD)])
def test_a_replaced_word_has_no_features(token: Literal["unk", "pad"], number: int) -> None:
    tokens = torch.tensor([[BOS, 6, 7, EOS, 0]])
    marked = torch.tensor([[1, 0, 1, 0, 0]])
    extras = {"pos": tokens * 10, MARKED: marked}
    batch = TextBatch(torch.tensor([0]), tokens, tokens != 0, extras=extras)
    found = replace_items(batch, torch.tensor([[True, False, True, True, True]]), token)
    assert found.tokens.tolist() == [[BOS, 6, number, EOS, 0]]
    assert torch.equal(found.mask, batch.mask)
    assert found.extras["pos"].tolist() == [[BOS * 10, 60, 0, EOS * 10, 0]]
    assert torch.equal(found.extras[MARKED], marked)


@pytest.mark.parametrize("kind", ["unk", "pad"])
def test_embeddings_of_replaced_words_depend_on_no_feature(kind: Literal["unk", "pad"]) -> None:
    model, batch = scene("heads")
    others = {name: values.flip(-1) for name, values in batch.extras.items()}
    found = replaced_embeddings(model, batch, kind)
    words = batch.attendable()
    assert (model.embed(batch) != model.embed(replace(batch, extras=others)))[words].any()
    again = replaced_embeddings(model, replace(batch, extras=others), kind)
    assert torch.equal(found[words], again[words])
    assert (found[words] == found[words][0]).all()


@pytest.mark.parametrize("kind", ["unk", "pad"])
@pytest.mark.parametrize("name", ["heads", "bilstm"])
def test_occlusion_and_faithfulness_replace_alike(name: str, kind: Literal["unk", "pad"]) -> None:
    """A model with features of its tokens, and one without."""
    model, batch = scene(name)
    with torch.no_grad():
        output = model(batch)
    target, items = output.logits.argmax(-1), output.mask.shape[1]
    kept = output.mask.unsqueeze(1) & ~torch.eye(items, dtype=torch.bool)
    rows = torch.arange(len(target))
    logits = subset_logits(model, batch, output, rows, kept, kind)
    change = log_odds(output.logits, target).unsqueeze(-1) - log_odds(logits, target)
    found = Occlusion(replacement=kind)(model, batch, output, target)
    known = output.mask.clone()
    if name == "heads":  # a row's own token stays
        known &= torch.arange(items) != output.rows[:, 1:]
    assert change[known].abs().max() > 0.1
    torch.testing.assert_close(found[known], change[known], rtol=1e-9, atol=1e-9)

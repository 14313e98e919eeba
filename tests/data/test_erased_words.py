"""Which words of training texts are erased: how many, which of them, and by what it is decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.erased_words import ErasedWords
from attnlight.errors import InputError
from attnlight.probing.removal import delete_tokens


def erased(length: int, epochs: int, rows: int = 400, seed: int = 0, **options: Any) -> Tensor:
    """Erased words of texts of one length in several epochs, (rows * epochs, length)."""
    words, index = torch.ones(rows, length, dtype=torch.bool), torch.arange(rows)
    rule = ErasedWords(**options)
    return torch.cat([rule.draw(words, index, epoch, seed) for epoch in range(epochs)])


def test_a_uniform_share_erases_every_number_of_words_but_all_alike() -> None:
    found = erased(6, epochs=10, rows=600)
    counts = torch.bincount(found.sum(-1), minlength=7).tolist()
    assert counts[6] == 0
    # Half of the texts are chosen, and of these a sixth keeps all words.
    expected = np.array([0.5 + 0.5 / 6] + [0.5 / 6] * 5) * 6000
    assert chisquare(counts[:6], expected).pvalue > 1e-3
    for size in range(1, 6):
        sets = found[found.sum(-1) == size]
        names = (sets.long() * 2 ** torch.arange(6)).sum(-1)
        possible = [n for n in range(64) if n.bit_count() == size]
        alike = [int((names == n).sum()) for n in possible]
        assert chisquare(alike).pvalue > 1e-3, size


@pytest.mark.parametrize(
    ("length", "share", "count"),
    [
        (1, 0.9, 0),
        (2, 0.5, 1),
        (3, 0.5, 1),
        (3, 0.99, 2),
        (10, 0.3, 3),
        (100, 0.29, 29),
        (100, 0.07, 7),
    ],
)
def test_a_given_share_is_rounded_down(length: int, share: float, count: int) -> None:
    assert erased(length, 1, 50, share=share, texts=1.0).sum(-1).tolist() == [count] * 50


def test_so_many_texts_lose_words() -> None:
    found = erased(5, epochs=5, share=0.5, texts=0.2).any(-1)
    assert chisquare([int(found.sum()), int((~found).sum())], [400, 1600]).pvalue > 1e-3


def test_seed_epoch_and_row_decide_and_nothing_else() -> None:
    rule, lengths, epoch, seed = ErasedWords(texts=1.0), [9, 3, 1, 14, 600], 3, 5
    words = torch.arange(600) < torch.tensor(lengths)[:, None]
    words[0, [0, 4]] = False  # as boundary tokens, which take no number
    index = torch.tensor([12, 4, 0, 7, 9])
    whole = rule.draw(words, index, epoch, seed)
    assert not (whole & ~words).any()
    for text in range(5):
        alone = rule.draw(words[text : text + 1], index[text : text + 1], epoch, seed)
        assert torch.equal(alone[0], whole[text])
    packed = words[0].nonzero().flatten()
    short = rule.draw(torch.ones(1, 7, dtype=torch.bool), index[:1], epoch, seed)
    assert torch.equal(whole[0, packed], short[0])
    for other in ((index, epoch + 1, seed), (index, epoch, seed + 1), (index + 1, epoch, seed)):
        assert not torch.equal(rule.draw(words, *other), whole)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"texts": 0.0}, r"erased_words.texts is 0.0; it must be in \(0, 1\]"),
        ({"texts": 1.5}, "erased_words.texts is 1.5"),
        ({"texts": float("nan")}, "erased_words.texts is nan"),
        ({"share": 0.0}, "erased_words.share is 0.0; it must be `uniform` or between 0 and 1"),
        ({"share": 1.0}, "erased_words.share is 1.0.*so that a text keeps a word"),
        ({"share": -0.5}, "erased_words.share is -0.5"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as told:
        ErasedWords(**options)
    assert str(told.value).count(". ") == 0


def test_deleted_tokens_leave_with_all_that_belongs_to_them() -> None:
    """Of flat texts, and of texts of sentences, which may lose all words."""
    tokens = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]])
    known = {"labels": torch.tensor([1, 0]), "query": torch.tensor([[1], [2]])}
    known |= {"query_mask": known["query"] > 0, "allowed_classes": torch.eye(2).bool()}
    batch = TextBatch(torch.tensor([3, 8]), tokens, tokens > 0, **known)
    batch.extras["evidence"] = tokens * 2
    found = delete_tokens(batch, torch.tensor([[0, 1, 0, 1], [0, 1, 0, 0]]).bool())
    assert found.tokens.tolist() == [[5, 7], [9, 0]]
    assert torch.equal(found.mask, found.tokens > 0)
    assert torch.equal(found.extras["evidence"], found.tokens * 2)
    for name in ("index", *known):
        assert torch.equal(getattr(found, name), getattr(batch, name)), name
    nested = torch.tensor([[[5, 6], [7, 0], [8, 9]], [[4, 3], [0, 0], [0, 0]]])
    found = delete_tokens(
        TextBatch(batch.index, nested, nested > 0),
        torch.tensor([[[1, 0], [1, 0], [0, 1]], [[0, 1], [0, 0], [0, 0]]]).bool(),
    )
    assert found.tokens.tolist() == [[[6], [8]], [[4], [0]]]

"""Which words of training texts are erased: how many, which of them, and by what it is decided."""

from __future__ import annotations

import random
from itertools import chain
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


@pytest.mark.parametrize("sentences", [False, True])
def test_deleted_tokens_leave_with_all_that_belongs_to_them(sentences: bool) -> None:
    """Against lists, of flat texts and of texts of sentences, which may lose all words."""
    rng = random.Random(0)
    texts = [
        [[rng.randint(4, 90) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(1, 3))]
        for _ in range(30)
    ]
    lists = texts if sentences else [[list(chain(*text))] for text in texts]
    size, width = max(map(len, lists)), max(len(part) for text in lists for part in text)
    tokens = torch.zeros(30, size, width, dtype=torch.long)
    for row, text in enumerate(lists):
        for place, part in enumerate(text):
            tokens[row, place, : len(part)] = torch.tensor(part)
    gone = (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.6) & (
        tokens > 0
    )
    gone[:, 0, 0] = False
    expected = []
    for row, text in enumerate(lists):
        left = [
            [t for n, t in enumerate(part) if not gone[row, place, n]]
            for place, part in enumerate(text)
        ]
        expected.append([part for part in left if part])
    shape = tokens.shape if sentences else (30, width)
    tokens, gone = tokens.view(shape), gone.view(shape)
    labels, query = torch.arange(30) % 2, torch.arange(30)[:, None]
    allowed = torch.arange(60).view(30, 2) % 3 > 0
    batch = TextBatch(
        torch.arange(30),
        tokens,
        tokens > 0,
        labels,
        query,
        query >= 0,
        allowed,
        extras={"evidence": tokens * 2},
    )
    found = delete_tokens(batch, gone)
    assert [
        [part[part > 0].tolist() for part in text if part.any()]
        for text in found.tokens.view(30, -1, found.tokens.shape[-1])
    ] == expected
    assert torch.equal(found.mask, found.tokens > 0)
    assert torch.equal(found.extras["evidence"], found.tokens * 2)
    for name in ("index", "labels", "query", "query_mask", "allowed_classes"):
        assert torch.equal(getattr(found, name), getattr(batch, name)), name
    longest = max(len(part) for text in expected for part in text)
    assert found.tokens.shape == (
        (30, max(map(len, expected)), longest) if sentences else (30, longest)
    )


def test_links_of_translations_stay_with_their_tokens() -> None:
    tokens = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    links = torch.tensor([[[2, 0, 0, 1], [0, 2, 0, 0]], [[0, 2, 0, 0], [1, 0, 0, 0]]]).to(
        torch.int8
    )
    target = torch.tensor([[3, 0], [4, 0]])
    batch = TextBatch(torch.arange(2), tokens, tokens > 0, target=target, links=links)
    gone = torch.tensor([[False, True, False, False], [True, False, False, False]])
    found = delete_tokens(batch, gone)
    assert found.tokens.tolist() == [[5, 7, 8], [10, 0, 0]]
    assert found.links is not None
    assert found.links.tolist() == [[[2, 0, 1], [0, 0, 0]], [[2, 0, 0], [0, 0, 0]]]
    assert torch.equal(found.target, target)

"""Words drawn in place of others: of which kind, how often, and that nothing else decides."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer, models

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS, UNK, TextBatch
from attnlight.data.pieces import read_tokenizer
from attnlight.data.word_sampler import WordSampler
from attnlight.errors import InputError

WORDS = ["the", "a", "Film", "Cat", ",", ".", "9th", "'s"]
KINDS = ["other", "other", "capital", "capital", "mark", "mark", "other", "other"]


class Counted:
    """Texts of which only the counts of ids are known."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts

    def token_counts(self, size: int) -> Any:
        return np.array([self.counts.get(number, 0) for number in range(size)])


def sampler_of(words: list[str], counts: list[int]) -> WordSampler:
    """A sampler of a vocabulary whose special tokens are frequent too."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL_TOKENS, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    given = {UNK: 50, BOS: 90, EOS: 90} | {4 + place: n for place, n in enumerate(counts)}
    return WordSampler(tokenizer.to_str(), Counted(given))


@cache
def word_sampler(words: int = 16) -> WordSampler:
    """A sampler of words with ids below 20, for texts with more."""
    names = [f"{'wW'[number % 2]}{number}" for number in range(100)]
    return sampler_of(names, [1 + number % 5 for number in range(words)])


def text(tokens: list[int], index: int = 0, padding: int = 0) -> TextBatch:
    row = torch.tensor([tokens + [0] * padding])
    return TextBatch(torch.tensor([index]), row, row != 0)


def test_words_are_drawn_by_their_frequency_among_those_of_their_kind() -> None:
    counts = [6, 2, 5, 1, 3, 9, 1, 4]
    sampler = sampler_of(WORDS, counts)
    texts = [text([BOS, *range(4, 12), UNK, EOS], index) for index in range(400)]
    batch = TextBatch(
        *(torch.cat([getattr(one, name) for one in texts]) for name in ("index", "tokens", "mask"))
    )
    drawn = sampler.draw(batch, 10, seed=3)
    assert drawn.shape == (10, 400, 11)
    for place, kind in [*enumerate(KINDS, 1), (9, "other")]:  # the last is an unknown word
        alike = [number for number, other in enumerate(KINDS) if other == kind]
        found = Counter((drawn[..., place] - 4).flatten().tolist())
        assert set(found) == set(alike)
        share = np.array([counts[number] for number in alike]) / sum(counts[n] for n in alike)
        assert chisquare([found[n] for n in alike], 4000 * share).pvalue > 1e-3
    # Neither places nor draws nor texts repeat each other.
    flat = drawn[..., 1:5].permute(2, 0, 1).flatten(1).double()
    assert (torch.corrcoef(flat).fill_diagonal_(0).abs() < 0.06).all()


def test_neither_padding_nor_other_texts_nor_sentences_change_a_draw() -> None:
    sampler = word_sampler()
    batch = TextBatch(
        torch.tensor([7, 3]),
        torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]),
        torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool(),
    )
    whole = sampler.draw(batch, 5, seed=1)
    assert torch.equal(sampler.draw(text([8, 9], 3, padding=9), 2, 1)[:, 0, :2], whole[:2, 1, :2])
    apart = TextBatch(
        batch.index[:1],
        torch.tensor([[[4, 0, 0], [5, 6, 7]]]),
        torch.tensor([[[1, 0, 0], [1, 1, 1]]]).bool(),
    )
    nested = sampler.draw(apart, 5, seed=1)
    assert torch.equal(nested[:, 0, 1], whole[:, 0, 1:])
    assert torch.equal(nested[:, 0, 0, 0], whole[:, 0, 0])
    assert not torch.equal(sampler.draw(batch, 5, seed=2), whole)


@pytest.mark.parametrize(
    ("words", "counts", "drawn"),
    [
        (["the", "a", "Film"], [5, 5, 5], {4: "the a", 6: "the a Film"}),
        (["the", "Film", "Cat", ","], [5, 5, 5, 5], {4: "the Film Cat ,", 5: "Film Cat"}),
        (["the", "a", "Film", "Cat"], [5, 5, 5, 0], {6: "the a Film", 7: "the a Film"}),
    ],
)
def test_the_only_word_of_its_kind_is_replaced_by_any(
    words: list[str], counts: list[int], drawn: dict[int, str]
) -> None:
    sampler = sampler_of(words, counts)
    for token, expected in drawn.items():
        found = sampler.draw(text([token]), 300, seed=0) - 4
        assert {words[number] for number in found.flatten().tolist()} == set(expected.split())


@pytest.mark.parametrize("counts", [[], [7], [0, 3]])
def test_one_word_cannot_be_drawn_from(counts: list[int]) -> None:
    with pytest.raises(InputError, match="at least two different words") as told:
        sampler_of(["the", "a"], counts)
    assert str(told.value).count(". ") == 0


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_pieces_that_continue_a_word_are_a_kind_of_their_own(tmp_path: Path, name: str) -> None:
    pytest.importorskip("transformers")
    from tests.huggingface.folders import write_tokenizer

    write_tokenizer(tmp_path, name, ["an unfunny , overlong mess . caf\u00e9"] * 5)
    tokenizer = read_tokenizer(str(tmp_path))[0]
    kinds: dict[int, str] = {}
    for token, number in tokenizer.get_vocab().items():
        word = token.strip("\u0120\u2581").removeprefix("##")
        begins = not token.startswith("##") if name == "bert" else word != token
        if word.isascii() and word.isalpha() and number > 3:
            kinds[number] = f"{'begins' if begins else 'continues'} {word[0].isupper() and begins}"
        elif word in (".", ",") and not token.startswith("##"):
            kinds[number] = "mark"
    sampler = WordSampler(tokenizer.to_str(), Counted(dict.fromkeys(kinds, 1)))
    drawn = sampler.draw(text(list(kinds)), 60, seed=0)[:, 0]
    for place, kind in enumerate(kinds.values()):
        if len([other for other in kinds.values() if other == kind]) > 1:
            assert {kinds[number] for number in drawn[:, place].tolist()} == {kind}
    begins = set() if name == "llama" else {"begins False"}  # the mark is a token of its own
    assert begins | {"continues False", "mark"} <= set(kinds.values())

"""Greedy and beam search against loops over all hypotheses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models import Seq2Seq
from attnlight.models.translate import translate
from tests.models.translations import CLASSES, KINDS, batch, model


@torch.no_grad()
def log_odds_of(made: Seq2Seq, source: TextBatch, words: list[int]) -> float:
    """Sum of the log probabilities of words, by teacher forcing."""
    output = made(replace(source, target=torch.tensor([words]), links=None))
    return float(output.logits.log_softmax(-1).gather(1, torch.tensor(words)[:, None]).sum())


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_greedy_search_takes_the_likeliest_word_after_those_before(kind: str) -> None:
    made, sources = model(kind), batch(padding=2)
    found = translate(made, sources, longest=6)
    for text in range(len(sources)):
        source = sources.select(torch.tensor([text]))
        words: list[int] = []
        for _ in range(6):
            target = torch.tensor([[*words, 0]])
            output = made(replace(source, target=target, links=None))
            words.append(int(output.logits[-1].argmax()))
            if words[-1] == 0:
                break
        if words[-1] != 0:
            words.append(0)
        assert found[text][found[text] >= 0].tolist() == words


def test_a_wide_beam_finds_the_best_of_all() -> None:
    """All hypotheses of at most two words fit into the beam; its choice is the largest mean."""
    made, sources = model(), batch()
    every = [list(words) for n in range(3) for words in product(range(1, CLASSES), repeat=n)]
    found = translate(made, sources, longest=2, beams=CLASSES**2 + 1)
    for text in range(len(sources)):
        source = sources.select(torch.tensor([text]))
        means = []
        for words in every:
            total = log_odds_of(made, source, [*words, 0])
            if len(words) == 2:  # the end is given after the longest
                total = log_odds_of(made, source, words)
            means.append(total / (len(words) + 1))
        best = every[int(Tensor(means).argmax())]
        assert found[text][found[text] >= 0].tolist() == [*best, 0]


def test_batch_and_padding_change_nothing() -> None:
    made = model()
    whole = translate(made, batch(), longest=8, beams=3)
    other = translate(made, batch(padding=3, order=[2, 0, 4, 1, 3]), longest=8, beams=3)
    for place, text in enumerate([2, 0, 4, 1, 3]):
        assert other[place][other[place] >= 0].tolist() == whole[text][whole[text] >= 0].tolist()


def test_bad_input() -> None:
    with pytest.raises(InputError, match="beams is 0; it must be at least 1"):
        translate(model(), batch(), beams=0)

"""Evidence and swaps on bAbI's real questions, against the stories as strings."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from attnlight.batch import EOS, TextBatch
from attnlight.callbacks.evidence_mass import class_tokens
from attnlight.datamodules import PairDataModule
from attnlight.probing.swaps import swap_flips
from tests.commands import CONFIGS

pytestmark = pytest.mark.slow


def stories(task: int, corpora: Path) -> PairDataModule:
    options = yaml.safe_load((CONFIGS / f"data/babi_{task}.yaml").read_text())["init_args"]
    return PairDataModule(**options | {"path": str(corpora / f"babi_qa{task}"), "local": None})


class Solver:
    """Answers as the story says: where a person or an object is, or was before another place."""

    MOVE = re.compile(r"(\w+) (?:moved|went|journeyed|travelled)(?: back)? to the (\w+)")
    TAKE = re.compile(r"(\w+) (?:got|grabbed|took|picked up) the (\w+)")
    DROP = re.compile(r"(\w+) (?:dropped|discarded|left|put down) the (\w+)")

    def __init__(self, corpus: PairDataModule) -> None:
        vocabulary = Tokenizer.from_str(corpus.tokenizer_json).get_vocab()
        self.words = {number: word for word, number in vocabulary.items()}
        self.classes = corpus.classes

    def __call__(self, batch: TextBatch) -> Any:
        assert batch.query is not None
        logits = torch.zeros(len(batch), len(self.classes))
        for row, pair in enumerate(zip(batch.tokens, batch.query, strict=True)):
            story, question = (
                " ".join(self.words[token] for token in ids.tolist() if token > EOS) for ids in pair
            )
            logits[row, self.classes.index(self.answer(story, question))] = 1
        return SimpleNamespace(logits=logits)

    def answer(self, story: str, question: str) -> str:
        place: dict[str, str] = {}
        holder: dict[str, str] = {}
        visited: dict[str, list[str]] = defaultdict(list)
        for sentence in story.split(" ."):
            if move := self.MOVE.match(sentence.strip()):
                place[move[1]] = move[2]
                for thing in (thing for thing, person in holder.items() if person == move[1]):
                    visited[thing].append(move[2])
            elif take := self.TAKE.match(sentence.strip()):
                holder[take[2]] = take[1]
                visited[take[2]] += [place[take[1]]] if take[1] in place else []
            elif drop := self.DROP.match(sentence.strip()):
                del holder[drop[2]]
            else:
                assert not sentence
        if asked := re.fullmatch(r"Where is (?:the )?(\w+) \?", question):
            return place.get(asked[1]) or visited[asked[1]][-1]
        asked = re.fullmatch(r"Where was the (\w+) before the (\w+) \?", question)
        assert asked is not None
        path = [name for name, _ in groupby(visited[asked[1]])]
        return path[len(path) - 2 - path[::-1].index(asked[2])]


@pytest.mark.parametrize("task", [1, 2, 3])
def test_the_evidence_is_the_reason_of_one_who_solves_the_task(task: int, corpora: Path) -> None:
    """Every swap in the evidence changes the right answer, and none outside does."""
    corpus = stories(task, corpora)
    solver: Any = Solver(corpus)
    batch = corpus.dataset("test")[list(range(0, 1000, 4))]
    assert torch.equal(solver(batch).logits.argmax(-1), batch.labels)
    names = class_tokens(corpus, "this")
    within, outside = swap_flips(solver, batch, batch.extras["evidence"] > 0, names)
    assert (within == 1).all()
    assert (outside == 0).all()

"""Evidence and swaps on bAbI's real questions, against the stories as strings."""

import re
from collections import defaultdict
from itertools import chain, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from tokenizers import Tokenizer

from attnlight.batch import EOS, TextBatch
from attnlight.callbacks.evidence_mass import class_tokens
from attnlight.data.raw_text import RawText
from attnlight.datamodules import PairDataModule
from attnlight.probing.swaps import swap_flips
from tests.commands import CONFIGS
from tests.pairs import pair_task

pytestmark = pytest.mark.slow


def stories(task: int, corpora: Path) -> PairDataModule:
    options = yaml.safe_load((CONFIGS / f"data/babi_{task}.yaml").read_text())["init_args"]
    return PairDataModule(**options | {"path": str(corpora / f"babi_qa{task}"), "local": None})


def test_evidence_and_swaps_are_those_of_the_stories_as_strings(corpora: Path) -> None:
    """Of a model that was not trained, in whose output every word counts."""
    corpus = stories(1, corpora)
    (file,) = (corpora / "babi_qa1/data").glob("test-*.parquet")
    questions = pq.read_table(file).to_pylist()
    task, places = (
        pair_task(corpus.spec, encoder="average", attention="uniform").eval(),
        corpus.classes,
    )
    task.raw = RawText.of_corpus(corpus)
    with torch.no_grad():
        random = torch.Generator().manual_seed(0)
        for name, parameter in task.named_parameters():
            parameter.normal_(
                std=0.0 if "query" in name or "bias" in name else 2.0, generator=random
            )
    assert sorted(places) == ["bathroom", "bedroom", "garden", "hallway", "kitchen", "office"]
    texts, chosen = corpus.dataset("test"), list(range(0, 1000, 25))
    assert texts.index.tolist() == list(range(1000))
    batch = texts[chosen]
    marks = batch.extras["evidence"] > 0
    found = torch.stack(swap_flips(task.model, batch, marks, class_tokens(corpus, "this")))
    changed = []
    for row, index in enumerate(chosen):
        story, answer = questions[index]["story"], questions[index]["answer"]
        evidence, asked = set(questions[index]["supporting_ids"]), questions[index]["question"]
        words = [re.findall(r"\w+|\.", sentence) for sentence in story]
        assert texts.words(index) == ["[BOS]", *chain(*words), "[EOS]"]
        assert texts.query_words(index) == ["[BOS]", *re.findall(r"\w+|\?", asked), "[EOS]"]
        gold = [place in evidence for place, sentence in enumerate(words) for _ in sentence]
        assert marks[row, 1 : len(gold) + 1].tolist() == gold
        versions = [story]
        for k in range(1, 6):
            other = {place: places[(n + k) % 6] for n, place in enumerate(places)}
            swapped = [
                re.sub("|".join(places), lambda match: other[match[0]], sentence)  # noqa: B023
                for sentence in story
            ]
            within = [sentence.replace(answer, other[answer]) for sentence in story]
            for inside, outside in ((within, story), (story, swapped)):
                versions.append(
                    [(inside if n in evidence else outside)[n] for n in range(len(story))]
                )
        with torch.no_grad():
            logits = task.classify([" ".join(text) for text in versions], [asked] * 11)
        before, *after = logits.argmax(-1).tolist()
        shares = [np.mean([now != before for now in after[kind::2]]) for kind in (0, 1)]
        assert found[:, row].tolist() == pytest.approx(shares)
        changed.append(shares)
    assert (np.mean(changed, axis=0) > 0.1).all()


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

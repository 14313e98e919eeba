"""The shipped model of answers on stories that it was not trained on."""

import re
from itertools import islice

import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.data.babi import Question, generate_questions
from attnlight.reference import TrainedModel
from attnlight.storage.shipped import TRAINED

FOLDER, SEED = TRAINED / "babi_answers", 7  # of stories; those of training have seed 0
FOUND = 0.95  # share of the questions in which the fact counts most


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return attnlight.load("babi_answers")


def drawn(count: int) -> list[Question]:
    return list(islice(generate_questions(1, SEED, 2), count))


@torch.no_grad()
def logits(model: TrainedModel, passages: list[tuple[str, ...]], queries: list[str]) -> Tensor:
    batch = model.encode([" ".join(passage) for passage in passages], queries=queries)
    found: Tensor = model.model(batch).logits.double()
    return found


def test_it_is_as_accurate_as_its_page_says(model: TrainedModel) -> None:
    questions = drawn(500)
    passages, queries, named, _ = (list(part) for part in zip(*questions, strict=True))
    found = logits(model, passages, queries).argmax(-1).tolist()
    right = sum(model.classes[k] == answer for k, answer in zip(found, named, strict=True)) / 500
    said = re.search(r"accuracy ([\d.]+)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert said
    share = float(said[1])
    assert abs(right - share) <= 4 * (share * (1 - share) / 500) ** 0.5


def test_leaving_out_each_sentence_finds_the_fact_by_a_loop(model: TrainedModel) -> None:
    questions, hits = [question for question in drawn(60) if len(question.passage) > 2], 0
    for passage, query, _, evidence in questions:
        without = [passage[:n] + passage[n + 1 :] for n in range(len(passage))]
        found = logits(model, [passage, *without], [query] * (1 + len(passage)))
        answer = found[0].argmax()
        others = torch.arange(found.shape[1]) != answer
        odds = found[:, answer] - found[:, others].logsumexp(-1)
        hits += int((odds[0] - odds[1:]).argmax()) == evidence[0]
    assert hits / len(questions) >= FOUND


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5_000_000


def test_an_explanation_shows_the_sentences_of_a_text() -> None:
    sentences = [
        "Mary went to the garden.",
        "John moved to the office.",
        "Mary went to the hallway.",
    ]
    row = {"text": " ".join(sentences), "query": "Where is Mary?"}
    (found,) = attnlight.explain("babi_answers", [row])
    assert [found.text[start:end].strip() for start, end in found.spans] == sentences
    assert found.prediction == "hallway"

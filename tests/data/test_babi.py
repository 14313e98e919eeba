"""Generated stories against a simulator that reads the text alone, and against the real ones."""

import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from attnlight.data.babi import CODES, PEOPLE, BabiTask, Question, generate_questions

TASKS: tuple[BabiTask, ...] = (1, 2, 3)
SENTENCE = re.compile(r"([A-Z]\w+) (.+?) the (\w+)( there)?\.")
TAKING = {"got", "grabbed", "took", "picked up"}
LEAVING = {"dropped", "discarded", "left", "put down"}
Story = list[Question]


def parse(sentence: str) -> tuple[str, str, str, bool]:
    """Actor, verb, place or object, and whether "there" follows."""
    found = SENTENCE.fullmatch(sentence)
    assert found, sentence
    return found[1], found[2], found[3], found[4] is not None


class Reader:
    """Follows a story sentence by sentence and answers questions with evidence.

    Attributes:
        seen: Place of each actor, with the sentence that tells it.
        holder: Who holds an object.
        handled: The last sentence in which an object changed hands.
        spot: Place of an object with its sentence, None while the story does not tell it.
        trail: Places that an object was carried to since it was last taken, with sentences.
    """

    def __init__(self, passage: tuple[str, ...]) -> None:
        self.seen: dict[str, tuple[str, int]] = {}
        self.holder: dict[str, str] = {}
        self.handled: dict[str, int] = {}
        self.spot: dict[str, tuple[str, int] | None] = {}
        self.trail: dict[str, list[tuple[str, int]]] = {}
        for position, sentence in enumerate(passage):
            actor, verb, target, _ = parse(sentence)
            if verb in TAKING:
                self._take(actor, target, position)
            elif verb in LEAVING:
                assert self.holder.pop(target) == actor
                self.handled[target], self.spot[target] = position, self.seen.get(actor)
            else:
                self._go(actor, target, position)

    def _take(self, actor: str, target: str, position: int) -> None:
        assert target not in self.holder
        spot, seen = self.spot.get(target), self.seen.get(actor)
        assert spot is None or seen is None or spot[0] == seen[0]
        self.holder[target], self.handled[target] = actor, position
        self.spot[target], self.trail[target] = None, []

    def _go(self, actor: str, place: str, position: int) -> None:
        assert self.seen.get(actor, ("", 0))[0] != place
        self.seen[actor] = (place, position)
        for target in [target for target, holder in self.holder.items() if holder == actor]:
            self.spot[target] = (place, position)
            self.trail[target].append((place, position))

    def answer(self, query: str) -> tuple[str, tuple[int, ...]]:
        if found := re.fullmatch(r"Where is ([A-Z]\w+)\?", query):
            place, position = self.seen[found[1]]
            return place, (position,)
        if found := re.fullmatch(r"Where is the (\w+)\?", query):
            spot = self.spot[found[1]]
            assert spot is not None
            return spot[0], (self.handled[found[1]], spot[1])
        found = re.fullmatch(r"Where was the (\w+) before the (\w+)\?", query)
        assert found, query
        before, to = [step for step in pairwise(self.trail[found[1]]) if step[1][0] == found[2]][-1]
        return before[0], (self.handled[found[1]], to[1], before[1])


@cache
def generated(task: BabiTask, count: int = 5000, split: int = 0, seed: int = 0) -> list[Question]:
    return list(islice(generate_questions(task, seed, split), count))


@cache
def real(task: BabiTask, corpora: Path) -> list[Question]:
    """All 2,000 questions, in the order of the files: five in a row are of one story."""
    rows = [
        row
        for split in ("train", "test")
        for row in pyarrow.parquet.read_table(
            corpora / f"babi_qa{task}" / "data" / f"{split}-00000-of-00001.parquet"
        ).to_pylist()
    ]
    return [
        Question(tuple(row["story"]), row["question"], row["answer"], tuple(row["supporting_ids"]))
        for row in rows
    ]


def stories(questions: list[Question]) -> list[Story]:
    found = [questions[start : start + 5] for start in range(0, len(questions), 5)]
    for story in found:
        assert len(story) == 5
        for before, after in pairwise(story):
            assert after.passage[: len(before.passage)] == before.passage
            assert len(after.passage) > len(before.passage)
    return found


@pytest.mark.parametrize("task", TASKS)
def test_answers_and_evidence_are_those_of_the_simulator(task: BabiTask) -> None:
    questions = generated(task)
    assert len(set(questions)) > 0.98 * len(questions)
    for passage, query, answer, evidence in questions[:750]:
        assert Reader(passage).answer(query) == (answer, evidence)


@pytest.mark.parametrize("task", TASKS)
def test_the_simulator_agrees_with_every_real_question(task: BabiTask, corpora: Path) -> None:
    questions = real(task, corpora)
    assert len(questions) == 2000
    for passage, query, answer, evidence in questions:
        assert Reader(passage).answer(query) == (answer, evidence)


def tokens(question: Question) -> int:
    return sum(len(sentence[:-1].split()) + 1 for sentence in question.passage)


def counts(story: Story) -> tuple[Counter[tuple[str, str]], dict[str, int]]:
    """How often a story has what is compared, by unit, and the story's number of each unit."""
    steps = [parse(sentence) for sentence in story[-1].passage]
    found: Counter[tuple[str, str]] = Counter()
    for actor, verb, _, there in steps:
        found["statement", f"by {actor}"] += 1
        found["statement", f"with {verb}"] += 1
        for kind, verbs in (("taking", TAKING), ("leaving", LEAVING)):
            found["statement", kind] += verb in verbs
            found["statement", f"{kind} there"] += verb in verbs and there
    for one, other in pairwise(steps):
        found["succession", "same actor again"] += one[0] == other[0]
    for question in story:
        found["question", f"answer {question.answer}"] += 1
        handled = parse(question.passage[question.evidence[0]])[1]
        found["question", "last handled by leaving"] += handled in LEAVING
        found["length", "sentences"] += len(question.passage)
        found["length", "tokens"] += tokens(question)
        for number, fact in enumerate(question.evidence):
            found["length", f"to fact {number}"] += len(question.passage) - fact
    for before, after in pairwise(story):
        found["next question", "asked again"] += before.query == after.query
        found["next question", "soon"] += len(after.passage) - len(before.passage) == 2
    found["first length", "sentences"] = len(story[0].passage)
    units = {"statement": len(steps), "succession": len(steps) - 1, "next question": len(story) - 1}
    return found, units | {"question": len(story), "length": len(story), "first length": 1}


def ratios(found: list[Story]) -> dict[tuple[str, str], tuple[float, float]]:
    """Ratios of sums over stories, with standard errors: stories are independent."""
    counted, result = list(map(counts, found)), {}
    for key in set().union(*(upper for upper, _ in counted)):
        upper = np.array([values[key] for values, _ in counted], np.float64)
        lower = np.array([units[key[0]] for _, units in counted], np.float64)
        value = upper.sum() / lower.sum()
        error = (upper - value * lower).std(ddof=1) / lower.mean() / len(found) ** 0.5
        result[key] = float(value), float(error)
    return result


@pytest.mark.parametrize("task", TASKS)
def test_stories_are_distributed_as_the_real_ones(task: BabiTask, corpora: Path) -> None:
    """Shares within .04, means within 10 %, and each within four standard errors.

    The standard error of a share of answers in the 400 real stories is about .012: their questions
    often have the same answer. Of some 100 comparisons one beyond four standard errors has
    probability .006, were the process the same.
    """
    ours, theirs = ratios(stories(generated(task))), ratios(stories(real(task, corpora)))
    for (unit, name), (expected, other) in theirs.items():
        value, error = ours.get((unit, name), (0.0, 0.0))
        bound = 0.1 * expected if "length" in unit else 0.04
        assert abs(value - expected) <= min(bound, 4 * (error**2 + other**2) ** 0.5), (unit, name)


@pytest.mark.parametrize("task", [*TASKS, "copy"])
def test_a_seed_determines_the_stories(task: BabiTask) -> None:
    first = generated(task, 100)
    assert generated(task, 7) == first[:7]
    assert list(islice(generate_questions(task, 0, 0), 95, 100)) == first[95:]
    for other in (generated(task, 100, split=1), generated(task, 100, seed=1)):
        assert not {question.passage for question in other[4::5]} & {
            question.passage for question in first[4::5]
        }


FACT = re.compile(r"The code of (\w+) is (\w+)\.")


def test_copying_has_one_source_by_a_loop() -> None:
    """The asked person is in one sentence, whose code is the answer and in no other."""
    places = Counter[tuple[int, int]]()
    for passage, query, answer, evidence in generated("copy", 4000):
        asked = re.fullmatch(r"What is the code of (\w+)\?", query)
        assert asked
        sources = [n for n, fact in enumerate(passage) if asked[1] in fact.split()]
        holders = [n for n, fact in enumerate(passage) if f"{answer}." in fact.split()]
        assert sources == holders == list(evidence)
        people, codes = zip(*(FACT.fullmatch(fact).groups() for fact in passage), strict=True)  # type: ignore[union-attr]
        assert len(set(people)) == len(set(codes)) == len(passage)
        assert {*people} < {*PEOPLE}
        assert {*codes} < {*CODES}
        places[len(passage), evidence[0]] += 1
    assert {*places} == {(count, place) for count in range(3, 7) for place in range(count)}
    for found in places.values():  # 4,000 / 18 each: a story has a question on each of its facts
        assert abs(found - 222) < 60


def test_each_person_of_a_story_to_copy_is_asked_for_once() -> None:
    stories: dict[tuple[str, ...], list[str]] = {}
    for question in generated("copy", 500):
        stories.setdefault(question.passage, []).append(question.query)
    *complete, _ = stories.items()
    for passage, queries in complete:
        assert len(queries) == len(set(queries)) == len(passage)

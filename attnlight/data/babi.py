"""Stories of bAbI tasks 1 to 3, and of copying, from a seed, with supporting sentences.

The tasks of bAbI are by Weston et al. (2016).

Four actors move between six places, in tasks 2 and 3 also with three objects; all begin at random
places that the story does not tell. A statement is drawn until it is possible: a random actor, one
of the task's actions, and a random place (not the one where the actor is), object there (to get) or
object in hand (to drop). After every second statement one of the last five is drawn, and its actor
(task 1) or object is asked about, if the story tells the answer; else another of the five is drawn,
and if none will do, the story goes on. A story of bAbI has five questions.

* Task 1: where an actor is. Evidence: the last move.
* Task 2: where an object is. Evidence: who dropped it or has it, and the last move of that actor
  before the drop. Held objects are asked about once they have been carried.
* Task 3: where an object was before a place that it was carried to, at the last visit of that
  place. Evidence: the last statement of the object, the move to the place and the one before it,
  both while it was carried.
* Task `copy`, which is not of bAbI: three to six people have a code each, no two the same, and each is
  asked for in turn. Evidence: the only sentence with the person, which is the only one with the code.

The process, its frequencies and the order of the evidence were inferred from the released questions
(v1.2). The code released later (facebookarchive/bAbI-tasks) differs: it tells when and what to ask
in another way.
"""

from collections.abc import Iterator
from itertools import count
from typing import Literal, NamedTuple

import numpy as np

BabiTask = Literal[1, 2, 3, "copy"]

PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
ACTORS = ("Daniel", "John", "Mary", "Sandra")
OBJECTS = ("apple", "football", "milk")
VERBS = {
    "go": ("went to", "went back to", "moved to", "journeyed to", "travelled to"),
    "get": ("got", "grabbed", "took", "picked up"),
    "drop": ("dropped", "discarded", "left", "put down"),
}
_PEOPLE = "Ada Ben Cleo Dora Emil Finn Gina Hugo Ida Jonas Kim Lea Max Nora Otto Pia"
PEOPLE = tuple(_PEOPLE.split())
CODES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FACTS = (3, 6)
"""The least and the most sentences of a story of task `copy`."""
QUESTIONS = 5
"""Questions of a story of bAbI."""
_OTHER_WORDS = ("the", "there", "Where", "is", "was", "before", ".")
_WORDS = {word for verbs in VERBS.values() for verb in verbs for word in verb.split()}
WORDS = tuple(sorted({*PLACES, *ACTORS, *OBJECTS, *_OTHER_WORDS, *_WORDS}))
"""All 36 words of the three tasks, the full stop among them, without the question mark."""


class Question(NamedTuple):
    """A question on the sentences so far; `evidence` are positions in `passage`, as released."""

    passage: tuple[str, ...]
    query: str
    answer: str
    evidence: tuple[int, ...]


class _Statement(NamedTuple):
    actor: str
    action: str
    target: str


def generate_questions(task: BabiTask, seed: int, split: int) -> Iterator[Question]:
    """The questions of a split, without end, story after story.

    A story is determined by task, seed, split number and its own number.
    """
    for story in count():
        if task != "copy":
            yield from _questions(task, np.random.default_rng((seed, task, split, story)))
            continue
        rng = np.random.default_rng((seed, 0, split, story))
        size = rng.integers(*FACTS, endpoint=True)
        people, codes = (rng.permutation(names)[:size].tolist() for names in (PEOPLE, CODES))
        facts = zip(people, codes, strict=True)
        passage = tuple(f"The code of {person} is {code}." for person, code in facts)
        for asked in rng.permutation(size).tolist():
            yield Question(passage, f"What is the code of {people[asked]}?", codes[asked], (asked,))


def _questions(task: Literal[1, 2, 3], rng: np.random.Generator) -> Iterator[Question]:
    def draw(*options: str) -> str:
        return options[rng.integers(len(options))]

    at = {actor: draw(*PLACES) for actor in ACTORS}
    where = {thing: draw(*PLACES) for thing in OBJECTS}  # a place, or the actor who holds it
    told: list[_Statement] = []
    passage: list[str] = []
    left = QUESTIONS
    while left:
        actor, action = draw(*ACTORS), draw(*VERBS) if task > 1 else "go"
        if action == "go":
            targets = [place for place in (draw(*PLACES),) if place != at[actor]]
        else:
            source = at[actor] if action == "get" else actor
            targets = [thing for thing, place in where.items() if place == source]
        if not targets:
            continue
        target = draw(*targets)
        if action == "go":
            at[actor] = target
        else:
            where[target] = actor if action == "get" else at[actor]
        told.append(_Statement(actor, action, target))
        there = action != "go" and (rng.random() < 0.2 or (task, action) == (2, "get"))
        verb = draw(*VERBS[action])
        passage.append(f"{actor} {verb} the {target}{' there' if there else ''}.")
        if len(told) % 2 == 0:
            recent = [step.actor if task == 1 else step.target for step in told[-5:]]
            topics = [name for name in recent if name not in PLACES]
            drawn = (_answerable(task, topics[n], told) for n in rng.permutation(len(topics)))
            if found := next(filter(None, drawn), None):
                yield Question(tuple(passage), *found[rng.integers(len(found))])
                left -= 1


def _answerable(
    task: Literal[1, 2, 3], topic: str, told: list[_Statement]
) -> list[tuple[str, str, tuple[int, ...]]]:
    """What can be asked about an actor or object: query, answer and evidence of each question.

    In task 3 there is one for each move to a place, so a place visited twice has two chances.
    """
    if task == 1:
        last = max(n for n, step in enumerate(told) if step.actor == topic)
        return [(f"Where is {topic}?", told[last].target, (last,))]
    handled = [n for n, step in enumerate(told) if step.target == topic]
    last, actor = handled[-1], told[handled[-1]].actor
    held = told[last].action == "get"
    taken = last if held else handled[-2]
    span = range(taken if held or task == 3 else 0, len(told) if held else last)
    moves = [n for n in span if (told[n].actor, told[n].action) == (actor, "go")]
    places = [told[n].target for n in moves]
    if task == 2:
        known = f"Where is the {topic}?"
        return [(known, place, (last, n)) for n, place in zip(moves[-1:], places[-1:], strict=True)]
    found: list[tuple[str, str, tuple[int, ...]]] = []
    for place in places:
        visit = len(places) - 1 - places[::-1].index(place)
        if visit > 0:
            query = f"Where was the {topic} before the {place}?"
            found.append((query, places[visit - 1], (last, moves[visit], moves[visit - 1])))
    return found

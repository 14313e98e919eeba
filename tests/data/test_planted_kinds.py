"""Kinds of planted evidence: signs and labels against rules that read the words of a text."""

import json
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import yaml

from attnlight.data.planted import PlantedSpec
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from tests.commands import CONFIGS
from tests.data.test_planted import Text, draw, keyword_class

ONE: dict[str, Any] = {"redundancy": 1, "distractors": 0}
PHRASE = {"rule": "phrase", "redundancy": 1, "distractors": 2, "min_tokens": 8}


def classes_of(spec: PlantedSpec, text: Text) -> list[int | None]:
    return [keyword_class(spec, word) for word in text.words]


def majority(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    found = classes_of(spec, text)
    label = Counter(kind for kind in found if kind is not None).most_common(1)[0][0]
    return label, [0 if kind is None else 1 if kind == label else -1 for kind in found]


def strength(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    sums: Counter[int] = Counter()
    found = classes_of(spec, text)
    for word, kind in zip(text.words, found, strict=True):
        if kind is not None:
            sums[kind] += 1 + int(word.removeprefix("good").removeprefix("bad")) % 3
    (label, first), *others = sums.most_common()
    assert not others or first > others[0][1]
    return label, [0 if kind is None else 1 if kind == label else -1 for kind in found]


def order(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    found = classes_of(spec, text)
    label = [kind for kind in found if kind is not None][-1]
    return label, [int(kind == label) for kind in found]


def phrase(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    signs, found = [0] * len(text.words), classes_of(spec, text)
    labels = set()
    for place, (kind, following) in enumerate(pairwise(found)):
        if kind is not None and following is not None and kind == following:
            signs[place] = signs[place + 1] = 1
            labels.add(kind)
    (label,) = labels
    return label, signs


def conjunction(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    gates = [word.startswith("gate") for word in text.words]
    found = classes_of(spec, text)
    kinds = {kind for kind in found if kind is not None}
    assert 0 not in kinds
    assert len(kinds) + any(gates) > 0
    label = kinds.pop() if kinds and any(gates) else 0
    sign = 1 if label else -1
    return label, [
        sign * (gate or kind is not None) for gate, kind in zip(gates, found, strict=True)
    ]


def one_sided(spec: PlantedSpec, text: Text) -> tuple[int, list[int]]:
    found = classes_of(spec, text)
    return max((kind or 0 for kind in found), default=0), [int(kind is not None) for kind in found]


READINGS = {
    "strength": ({"rule": "strength", "redundancy": 2, "distractors": 2}, strength),
    "order": ({"rule": "order", "redundancy": 1, "distractors": 1}, order),
    "order of four classes": ({"rule": "order", "num_classes": 4, "distractors": 4}, order),
    "phrase": (PHRASE, phrase),
    "phrases": (
        {**PHRASE, "redundancy": 2, "distractors": 3, "num_classes": 3, "min_tokens": 10},
        phrase,
    ),
    "conjunction": ({"rule": "conjunction", **ONE}, conjunction),
    "conjunction of classes": ({"rule": "conjunction", **ONE, "num_classes": 4}, conjunction),
    "one-sided": ({"one_sided": True, **ONE}, one_sided),
    "one-sided classes": ({"one_sided": True, **ONE, "num_classes": 4}, one_sided),
    "decoys": ({"decoys": 4, "balance": 0.8, "copies": True, "place": "together"}, majority),
}


@pytest.mark.parametrize("name", READINGS)
def test_labels_and_signs_are_those_of_a_reading(name: str) -> None:
    options, reading = READINGS[name]
    spec = PlantedSpec(**{"min_tokens": 16, "max_tokens": 18, **options})  # type: ignore[arg-type]
    texts = draw(spec, 400)
    for text in texts:
        assert (text.label, text.evidence) == reading(spec, text), text.words
        assert spec.min_tokens <= len(text.words) <= spec.max_tokens
    share = spec.balance or 1 / spec.num_classes
    assert abs(np.mean([text.label == 0 for text in texts]) - share) < 0.08


def test_words_alone_do_not_tell_phrases_and_orders_of_two_classes() -> None:
    for rule in ({**PHRASE, "keywords": 1}, {"rule": "order", "redundancy": 1, "keywords": 1}):
        bags = [
            Counter(word for word in text.words if not word.startswith("filler"))
            for text in draw(PlantedSpec(**rule), 100)  # type: ignore[arg-type]
        ]
        assert all(bag["bad0"] == bag["good0"] for bag in bags)


@pytest.mark.parametrize("negation", [0.0, 0.4])
@pytest.mark.parametrize("place", ["first", "last", "together"])
def test_keywords_are_where_they_should_be(place: Any, negation: float) -> None:
    starts = []
    for text in draw(PlantedSpec(place=place, negation=negation), 300):
        marked = [number for number, sign in enumerate(text.evidence) if sign]
        assert marked == list(range(marked[0], marked[-1] + 1))
        starts.append(marked[0])
        assert place != "first" or marked[0] == 0
        assert place != "last" or marked[-1] == len(text.words) - 1
    assert place != "together" or len({*starts}) > 20


def test_copies_are_one_word_and_decoys_stand_in_their_column() -> None:
    for text in draw(PlantedSpec(copies=True), 50):
        own = [word for word, sign in zip(text.words, text.evidence, strict=True) if sign > 0]
        assert len({*own}) == 1
        assert len(own) == 3
    spec = PlantedSpec(decoys=3, negation=0.4)
    (texts,) = spec.draw(0, 300)
    decoys = np.array([spec.words[token].startswith("decoy") for token in texts.tokens])
    assert texts.decoy.tolist() == decoys.tolist()
    of_text = np.repeat(np.arange(300), texts.lengths)
    assert np.bincount(of_text, decoys).tolist() == [3] * 300
    labels, words = np.repeat(texts.labels, texts.lengths)[decoys], texts.tokens[decoys]
    for word in {*words.tolist()}:
        assert 0.3 < labels[words == word].mean() < 0.7
    data = PlantedEvidence(train_size=50, validation_size=20, test_size=300, decoys=3, negation=0.4)
    batch = data.dataset("test")[range(300)]
    assert data.fingerprint != PlantedEvidence(train_size=50, validation_size=20).fingerprint
    drawn = next(spec.draw(2, 300))
    assert batch.extras["decoy"][batch.mask].tolist() == drawn.decoy.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"num_classes": 3},
        {"rule": "strength", "redundancy": 2, "distractors": 2},
        {"one_sided": True, "num_classes": 3, **ONE},
        {"queries": 5, "decoys": 6, "place": "first"},
    ],
    ids=str,
)
def test_a_query_says_which_keywords_count(options: dict[str, Any]) -> None:
    """Read with the keywords of other queries as fillers, a text is one without a query."""
    given = {"queries": 3, "decoys": 3, "keywords": 4, "min_tokens": 16} | options
    spec = PlantedSpec(**given)  # type: ignore[arg-type]
    data = PlantedEvidence(train_size=20, validation_size=20, test_size=200, **given)
    assert data.paired
    texts, batch = draw(spec, 200, split=2), data.dataset("test")[range(200)]
    (drawn,) = spec.draw(2, 200)
    assert batch.query is not None
    asked = [spec.words[word] for word in batch.query[:, 0].tolist()]
    assert data.dataset("test").query_words(7) == asked[7:8]
    assert asked == [f"ask{number}" for number in drawn.asked]
    assert {*asked} == {f"ask{number}" for number in range(spec.queries)}
    reading = {"strength": strength}.get(spec.rule, one_sided if spec.one_sided else majority)
    decoys, ends = drawn.decoy.tolist(), np.cumsum(drawn.lengths)
    for text, query, end in zip(texts, asked, ends.tolist(), strict=True):
        words, others = [], []
        for word in text.words:
            number = re.search(r"\d+$", word)
            assert number is not None
            found = keyword_class(spec, word) is not None
            of = f"ask{int(number[0]) // spec.keywords}" if found else query
            others.append(int(of != query))
            rank = str(int(number[0]) % spec.keywords)
            plain = re.sub(r"\d+$", rank, word) if found else word
            words.append("filler0" if of != query else plain)
        assert decoys[end - len(words) : end] == others
        assert sum(others) == spec.decoys
        expected = reading(spec, Text(text.label, words, []))
        assert (text.label, text.evidence) == expected, text.words


def test_noisy_labels_leave_the_texts_as_they_are() -> None:
    clean, noisy = (PlantedSpec(num_classes=3, label_noise=p) for p in (0.0, 0.25))
    (before,), (after,) = clean.draw(0, 2000), noisy.draw(0, 2000)
    assert (before.tokens == after.tokens).all()
    assert (before.evidence == after.evidence).all()
    assert np.mean(before.labels != after.labels) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"bad1": ["good1", "filler0"], "good0": ["bad0", "filler0"], "not0": ["filler0"]}),
        ({"one_sided": True, **ONE}, {"good1": ["filler0"], "not0": ["filler0"]}),
        (
            {"one_sided": True, **ONE, "num_classes": 3},
            {"topic1word0": ["filler0", "topic2word0"], "topic2word1": ["filler0", "topic1word1"]},
        ),
        ({"rule": "conjunction", **ONE}, {"gate0": ["filler0"], "good0": ["filler0"]}),
        (PHRASE, {"bad0": [], "good1": []}),
        ({"decoys": 2}, {"decoy0": [], "bad0": ["good0", "filler0"]}),
        ({"decoys": 2, "queries": 2}, {"ask1": [], "bad3": ["good3", "filler0"]}),
    ],
)
def test_counterfactuals(options: dict[str, Any], expected: dict[str, list[str]]) -> None:
    spec = PlantedSpec(keywords=2, **options)
    for word, swaps in expected.items():
        row = spec.counterfactuals[spec.words.index(word)]
        assert sorted(spec.words[number] for number in row if number >= 0) == sorted(swaps)
        assert word.startswith(("decoy", "ask")) or row[-1] == (
            4 if swaps else -1
        )  # the filler is last


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "phrases"}, r"rule is 'phrases'; expected one of majority, .*did you mean 'phra"),
        ({"place": "middle"}, "place is 'middle'; expected one of anywhere, first, last, together"),
        ({"balance": 1.0}, r"balance is 1.0; it must be in \(0, 1\), or null"),
        ({"label_noise": 1.0}, r"label_noise is 1.0; it must be in \[0, 1\)"),
        ({"decoys": -1}, "decoys is -1; it must be at least 0"),
        ({"decoys": 1, "queries": 1}, "decoys need a second query, which asks for them"),
        ({"decoys": 17}, "need 21 <= min_tokens"),
        ({"one_sided": True}, "distractors is 1; it must be 0 with one_sided or the rule conj"),
        ({"rule": "conjunction"}, "distractors is 1; it must be 0 with one_sided or the rule conj"),
        ({"rule": "order", "one_sided": True}, "one_sided is for the rule majority, not order"),
        ({"rule": "phrase", "negation": 0.2}, "negation is for the rule majority"),
        ({"rule": "strength", "distractors": 4}, "needs at least as many keywords of its class"),
        ({"rule": "strength", "distractors": 3, "copies": True}, "needs more keywords of its cl"),
    ],
)
def test_mistakes_in_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PlantedSpec(**options)


def test_kinds_of_the_studies_differ_and_can_be_drawn() -> None:
    kinds: dict[str, list[dict[str, Any]]] = {}
    names = ("", "_aside", "_new", "_new_transformer")
    for name in (*names, *(f"{x}_{y}" for x in ("", "_new") for y in ("pairs", "hierarchical"))):
        file = CONFIGS / f"studies/known_kinds{name}.yaml"
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        conditions = content["grid"][0].values()
        kinds[name] = [content["options"]["data"] | x["options"]["data"] for x in conditions]
    assert kinds.pop("_new_transformer") == kinds["_new"]
    every = [options for part in kinds.values() for options in part]
    assert len({json.dumps(x | {"test_size": 0}, sort_keys=True) for x in every}) == 24 + 12 + 24
    for options in every:
        data = PlantedEvidence(**options)  # refuses what cannot be drawn
        assert len(next(data.planted.draw(2, 5)).labels) == 5

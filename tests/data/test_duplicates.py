import random

import numpy as np

from attnlight.data.duplicates import also_in, story_keys, text_keys

TEXTS = [
    "a film",
    " a  film\n",
    "A film",
    "",
    " \t",
    "film a",
    "a film",
    "ein Фильм 映画",
    "\ud800",
]


def test_keys_are_equal_for_equal_texts_alone() -> None:
    rows = np.arange(1, 2 * len(TEXTS), 2)
    keys = text_keys([TEXTS[:4], TEXTS[4:]], rows, 2 * len(TEXTS))
    assert not keys[::2].any()  # rows that were not read
    for one, key in zip(TEXTS, keys[rows], strict=True):
        for other, other_key in zip(TEXTS, keys[rows], strict=True):
            assert (key == other_key) == (one.split() == other.split())
        assert (key == 0) == (not one.split())


def test_texts_of_two_splits_are_counted_as_plain_python_counts_them() -> None:
    draw = random.Random(5)
    splits = {
        split: [draw.choice(["", "x", *map(str, range(40))]) for _ in range(size)]
        for split, size in (("train", 30), ("validation", 20), ("test", 25))
    }
    keys = {s: text_keys([texts], np.arange(len(texts)), len(texts)) for s, texts in splits.items()}

    def count(split: str, other: str) -> int:
        return sum(bool(text) and text in splits[other] for text in splits[split])

    assert also_in(keys) == {
        "train": {},
        "validation": {"also_in": {"train": count("validation", "train")}},
        "test": {"also_in": {s: count("test", s) for s in ("train", "validation")}},
    }
    assert also_in({"train": keys["train"], "test": text_keys([["new"]], np.arange(1), 1)}) == {
        "train": {},
        "test": {},
    }


def test_passages_of_one_story_have_one_key() -> None:
    draw = random.Random(2)
    passages: list[list[str]] = [["a", " "], ["a"], ["  a\n", "b"], [], [" "], ["a b"], ["b", "a"]]
    for _ in range(60):
        passages.append([draw.choice("abc") for _ in range(draw.randint(2, 6))])
    rows = np.arange(len(passages)) * 2
    keys = story_keys([passages[:9], passages[9:]], rows, rows[-1] + 1)
    assert not keys[1::2].any()
    plain = [[" ".join(text.split()) for text in passage if text.split()] for passage in passages]

    def story(passage: list[str]) -> list[str]:
        """The shortest passage that this one begins with."""
        found = (passage[:size] for size in range(1, len(passage) + 1))
        return next((start for start in found if start in plain), [])

    stories = [story(passage) for passage in plain]
    assert len({tuple(found) for found in stories}) > 5
    for one, key in zip(stories, keys[rows], strict=True):
        assert (key == 0) == (not one)
        for other, other_key in zip(stories, keys[rows], strict=True):
            assert (key == other_key) == (one == other)

from typing import Any

import datasets
import pytest

from attnlight.data.labels import read_labels
from attnlight.data.sources import Classes, Source
from attnlight.errors import InputError


def labelled(values: list[Any], names: list[str] | None = None) -> datasets.Dataset:
    rows = datasets.Dataset.from_dict({"label": values})
    return rows.cast_column("label", datasets.ClassLabel(names=names)) if names else rows


def read(
    rows: datasets.Dataset, classes: Classes | None = None, names: list[str] | None = None
) -> tuple[list[str], list[int]]:
    source = Source(path="a/b", split="train", label="label", classes=classes)
    found, numbers = read_labels(rows, source, names)
    return found, numbers.tolist()


@pytest.mark.parametrize(
    ("values", "names", "classes", "expected"),
    [
        # one label needs no list; whole numbers may be stored as floats
        (["b", "g"], None, {"bad": "b", "good": "g"}, (["bad", "good"], [0, 1])),
        ([True, False], None, {"no": [False], "yes": True}, (["no", "yes"], [1, 0])),
        ([1.0, 2.0, 5.0], None, {"n": 1, "p": 5}, (["n", "p"], [0, -1, 1])),
        ([1.0, 5.0], None, None, (["1", "5"], [0, 1])),
        ([1, 0, 2], ["x", "y", "z"], None, (["x", "y", "z"], [1, 0, 2])),
        ([1, 0], ["x", "y", "z"], None, (["x", "y", "z"], [1, 0])),
        ([7, 3, 7, 10], None, None, (["3", "7", "10"], [1, 0, 1, 2])),
        (["no", "yes", "no"], None, None, (["no", "yes"], [0, 1, 0])),
        ([True, False], None, None, (["0", "1"], [1, 0])),
        ([0, 1, 2, 3, 4], None, {"n": [0, 1], "p": [3, 4]}, (["n", "p"], [0, 0, -1, 1, 1])),
        ([0, 1, 2], ["x", "y", "z"], {"q": ["z"], "r": ["x"]}, (["q", "r"], [1, -1, 0])),
        (["5", "6"], None, {"a": [6], "b": [5]}, (["a", "b"], [1, 0])),
        ([5, 6], None, {"a": ["6"], "b": [5]}, (["a", "b"], [1, 0])),
        # names that look like other labels' numbers: numbers are labels, strings are names
        ([0, 1], ["1", "0"], {"a": [0], "b": [1]}, (["a", "b"], [0, 1])),
        ([0, 1], ["1", "0"], {"a": ["0"], "b": ["1"]}, (["a", "b"], [1, 0])),
    ],
)
def test_labels_become_classes(values: Any, names: Any, classes: Any, expected: Any) -> None:
    assert read(labelled(values, names), classes) == expected


@pytest.mark.parametrize(
    ("values", "names", "classes", "message"),
    [
        ([-1, -1], ["x", "y"], None, "split train of a/b has label -1 in all rows"),
        ([-1, -1], None, {"n": [0]}, "label -1 in all rows"),
        ([0, -1], ["x", "y"], None, "has label -1, which is not among the classes x, y"),
        ([0, 1], None, {"n": [0], "p": [2]}, "lists 2 for 'p', which is not a label .* are 0, 1"),
        (["a", "b"], None, {"n": ["a"], "p": ["c"]}, "lists 'c' for 'p', which is not a label"),
        ([0, 1], ["x", "y"], {"n": [0], "p": [2]}, "lists 2 for 'p', which is not a label"),
        ([0, 1], None, {"n": [0], "p": [0, 1]}, "lists label 0 of split train of a/b twice"),
        ([0.5, 1.0], None, None, "holds double; expected whole numbers or strings"),
        ([[0], [1]], None, None, "expected whole numbers or strings"),
        ([0, None], None, None, "1 of the 2 rows of split train of a/b have no label, .* 1 "),
        ([1.0, None], None, {"n": 1}, "1 of the 2 rows"),
        ([None, None], None, {"n": 0}, "no row of split train of a/b has a label"),
        (["bad", "good"], None, {"n": "bda", "p": "good"}, "'bda' .* 'bad'"),
        (["yes", "no"], None, {"n": [False], "p": [True]}, "quotes"),
        ([str(i) for i in range(21)], None, None, "each of 21 rows.*label"),
    ],
)
def test_wrong_labels_are_refused(values: Any, names: Any, classes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(labelled(values, names), classes)


def test_no_label_is_looked_for_among_all_classes() -> None:
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    count = 1000
    names = [f"class{number}" for number in range(count)]
    found, numbers = read(labelled(names * 2), names=[*map(Name, names)])
    assert found == names
    assert numbers == [*range(count), *range(count)]
    assert 0 < compared < 10 * count


def test_a_test_split_is_matched_by_the_names_of_training() -> None:
    assert read(labelled([0, 1], ["pos", "neg"]), names=["neg", "pos"]) == (["neg", "pos"], [1, 0])
    classes: Classes = {"n": [0, 1], "p": [3, 4]}
    assert read(labelled([1, 4, 2]), classes, ["n", "p"])[1] == [0, 1, -1]
    with pytest.raises(InputError, match="has label 2, which is not among the classes 0, 1"):
        read(labelled([0, 2]), names=["0", "1"])

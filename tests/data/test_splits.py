from pathlib import Path

import pytest

from attnlight.data.selection import Selection
from attnlight.data.sources import Source
from attnlight.data.splits import Splits, find_splits, split_names


def found(
    verb: str | None, *names: str, cut: float | None = None, **given: str | Source
) -> dict[str, object]:
    main, selection = Source(path="corpus"), Selection(validation_fraction=cut)
    return find_splits(main, Splits(**given), selection, lambda: names, verb)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["train", "valid", "validation", "test"], "validation"),
        (["train", "dev", "valid"], "valid"),
        (["dev", "train", "val"], "dev"),
        (["train", "val"], "val"),
        (["train", "test", "development"], None),
    ],
)
def test_the_first_name_validates(names: list[str], chosen: str | None) -> None:
    assert found(None, *names).get("validation") == chosen
    assert "validation" not in found("fit", *names, cut=0.1)
    assert "validation" not in found("fit", *names, validation="train[:5]")


def test_a_split_that_trains_or_tests_does_not_validate() -> None:
    names = ["train", "validation", "dev"]
    assert found(None, *names, test="validation[:50%]") == {"train": "train", "validation": "dev"}
    elsewhere = Source(path="other/corpus", split="validation")
    assert found(None, *names, test=elsewhere)["validation"] == "validation"
    assert found("fit", "train", "test", train="test")["test_fraction"] == 0.2


CUT = {"test_fraction": 0.2, "validation_fraction": 0.1}


@pytest.mark.parametrize(
    ("verb", "names", "expected"),
    [
        ("fit", ["train"], {"train": "train"} | CUT),
        ("fit", ["all"], {"train": "all"} | CUT),
        ("fit", ["train", "dev"], {"train": "train", "validation": "dev", "test_fraction": 0.2}),
        ("fit", ["train", "test"], {"train": "train", "test": "test", "validation_fraction": 0.1}),
        ("fit", ["test"], {"test": "test", "validation_fraction": 0.1}),  # nothing to train on
        ("fit", ["a", "b"], CUT),
        ("test", ["train"], {"test": "train"}),  # a table is tested whole
        ("test", ["test"], {"test": "test"}),
        ("validation", ["test"], {"validation": "test"}),
        ("test", ["train", "dev"], {}),  # either may be meant
        ("test", ["train", "test"], {"train": "train", "test": "test"}),
        (None, ["train"], {"train": "train"}),
        (None, ["all"], {}),
    ],
)
def test_what_a_verb_takes_for_splits_that_are_not_named(
    verb: str | None, names: list[str], expected: dict[str, object]
) -> None:
    assert found(verb, *names) == expected


def test_nothing_is_read_where_all_splits_are_named() -> None:
    def read() -> list[str]:
        raise AssertionError

    given = Splits(train="a", test="b")
    assert find_splits(Source(path="x"), given, Selection(validation_fraction=0.0), read) == {}


def test_the_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str | None] = []

    def splits(self: Source) -> list[str]:
        calls.append(self.revision)
        return ["train", "dev"]

    monkeypatch.setattr(Source, "splits", splits)
    for revision in ("r1", "r1", "r2"):
        main = Source(path="a/b", revision=revision)
        assert split_names(main, tmp_path / "cache") == ["train", "dev"]
    assert calls == ["r1", "r2"]

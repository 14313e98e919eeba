from pathlib import Path

import pytest

from attnlight.data.sources import Source
from attnlight.data.splits import default_validation
from tests.data.local import write_corpus

ROWS = {"text": ["a b", "c"], "label": [0, 1]}


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


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
def test_the_first_name_that_exists_validates(
    tmp_path: Path, names: list[str], chosen: str | None
) -> None:
    main = Source(path=str(write_corpus(tmp_path / "c", **dict.fromkeys(names, ROWS))), text="t")
    found = default_validation(main, {"train": Source(split="train").over(main, "train")}, tmp_path)
    expected = {} if chosen is None else {"validation": Source(split=chosen).over(main, "x")}
    assert found == expected


def test_a_split_that_trains_or_tests_does_not_validate(tmp_path: Path) -> None:
    names = ["train", "validation", "dev"]
    main = Source(path=str(write_corpus(tmp_path / "c", **dict.fromkeys(names, ROWS))))
    test = Source(split="validation[:50%]").over(main, "test")
    assert default_validation(main, {"test": test}, tmp_path)["validation"].split == "dev"
    elsewhere = Source(path="other/corpus", split="validation").over(main, "test")
    found = default_validation(main, {"test": elsewhere}, tmp_path)
    assert found["validation"].split == "validation"


def test_the_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str | None] = []

    def splits(self: Source) -> list[str]:
        calls.append(self.revision)
        return ["train", "dev"]

    monkeypatch.setattr(Source, "splits", splits)
    for revision in ("r1", "r1", "r2"):
        main = Source(path="a/b", revision=revision)
        assert default_validation(main, {}, tmp_path / "cache")["validation"].split == "dev"
    assert calls == ["r1", "r2"]

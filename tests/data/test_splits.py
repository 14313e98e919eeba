from pathlib import Path

import pytest

from attnlight.data.selection import Selection
from attnlight.data.sources import Source
from attnlight.data.splits import complete_sources
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
def test_the_first_name_validates(tmp_path: Path, names: list[str], chosen: str | None) -> None:
    main = Source(path=str(write_corpus(tmp_path / "c", **dict.fromkeys(names, ROWS))), text="t")
    named = {"train": Source(split="train").with_defaults(main, "train")}
    found = complete_sources(main, named, Selection(), tmp_path)
    expected = (
        {} if chosen is None else {"validation": Source(split=chosen).with_defaults(main, "x")}
    )
    assert found == named | expected
    assert complete_sources(main, named, Selection(validation_fraction=0.1), tmp_path) == named


def test_a_split_that_trains_or_tests_does_not_validate(tmp_path: Path) -> None:
    names = ["train", "validation", "dev"]
    main = Source(path=str(write_corpus(tmp_path / "c", **dict.fromkeys(names, ROWS))))
    test = Source(split="validation[:50%]").with_defaults(main, "test")
    found = complete_sources(main, {"test": test}, Selection(), tmp_path)
    assert [source.split for source in found.values()] == ["dev", "validation[:50%]"]
    elsewhere = Source(path="other/corpus", split="validation").with_defaults(main, "test")
    found = complete_sources(main, {"test": elsewhere}, Selection(), tmp_path)
    assert found["validation"].split == "validation"


def test_the_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str | None] = []

    def splits(self: Source) -> list[str]:
        calls.append(self.revision)
        return ["train", "dev"]

    monkeypatch.setattr(Source, "splits", splits)
    for revision in ("r1", "r1", "r2"):
        main = Source(path="a/b", revision=revision)
        found = complete_sources(main, {}, Selection(), tmp_path / "cache")
        assert found["validation"].split == "dev"
    assert calls == ["r1", "r2"]

"""Corpora that a newcomer brings, each by the few lines of the README's kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.data.selection import Selection
from attnlight.errors import InputError
from tests.data.local import write_corpus, write_table
from tests.datamodules.reading import SPLITS, module, prepared, sizes, summary


def reviews(count: int, first: int = 0) -> list[tuple[Any, ...]]:
    return [(f"review number {i}", ("bad", "good", "great")[i % 3]) for i in range(first, count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Columns `review` and `mood`; `train.csv` and `dev.csv`."""
    names = ("review", "mood")
    write_table(tmp_path / "c" / "train.csv", reviews(90), names)
    write_table(tmp_path / "c" / "dev.csv", reviews(120, 84), names)
    return tmp_path / "c"


OF_FOLDER: dict[str, Any] = {"text": "review", "label": "mood"}
OF_FOLDER |= {"classes": {"negative": "bad", "positive": ["good", "great"]}}


def test_csv_files_without_a_test_split(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"no test split, only train, validation: .*test_fraction"):
        module(folder, **OF_FOLDER).dataset("test")
    with pytest.raises(InputError, match=r"subset names test.*train, validation"):
        module(folder, **OF_FOLDER, test=None, subset={"test": 3}).prepare()
    data = module(folder, **OF_FOLDER, test_fraction=0.2)
    capsys.readouterr()
    assert sizes(data) == {"train": 72, "validation": 36, "test": 18}
    assert data.classes == ["negative", "positive"]
    assert prepared(data, "validation")["text"][:] == [text for text, _ in reviews(120, 84)]
    train, test = (data.dataset(split).index for split in ("train", "test"))
    assert sorted([*train, *test]) == list(range(90))
    assert set(test % 3) == {0, 1, 2}
    assert np.bincount(prepared(data, "test")["label"][:]).tolist() == [6, 12]  # of 30 and 60
    # reviews 84 to 89 are in both files; how many of them test is the hash's business
    tested, counts = int((test >= 84).sum()), summary(data)["splits"]
    assert counts["validation"].get("also_in", {}).get("train", 0) == 6 - tested
    assert counts["test"].get("also_in", {}).get("validation", 0) == tested
    assert f"{6 - tested} also in train" in capsys.readouterr().err


def test_one_file_of_json_lines_with_gaps_and_copies(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": f"text {i % 150}" if i % 20 else None, "stars": 1 + 4 * (i % 150 % 3 == 0)}
        for i in range(200)
    ]
    file = tmp_path / "reviews.jsonl"
    file.write_text("\n".join(map(json.dumps, [*rows, {"text": "no label", "stars": None}])))
    with pytest.raises(InputError, match=r"1 of the 201 rows .* no stars.* 200 "):
        module(file, label="stars", test_fraction=0.2).prepare()
    file.write_text("\n".join(map(json.dumps, [*rows, {"text": "another label", "stars": 3}])))
    options: dict[str, Any] = {"label": "stars", "classes": {"bad": 1, "good": 5}}
    options |= {"test_fraction": 0.2, "validation_fraction": 0.1}
    data = module(file, **options, split_seed=4)
    with pytest.raises(InputError, match=r"no validation split, only .*: .*validation_fraction"):
        module(file, **(options | {"validation_fraction": None})).dataset("validation")
    texts = {split: prepared(data, split)["text"][:] for split in SPLITS}
    every = [text for split in texts.values() for text in split]
    assert sorted(every) == sorted(row["text"] or "" for row in rows)
    assert not {*texts["train"], *texts["validation"]} & set(texts["test"]) - {""}
    counts = summary(data)["splits"]
    assert counts["train"]["dropped_by"] == {"classes": 1}
    assert sum(counts[split]["empty"] for split in counts) == 10
    shared = sum(bool(text) and text in texts["train"] for text in texts["validation"])
    assert counts["validation"].get("also_in", {}) == ({"train": shared} if shared else {})
    other = module(file, **options, split_seed=5)
    assert prepared(other, "test")["index"][:] != prepared(data, "test")["index"][:]


def test_an_option_wins_over_the_splits_that_are_there(tmp_path: Path) -> None:
    columns = {"text": [f"t{i}" for i in range(20)], "label": [0, 1] * 10}
    splits = dict.fromkeys(("train", "dev", "valid", "test"), columns)
    corpus = write_corpus(tmp_path / "c", **splits)
    assert module(corpus).sources["validation"].split == "valid"
    assert module(corpus, validation="dev").sources["validation"].split == "dev"
    given: Any = [{"validation_fraction": 0.2}, {"test_fraction": 0.2}, {"test_fraction": 0}]
    found = [tuple(sizes(module(corpus, **options)).values()) for options in given]
    assert found == [(16, 4, 20), (16, 20, 4), (20, 20)]
    with pytest.raises(InputError, match="test or test_fraction"):
        module(corpus, test="dev", test_fraction=0.2)


def test_what_gave_a_split_before_keeps_its_fingerprint(folder: Path) -> None:
    named = module(folder, **OF_FOLDER, validation="validation", test=None)
    assert module(folder, **OF_FOLDER, test=None).recipe() == named.recipe()
    # The keys that cached corpora and bases are known by.
    cut = module(folder, **OF_FOLDER, validation_fraction=0.2, test=None).recipe()["selection"]
    limits = {"min_tokens": None, "max_tokens": None}
    assert cut == limits | {"validation_fraction": 0.2, "subset": {}, "seed": 0}
    assert Selection().identity().keys() == cut.keys()

"""What a corpus's fingerprint covers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnlight.datamodules import ChunkingDataModule, PlantedEvidence, TextDataModule
from attnlight.errors import InputError


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\na good film,1\nbad,0\n")
    (folder / "test.csv").write_text("text,label\ngood,1\nbad,0\n")
    return folder


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    folder = tmp_path / "columns"
    folder.mkdir()
    (folder / "train").write_text("a B-NP\n\nb O\n")
    (folder / "test").write_text("a O\n")
    return folder


def texts(folder: Path, **options: Any) -> TextDataModule:
    return TextDataModule(path=str(folder), cache_dir=str(folder.parent / "cache"), **options)


def chunks(folder: Path) -> ChunkingDataModule:
    return ChunkingDataModule(path=str(folder), word_column=0, label_column=1)


@pytest.mark.parametrize(
    "stray", ["cache.bin", "data/cache.pkl", "notes.txt", "LICENSE", "cache/x.arrow", "README.md"]
)
def test_files_that_are_not_read_do_not_count(corpus: Path, stray: str) -> None:
    before = texts(corpus).fingerprint
    (corpus / stray).parent.mkdir(exist_ok=True)
    (corpus / stray).write_text("cached")
    assert texts(corpus).fingerprint == before


def test_other_column_files_do_not_count(columns: Path) -> None:
    before = chunks(columns).fingerprint
    (columns / "train.cache").write_text("cached")
    assert chunks(columns).fingerprint == before
    (columns / "test").write_text("b O\n")
    assert chunks(columns).fingerprint != before


def more_rows(folder: Path) -> None:
    (folder / "train.csv").write_text("text,label\na good film,1\nbad,0\nbad,0\n")


def another_file_of_a_split(folder: Path) -> None:
    (folder / "train-1.csv").write_text("text,label\nbad,0\n")


def renamed_file(folder: Path) -> None:
    (folder / "test.csv").rename(folder / "train-1.csv")


def other_files_by_the_card(folder: Path) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {}\n---\n"
    (folder / "README.md").write_text(card.format("test.csv"))


def other_column_types_by_the_card(folder: Path) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files: '*.csv'\n  skiprows: 1\n---\n"
    (folder / "README.md").write_text(card)


@pytest.mark.parametrize(
    "change",
    [
        more_rows,
        another_file_of_a_split,
        renamed_file,
        other_files_by_the_card,
        other_column_types_by_the_card,
    ],
)
def test_what_changes_the_rows_counts(corpus: Path, change: Callable[[Path], None]) -> None:
    before = texts(corpus).fingerprint
    change(corpus)
    assert texts(corpus).fingerprint != before


def test_a_corpus_is_prepared_once_however_many_files_come_beside_it(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        (corpus / f"cache-{number}.npy").write_bytes(b"x")
        texts(corpus).prepare()
    assert capsys.readouterr().err.count("prepared in") == 1


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises(InputError, match="hollow"):
        _ = texts(tmp_path / "hollow").fingerprint


def test_the_version_is_in_front() -> None:
    version, digest = PlantedEvidence().fingerprint.split("-")
    assert version == "v2"
    assert len(digest) == 16
    assert int(digest, 16) >= 0

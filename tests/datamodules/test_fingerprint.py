"""What of a local folder a corpus's fingerprint covers."""

from pathlib import Path

import pytest

from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from tests.datamodules.reading import module


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\na good film,1\nbad,0\n")
    (folder / "test.csv").write_text("text,label\ngood,1\nbad,0\n")
    return folder


CARD = "---\nconfigs:\n- config_name: default\n  data_files:{}\n---\n"
# Content of a file that is added or replaced, and whether it is another corpus then.
CHANGES = {
    "cache.bin": ("cached", False),
    "data/cache.pkl": ("cached", False),
    "notes.txt": ("cached", False),
    "cache/x.arrow": ("cached", False),
    "README.md": ("cached", False),
    "train.csv": ("text,label\na good film,1\nbad,0\nbad,0\n", True),
    "train-1.csv": ("text,label\nbad,0\n", True),
    "./README.md": (CARD.format("\n  - split: train\n    path: test.csv"), True),
    "././README.md": (CARD.format(" '*.csv'\n  skiprows: 1"), True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_rows_counts(corpus: Path, name: str) -> None:
    content, counts = CHANGES[name]
    before = module(corpus).fingerprint
    (corpus / name).parent.mkdir(exist_ok=True)
    (corpus / name).write_text(content)
    assert (module(corpus).fingerprint != before) == counts


def test_a_renamed_file_counts(corpus: Path) -> None:
    before = module(corpus).fingerprint
    (corpus / "test.csv").rename(corpus / "train-1.csv")
    assert module(corpus).fingerprint != before


def test_other_column_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("a B-NP\n\nb O\n")
    (tmp_path / "test").write_text("a O\n")

    def fingerprint() -> str:
        return ChunkingDataModule(path=str(tmp_path), word_column=0, label_column=1).fingerprint

    before = fingerprint()
    (tmp_path / "train.cache").write_text("cached")
    assert fingerprint() == before
    (tmp_path / "test").write_text("b O\n")
    assert fingerprint() != before


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises(InputError, match="hollow"):
        _ = module(tmp_path / "hollow").fingerprint

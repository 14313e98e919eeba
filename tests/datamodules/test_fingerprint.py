"""What a corpus's fingerprint covers, and which ones of its first version are still this corpus's.

The fingerprints of version 1 are what the last commit that made them gave for the same files.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnlight.data.sources import Source
from attnlight.datamodules import ChunkingDataModule, PlantedEvidence, TextDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError

PLANTED, TEXT, TEXT_WITH_STRAY = "9499622afd7849ef", "13ce41c21287df34", "689cc43605bc3243"
HUB, COLUMNS = "5de108358f4f63ab", "1fe9ecc4db03cbb1"


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


class TestFormerVersion:
    def known(self, data: CorpusDataModule, *fingerprints: str) -> list[bool]:
        return [data.matches_fingerprint(fingerprint) for fingerprint in fingerprints]

    def test_of_the_same_source(
        self, corpus: Path, columns: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Source, "splits", lambda _: ["train", "test"])  # of a/b on the hub
        everything = {
            PLANTED: PlantedEvidence(),
            TEXT: texts(corpus),
            HUB: TextDataModule(path="a/b", name="n", cache_dir=str(corpus.parent)),
            COLUMNS: chunks(columns),
        }
        for fingerprint, data in everything.items():
            assert data.matches_fingerprint(fingerprint)
            assert data.matches_fingerprint(data.fingerprint)

    def test_with_a_file_that_version_2_ignores(self, corpus: Path) -> None:
        assert self.known(texts(corpus), TEXT, TEXT_WITH_STRAY) == [True, False]
        (corpus / "cache.bin").write_bytes(b"x")
        assert self.known(texts(corpus), TEXT, TEXT_WITH_STRAY) == [True, True]

    def test_of_another_corpus(self, corpus: Path) -> None:
        more_rows(corpus)
        assert self.known(texts(corpus), TEXT, TEXT_WITH_STRAY, "", "None") == [False] * 4
        assert not PlantedEvidence(corpus_seed=1).matches_fingerprint(PLANTED)
        assert not PlantedEvidence().matches_fingerprint(PlantedEvidence(corpus_seed=1).fingerprint)

    def former(self, data: TextDataModule) -> Path:
        """Make the prepared corpus that of an unknown fingerprint of version 1."""
        prepared = data.prepare()
        return Path(shutil.copytree(prepared, prepared.with_name("textdatamodule-" + "0" * 16)))

    def test_prepared_with_the_same_rows(self, corpus: Path) -> None:
        self.former(texts(corpus))
        assert texts(corpus).matches_fingerprint("0" * 16)
        assert not texts(corpus).matches_fingerprint("1" * 16)

    @pytest.mark.parametrize(
        "options", [{"subset": {"test": 1}}, {"truncate": 2}, {"lowercase": False}, {"test": None}]
    )
    def test_prepared_with_other_rows_or_words(self, corpus: Path, options: dict[str, Any]) -> None:
        (corpus / "test.csv").write_text("text,label\ngood,1\nbad,0\nbad,0\ngood,1\n")
        self.former(texts(corpus))
        assert not texts(corpus, split_seed=1, **options).matches_fingerprint("0" * 16)

    @pytest.mark.parametrize("name", ["corpus.json", "tokenizer.json", "train", "test"])
    def test_prepared_and_damaged(self, corpus: Path, name: str) -> None:
        former = self.former(texts(corpus))
        paths = [former / name] if (former / name).is_file() else (former / name).glob("*.arrow")
        for path in paths:
            path.write_bytes(path.read_bytes()[:10])
        assert not texts(corpus).matches_fingerprint("0" * 16)

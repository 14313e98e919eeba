"""What a corpus's fingerprint covers: options that change its content, and the files of a folder."""

import re
from pathlib import Path
from typing import Any

import pytest

from attnlight.data.sources import Source
from attnlight.datamodules import (
    BabiStories,
    ChunkingDataModule,
    PairDataModule,
    PlantedEvidence,
    TextDataModule,
)
from attnlight.errors import InputError
from tests.datamodules.reading import module

HUB: dict[str, Any] = {"path": "a/b", "train": "train", "test": "test", "validation": "v"}
IN_TEXTS = HUB | {"text": "text", "label": "label"}
TAGGED = HUB | {"word_column": "tokens", "label_column": "tags"}
SENTENCES = IN_TEXTS | {"sentences": "flat", "boundary_tokens": False, "max_sentence_tokens": 9}
REAL = Source("c/d", split="train+test")
# Of each kind of corpus, common options, and options that change its content, each by itself.
OF_TEXTS: dict[str, Any] = {"lowercase": False, "digits": "qqq", "splitting": "words"}
OF_TEXTS |= {"markup": True, "boundary_tokens": False, "truncate": 3, "min_tokens": 1}
OF_TEXTS |= {"max_tokens": 3, "min_document_frequency": 2, "max_vocabulary": 3, "test": "other"}
OF_TEXTS |= {"test_fraction": 0.5, "subset": {"test": 1}, "split_seed": 1, "train": "train[:3]"}
OF_TEXTS |= {"path": "a/c", "text": "body", "label": "y", "line_breaks": True}
OPTIONS: dict[str, tuple[type[Any], dict[str, Any], dict[str, Any]]] = {
    "texts": (TextDataModule, IN_TEXTS, OF_TEXTS | {"marks": {"x": ["y"]}}),
    "classes": (
        TextDataModule,
        IN_TEXTS | {"classes": {"a": 0, "b": 1}},
        {"classes": {"b": 1, "a": 0}},
    ),
    "tokens": (
        TextDataModule,
        HUB | {"tokens": "tokens", "label": "label", "rationale": "marks"},
        {"rationale": None, "rationale_labels": True, "remove": "x", "extras": ["y"]},
    ),
    "sentences": (
        TextDataModule,
        SENTENCES,
        {"language": "de", "max_sentences": 2, "max_sentence_tokens": 2, "cap_test": True},
    ),
    "pairs": (
        PairDataModule,
        HUB | {"evidence": "facts", "label": "answer", "passage": "text", "query": "ask"},
        {"evidence": None, "candidates": "options", "query": "answer", "passage": "story"},
    ),
    "tagged": (ChunkingDataModule, TAGGED, {"target": "marked", "suffixes": [2], "pos": True}),
    "marked": (ChunkingDataModule, TAGGED | {"target": "marked"}, {"mark_seed": 1}),
    "clauses": (ChunkingDataModule, TAGGED | {"target": "sentence"}, {"sentence_chunk": "NP"}),
    "planted": (PlantedEvidence, {}, {"corpus_seed": 1, "sentence_length": 4, "negation": 0.1}),
    "stories": (
        BabiStories,
        {},
        {"task": 2, "corpus_seed": 1, "released": True, "test": REAL, "test_size": 7},
    ),
    "released": (BabiStories, {"test": REAL}, {"released": True, "test": Source("c/e")}),
}
# Options that change nothing, where others are not given.
SAME: dict[str, dict[str, Any]] = {
    "sentences": {"sentences": "nested"},
    "tagged": {"mark_seed": 1, "sentence_chunk": "NP"},
    "released": {"test_size": 7},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_change_the_content_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, common, changes = OPTIONS[name]
    first = kind(**common).fingerprint
    assert re.fullmatch(r"v2-[0-9a-f]{16}", first)
    prints = {kind(**(common | {option: changes[option]})).fingerprint for option in changes}
    assert len(prints - {first}) == len(changes)
    batches = {"batch_size": 7, "seed": 3, "num_workers": 1, "marks": {}}
    for option, value in (batches | SAME.get(name, {})).items():
        assert kind(**(common | {option: value})).fingerprint == first, option
    monkeypatch.setattr("attnlight.data.sentences.version", lambda name: "9.9")
    assert (kind(**common).fingerprint != first) == (name == "sentences")


def test_options_that_are_not_used_are_not_part_of_the_recipe() -> None:
    """So that corpora prepared before there were such options stay."""
    known = ["sources", "extras", "selection", "vocabulary", "rules"]
    assert list(TextDataModule(**IN_TEXTS).recipe()) == known
    assert "target" not in ChunkingDataModule(**TAGGED).recipe()
    assert "sentence_length" not in PlantedEvidence().recipe()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\na good film,1\nbad,0\n")
    (folder / "test.csv").write_text("text,label\ngood,1\nbad,0\n")
    return folder


CARD = "---\nconfigs:\n- config_name: default\n  data_files:{}\n---\n"
# Content of a file that is added or replaced, and whether it is another corpus then.
CACHES = ("cache.bin", "data/cache.pkl", "notes.txt", "cache/x.arrow", "README.md")
CHANGES = dict.fromkeys(CACHES, ("cached", False)) | {
    "train.csv": ("text,label\na good film,1\nbad,0\nbad,0\n", True),
    "train-1.csv": ("text,label\nbad,0\n", True),
    "./README.md": (CARD.format("\n  - split: train\n    path: test.csv"), True),
    "././README.md": (CARD.format(" '*.csv'\n  skiprows: 1"), True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_rows_counts(corpus: Path, name: str) -> None:
    content, counts = CHANGES[name]
    options = {"train": "train", "test": "test", "text": "text", "label": "label"}
    before = module(corpus, **options).fingerprint
    (corpus / name).parent.mkdir(exist_ok=True)
    (corpus / name).write_text(content)
    assert (module(corpus, **options).fingerprint != before) == counts


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

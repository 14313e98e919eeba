"""Whatever befalls a prepared corpus, word vectors or outputs of a base, results stay the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.data.sources import Source
from attnlight.data.word2vec import TrainedVectors, Word2VecSettings
from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError
from attnlight.problems.classification import attended_items
from attnlight.reference import FrozenBase
from tests.bases import Planted, batch_of, save_base
from tests.damage import DAMAGES, folder_for_all, without_rights

FILES = (
    "corpus.json",
    "tokenizer.json",
    "manifest.json",
    "train/state.json",
    "train/dataset_info.json",
    "train/data-00000-of-00001.arrow",
)


def read(cache: Path) -> dict[str, Any]:
    """All that is read of a prepared corpus, through an object of its own."""
    corpus = Planted(cache_dir=str(cache))
    train = corpus.dataset("train")
    batch = train[range(len(train))]
    return {
        "classes": corpus.classes,
        "tokenizer": corpus.tokenizer_json,
        "labels": corpus.label_counts,
        "index": batch.index.numpy().tobytes(),
        "tokens": batch.tokens.numpy().tobytes(),
        "evidence": batch.extras["evidence"].numpy().tobytes(),
        "words": train.words(0),
        "files": {path.name: path.read_bytes() for path in train.folder.glob("*.arrow")},
    }


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_corpus_is_prepared_again(
    tmp_path: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read(tmp_path)
    folder = Planted(cache_dir=str(tmp_path)).prepare()
    capsys.readouterr()
    DAMAGES[damage](folder / name)
    assert read(tmp_path) == before
    lines = capsys.readouterr().err.splitlines()
    # A bit of the manifest may be one of its spaces, or follow what is read of it.
    assert len(lines) == 2 or (not lines and name == "manifest.json")
    assert all(str(folder) in line for line in lines)
    assert read(tmp_path) == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_splits_of_a_hub_corpus_are_asked_for_again(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Source] = []

    def splits(source: Source) -> list[str]:
        requests.append(source)
        return ["train", "dev", "test"]

    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    monkeypatch.setattr(Source, "splits", splits)

    def validation() -> str | None:
        return TextDataModule(path="a/b", cache_dir=str(tmp_path)).sources["validation"].split

    assert [validation() for _ in range(2)] == ["dev", "dev"]
    assert len(requests) == 1
    (file,) = tmp_path.glob("splits-*/names.json")
    DAMAGES[damage](file)
    assert [validation() for _ in range(2)] == ["dev", "dev"]
    assert len(requests) == 2


def test_a_whole_folder_that_is_gone(tmp_path: Path) -> None:
    before = read(tmp_path)
    for path in (Planted(cache_dir=str(tmp_path)).prepare() / "test").iterdir():
        path.unlink()
    assert read(tmp_path) == before


def test_the_corpus_of_another_user() -> None:
    with folder_for_all() as cache:
        before = read(cache)
        with without_rights(cache):
            assert read(cache) == before
        folder = Planted(cache_dir=str(cache)).prepare()
        DAMAGES["bit"](folder / "tokenizer.json")
        with without_rights(cache), pytest.raises(InputError, match=r"tokenizer\.json has changed"):
            read(cache)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often word vectors were trained; each time they are the same."""
    times: list[int] = []

    def train(text: object, settings: Word2VecSettings) -> TrainedVectors:
        times.append(settings.size)
        return TrainedVectors(["a", "b"], np.arange(8, dtype=np.float32).reshape(2, 4))

    monkeypatch.setattr("attnlight.data.word2vec.train_word2vec", train)
    return times


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_word_vectors_are_trained_again(
    tmp_path: Path, damage: str, trained: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Planted(cache_dir=str(tmp_path))
    path = corpus.word_vectors(Word2VecSettings(size=4))
    before = path.read_bytes()
    capsys.readouterr()
    DAMAGES[damage](path)
    for _ in range(2):
        assert corpus.word_vectors(Word2VecSettings(size=4)).read_bytes() == before
    assert trained == [4, 4]
    assert capsys.readouterr().err.count("vectors.bin") == 1


class TestOutputs:
    """What a base says of its corpus's texts, kept beside the corpus."""

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Planted:
        return Planted(cache_dir=str(tmp_path / "cache"))

    def outputs(self, path: Path, corpus: Planted) -> tuple[Path, list[bytes]]:
        store = FrozenBase(path).outputs(corpus, "test")
        result = store.read(*attended_items(batch_of(corpus, "test")))
        return store.folder, [values.numpy().tobytes() for values in result]

    @pytest.mark.parametrize("name", ["keys", "ends", "weights", "logits", "store.json"])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_are_evaluated_again(
        self,
        tmp_path: Path,
        corpus: Planted,
        name: str,
        damage: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        path = save_base(tmp_path / "a.ckpt", corpus)
        folder, before = self.outputs(path, corpus)
        capsys.readouterr()
        DAMAGES[damage](folder / name)
        assert self.outputs(path, corpus) == (folder, before)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert str(folder) in lines[0]
        assert name in lines[0]

    def test_damaged_without_the_checkpoint(self, tmp_path: Path, corpus: Planted) -> None:
        path = save_base(tmp_path / "a.ckpt", corpus)
        reference = FrozenBase(path)
        folder = reference.outputs(corpus, "test").folder
        path.unlink()
        DAMAGES["bit"](folder / "weights")
        with pytest.raises(InputError, match="there is no checkpoint"):
            FrozenBase(path, reference.identity).outputs(corpus, "test")

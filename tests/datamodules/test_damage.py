"""Whatever befalls a prepared corpus, word vectors or outputs of a base, results stay the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlight.errors import InputError
from attnlight.problems.classification import Classification
from attnlight.reference import FrozenBase
from tests.bases import Planted, batch_of, save_base
from tests.damage import DAMAGES

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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with a prepared corpus, and all that is read of it."""
    cache = tmp_path_factory.mktemp("prepared")
    return cache, read(cache)


def by_halves(*names: str) -> list[tuple[str, str]]:
    """Every second pair of a name and a kind of damage, as on a chessboard."""
    return [(name, each) for n, name in enumerate(names) for each in [*DAMAGES][n % 2 :: 2]]


@pytest.mark.parametrize(("name", "damage"), by_halves(*FILES))
def test_a_damaged_corpus_is_prepared_again(
    tmp_path: Path, name: str, damage: str, prepared: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    complete, before = prepared
    shutil.copytree(complete, tmp_path, dirs_exist_ok=True)
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


class TestOutputs:
    """What a base says of its corpus's texts, kept beside the corpus."""

    @pytest.fixture
    def corpus(self, tmp_path: Path, prepared: Any) -> Planted:
        return Planted(cache_dir=str(shutil.copytree(prepared[0], tmp_path / "cache")))

    def outputs(self, path: Path, corpus: Planted) -> tuple[Path, list[bytes]]:
        store = FrozenBase(path).outputs(corpus, "test")
        batch = batch_of(corpus, "test")
        rows, mask = Classification.instances(batch)
        result = store.attention(rows, mask), store.logits(rows, batch)
        return store.folder, [values.numpy().tobytes() for values in result]

    @pytest.mark.parametrize(
        ("name", "damage"), by_halves("keys", "ends", "weights", "logits", "store.json")
    )
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

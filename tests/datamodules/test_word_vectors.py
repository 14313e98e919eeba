import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from attnlight.data.word2vec import CorpusText, TrainedVectors, Word2VecSettings, train_word2vec
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.models import read_vectors

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14) and find_spec("gensim") is None,
    reason="gensim has no wheels for this Python",
)
SETTINGS = Word2VecSettings(size=8, epochs=2)


def corpus(cache: Path) -> PlantedEvidence:
    return PlantedEvidence(
        train_size=120, validation_size=30, test_size=30, cache_dir=str(cache / "cache")
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Word2VecSettings]:
    """The settings of each training, in order."""
    settings: list[Word2VecSettings] = []

    def train(documents: Iterable[Sequence[str]], asked: Word2VecSettings) -> TrainedVectors:
        settings.append(asked)
        return train_word2vec(documents, asked)

    monkeypatch.setattr("attnlight.data.word2vec.train_word2vec", train)
    return settings


def test_file_holds_what_training_on_the_text_gives(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    expected = train_word2vec(CorpusText([data.training_text]), SETTINGS)
    vocabulary = Tokenizer.from_str(data.tokenizer_json).get_vocab()
    matrix, found = read_vectors(data.word_vectors(SETTINGS), vocabulary)
    rows = [vocabulary[word] for word in expected.words]
    np.testing.assert_array_equal(matrix[rows].numpy(), expected.matrix)
    assert set(np.flatnonzero(found).tolist()) == set(rows)
    assert not found[:4].any(), "no special token has a vector"


def test_trained_once_for_equal_corpus_and_settings(
    tmp_path: Path, trained: list[Word2VecSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    first = corpus(tmp_path).word_vectors(SETTINGS)
    assert corpus(tmp_path).word_vectors(Word2VecSettings(size=8, epochs=2)) == first
    assert trained == [SETTINGS]
    assert capsys.readouterr().err.count("training word vectors") == 1
    other = Word2VecSettings(size=8, epochs=2, seed=1)
    assert corpus(tmp_path).word_vectors(other) != first
    assert trained == [SETTINGS, other]


def test_vectors_outlive_a_corpus_that_is_prepared_again(
    tmp_path: Path, trained: list[Word2VecSettings]
) -> None:
    data = corpus(tmp_path)
    path = data.word_vectors(SETTINGS)
    (data.prepare() / "corpus.json").unlink()
    assert corpus(tmp_path).word_vectors(SETTINGS) == path
    corpus(tmp_path).prepare()
    assert path.is_file()
    assert len(trained) == 1


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    with pytest.raises(InputError, match="min_count = 100000"):
        data.word_vectors(Word2VecSettings(min_count=100_000))
    left = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert left == [data.prepare().name]

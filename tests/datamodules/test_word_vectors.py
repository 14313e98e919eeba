from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tokenizers import Tokenizer

from attnlight.data.word2vec import CorpusText, Word2VecSettings, train_word2vec
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.models import read_vectors
from tests.data.local import needs_gensim

pytestmark = needs_gensim
SETTINGS = Word2VecSettings(size=8, epochs=2)
SIZES = {"train_size": 120, "validation_size": 30, "test_size": 30}


def corpus(cache: Path) -> PlantedEvidence:
    return PlantedEvidence(**SIZES, cache_dir=str(cache / "cache"))


def test_file_holds_what_training_on_the_text_gives(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    expected = train_word2vec(CorpusText([data.training_text]), SETTINGS)
    vocabulary = Tokenizer.from_str(data.tokenizer_json).get_vocab()
    matrix, found = read_vectors(data.word_vectors(SETTINGS), vocabulary)
    rows = [vocabulary[word] for word in expected.index_to_key]
    np.testing.assert_array_equal(matrix[rows].numpy(), expected.vectors)
    assert set(np.flatnonzero(found).tolist()) == set(rows)
    assert not found[:4].any(), "no special token has a vector"


def test_trained_once_for_equal_corpus_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = Mock(side_effect=train_word2vec)
    monkeypatch.setattr("attnlight.datamodules.base.train_word2vec", train)
    first = corpus(tmp_path).word_vectors(SETTINGS)
    (corpus(tmp_path).prepare() / "corpus.json").unlink()  # the corpus is prepared again
    assert corpus(tmp_path).word_vectors(Word2VecSettings(size=8, epochs=2)) == first
    assert first.is_file()
    assert capsys.readouterr().err.count("training word vectors") == train.call_count == 1
    other = Word2VecSettings(size=8, epochs=2, seed=1)
    assert corpus(tmp_path).word_vectors(other) != first
    assert [call.args[1] for call in train.call_args_list] == [SETTINGS, other]


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    with pytest.raises(InputError, match="min_count = 100000"):
        data.word_vectors(Word2VecSettings(min_count=100_000))
    left = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert left == [data.prepare().name]

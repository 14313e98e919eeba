import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.word2vec import CorpusText, Word2VecSettings, train_word2vec
from attnlight.datamodules import CorpusDataModule, PlantedEvidence, TextDataModule
from attnlight.errors import InputError
from attnlight.models import read_vectors
from tests.data.local import write_corpus

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14) and find_spec("gensim") is None,
    reason="gensim has no wheels for this Python",
)
SMALL = Word2VecSettings(size=12, epochs=3, min_count=2)
WORDS = [f"w{number}" for number in range(40)]
PROGRAM = """
import json, sys
from attnlight.data.word2vec import Word2VecSettings, train_word2vec
documents, settings = json.load(sys.stdin)
print(train_word2vec(documents, Word2VecSettings(**settings)).matrix.tobytes().hex())
"""


def documents() -> list[list[str]]:
    """Documents of 40 words, word k about k + 1 times in 800; the last word once."""
    random = np.random.default_rng(0)
    share = np.arange(1, 40) / np.arange(1, 40).sum()
    texts = [random.choice(WORDS[:39], size, p=share) for size in random.integers(1, 30, 100)]
    return [*(text.tolist() for text in texts), [], ["w39", "w0", "w1"]]


def unequal_counts(texts: list[list[str]]) -> list[list[str]]:
    """The same with more of some words, so that no two occur equally often."""
    counts = Counter(word for text in texts for word in text)
    taken: set[int] = set()
    for word, count in counts.items():
        goal = next(n for n in itertools.count(count) if n not in taken)
        taken.add(goal)
        texts.append([word] * (goal - count))
    return texts


def planted() -> PlantedEvidence:
    return PlantedEvidence(train_size=120, validation_size=30, test_size=30)


def text_of(*corpora: CorpusDataModule) -> CorpusText:
    return CorpusText([corpus.training_text for corpus in corpora])


class TestTraining:
    def test_is_that_of_gensim(self) -> None:
        """gensim on words with its own vocabulary, where no tie leaves its order open."""
        from gensim.models import Word2Vec

        texts = unequal_counts(documents())
        ours = train_word2vec(texts, SMALL)
        texts = [text for text in texts if text]
        theirs = Word2Vec(texts, vector_size=12, epochs=3, min_count=2, seed=0, workers=1)
        assert len(theirs.wv) == 39
        assert ours.words == theirs.wv.index_to_key
        np.testing.assert_array_equal(ours.matrix, theirs.wv.vectors)

    def test_is_equal_in_another_process(self) -> None:
        """Whose hashes of strings are others."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps([documents(), asdict(SMALL)]),
            env=os.environ | {"PYTHONHASHSEED": "11"},
            capture_output=True,
            text=True,
            check=True,
        )
        here = train_word2vec(documents(), SMALL).matrix
        assert done.stdout.strip() == here.tobytes().hex()

    def test_seed_decides(self) -> None:
        first, other = (
            train_word2vec(documents(), Word2VecSettings(12, 3, min_count=2, seed=seed))
            for seed in (0, 1)
        )
        assert first.words == other.words
        assert np.abs(first.matrix - other.matrix).max() > 1e-3

    def test_words_are_ranked_by_count_then_alphabet(self) -> None:
        texts = [["c", "b", "a"], ["c", "b", "a"], ["a", "c", "d"]]
        vectors = train_word2vec(texts, Word2VecSettings(4, 1, min_count=2))
        assert vectors.words == ["a", "c", "b"]
        assert vectors.matrix.shape == (3, 4)
        assert vectors.matrix.dtype == np.float32

    def test_nothing_of_a_long_document_is_dropped(self) -> None:
        """gensim reads 10,000 words of a sentence; what follows moves no vector there."""
        half, other = [*"abcd"] * 2500, [*"efgh"] * 2500
        long = train_word2vec([half + other], SMALL)
        in_two = train_word2vec([half, other], SMALL)
        np.testing.assert_array_equal(long.matrix, in_two.matrix)
        start = np.random.default_rng(0).random((8, 12), dtype=np.float32) * 2 - 1
        assert (np.abs(long.matrix - start / 12).max(axis=1) > 0.01).all()

    def test_no_window_reaches_over_the_end_of_a_document(self) -> None:
        """Words that never stand together: a window over two documents would train them."""
        settings = Word2VecSettings(size=12, epochs=1, min_count=1)
        alone = train_word2vec([["a"], ["b"], ["c"]] * 50, settings)
        start = np.random.default_rng(0).random((3, 12), dtype=np.float32) * 2 - 1
        np.testing.assert_allclose(alone.matrix, start / 12, rtol=1e-6)

    def test_words_of_like_contexts_are_near(self) -> None:
        random = np.random.default_rng(0)
        texts = [
            [f"{topic}{word}" for word in random.integers(0, 10, 20)]
            for topic in random.integers(0, 2, 300)
        ]
        vectors = train_word2vec(texts, Word2VecSettings(size=10, epochs=5))
        unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
        topics = np.array([word[0] for word in vectors.words])
        same = topics[:, None] == topics
        near = unit @ unit.T
        assert near[same].mean() > near[~same].mean() + 0.5

    def test_says_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        train_word2vec(documents(), SMALL)
        assert capfd.readouterr() == ("", "")

    def test_without_a_word_is_refused(self) -> None:
        with pytest.raises(InputError, match="no word of the text occurs min_count = 5 times"):
            train_word2vec([["a", "b"], ["a"]], Word2VecSettings())

    def test_without_gensim_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gensim", None)
        with pytest.raises(InputError, match=r"needs gensim: pip install attnlight\[vectors\]\."):
            train_word2vec(documents(), SMALL)


@pytest.mark.parametrize("name", ["size", "epochs", "window", "min_count"])
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0; it must be at least 1"):
        Word2VecSettings(**{name: 0})


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=f"seed is {seed}; it must be from 0 to 4294967295"):
        Word2VecSettings(seed=seed)


class TestText:
    def test_is_that_of_training_and_validation(self, tmp_path: Path) -> None:
        folder = write_corpus(
            tmp_path / "corpus",
            train={"text": ["A good film", "bad <br /> film", "..."], "label": [1, 0, 1]},
            validation={"text": ["good unseen", "bad"], "label": [1, 0]},
            test={"text": ["film tested", "bad"], "label": [1, 0]},
        )
        rules = {"validation": "validation", "splitting": "words", "markup": True}
        corpus = TextDataModule(str(folder), cache_dir=str(tmp_path / "cache"), **rules)
        text = text_of(corpus)
        # Neither boundary tokens nor the unknown one, for which "..." and "unseen" stand.
        expected = [["a", "good", "film"], ["bad", "film"], [], ["good"], ["bad"]]
        assert list(text) == expected
        assert list(text) == expected, "a second pass"

    def test_is_read_sentence_by_sentence_where_the_corpus_has_sentences(
        self, tmp_path: Path
    ) -> None:
        texts = ["It was a good film. It was long.", "Bad."]
        folder = write_corpus(tmp_path / "corpus", train={"text": texts, "label": [1, 0]})
        rules = {"test": None, "splitting": "words", "boundary_tokens": False}
        rules["cache_dir"] = str(tmp_path / "cache")
        whole = [["it", "was", "a", "good", "film", "it", "was", "long"], ["bad"]]
        assert list(text_of(TextDataModule(str(folder), **rules))) == whole
        split = [whole[0][:5], whole[0][5:], ["bad"]]
        for sentences in ("flat", "nested"):
            corpus = TextDataModule(str(folder), sentences=sentences, **rules)
            assert list(text_of(corpus)) == split

    def test_corpora_follow_each_other_in_their_own_words(self, tmp_path: Path) -> None:
        def corpus(name: str, *texts: str) -> TextDataModule:
            rows = {"text": list(texts), "label": [0, 1]}
            folder = write_corpus(tmp_path / name, train=rows)
            return TextDataModule(str(folder), test=None, cache_dir=str(tmp_path / "cache"))

        text = text_of(corpus("first", "a b", "b c"), corpus("second", "d c", "c c"))
        assert [" ".join(words) for words in text] == ["a b", "b c", "d c", "c c"]

    def test_has_no_special_tokens(self) -> None:
        assert not {word for words in text_of(planted()) for word in words} & set(SPECIAL_TOKENS)


class TestFile:
    @pytest.fixture(params=[False, True], ids=["text", "binary"])
    def written(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> tuple[Path, list[str], NDArray[np.float32]]:
        texts = [[f"é{word}" for word in text] for text in documents()]
        vectors = train_word2vec(texts, SMALL)
        vectors.matrix[0, :4] = [1e-30, -3.4e38, 1 / 3, 16777217]
        vectors.write(tmp_path / "file", binary=request.param)
        return tmp_path / "file", vectors.words, vectors.matrix

    def test_is_read_to_the_last_bit(
        self, written: tuple[Path, list[str], NDArray[np.float32]]
    ) -> None:
        path, words, matrix = written
        read = read_vectors(path, {word: number for number, word in enumerate(words)})
        assert read.covered.all()
        np.testing.assert_array_equal(read.matrix.numpy(), matrix)

    def test_is_read_by_gensim(self, written: tuple[Path, list[str], NDArray[np.float32]]) -> None:
        from gensim.models import KeyedVectors

        path, words, matrix = written
        binary = b"\x00" in path.read_bytes()
        read = KeyedVectors.load_word2vec_format(path, binary=binary)
        assert read.index_to_key == words
        np.testing.assert_array_equal(read.vectors, matrix)

import itertools
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.data.word2vec import CorpusText, Word2VecSettings, train_word2vec
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.errors import InputError
from attnlight.models import read_vectors
from tests.commands import in_forks
from tests.data.local import needs_gensim, write_corpus

pytestmark = needs_gensim
SMALL = Word2VecSettings(size=12, epochs=3, min_count=2)
WORDS = [f"w{number}" for number in range(40)]


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


def train(_: list[str]) -> int:
    print(train_word2vec(documents(), SMALL).vectors.tobytes().hex())
    return 0


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
        assert ours.index_to_key == theirs.wv.index_to_key
        np.testing.assert_array_equal(ours.vectors, theirs.wv.vectors)

    def test_is_equal_in_another_process(self, tmp_path: Path) -> None:
        """Whose hashes of strings are others."""
        done = in_forks(train, [], cwd=tmp_path, environments=[dict(os.environ)])
        assert done == ([0], f"{train_word2vec(documents(), SMALL).vectors.tobytes().hex()}\n")

    def test_words_are_ranked_by_count_then_alphabet(self) -> None:
        texts = [["c", "b", "a"], ["c", "b", "a"], ["a", "c", "d"]]
        found = train_word2vec(texts, Word2VecSettings(4, 1, min_count=2))
        assert found.index_to_key == ["a", "c", "b"]

    def test_nothing_of_a_long_document_is_dropped(self) -> None:
        """gensim reads 10,000 words of a sentence; what follows moves no vector there."""
        half, other = [*"abcd"] * 2500, [*"efgh"] * 2500
        long = train_word2vec([half + other], SMALL)
        in_two = train_word2vec([half, other], SMALL)
        np.testing.assert_array_equal(long.vectors, in_two.vectors)
        start = np.random.default_rng(0).random((8, 12), dtype=np.float32) * 2 - 1
        assert (np.abs(long.vectors - start / 12).max(axis=1) > 0.01).all()

    def test_no_window_reaches_over_the_end_of_a_document(self) -> None:
        """Words that never stand together: a window over two documents would train them."""
        settings = Word2VecSettings(size=12, epochs=1, min_count=1)
        alone = train_word2vec([["a"], ["b"], ["c"]] * 50, settings)
        start = np.random.default_rng(0).random((3, 12), dtype=np.float32) * 2 - 1
        np.testing.assert_allclose(alone.vectors, start / 12, rtol=1e-6)

    def test_without_a_word_or_gensim_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InputError, match="no word of the text occurs min_count = 5 times"):
            train_word2vec([["a", "b"], ["a"]], Word2VecSettings())
        monkeypatch.setitem(sys.modules, "gensim", None)
        with pytest.raises(InputError, match=r"needs gensim: pip install attnlight\[vectors\]\."):
            train_word2vec(documents(), SMALL)


class TestText:
    @staticmethod
    def corpus(folder: Path, texts: dict[str, list[str]], **options: Any) -> TextDataModule:
        rows = {split: {"text": some, "label": [0, 1]} for split, some in texts.items()}
        given = {"test": None, "splitting": "words", "cache_dir": str(folder / "cache")} | options
        return TextDataModule(str(write_corpus(folder, **rows)), **given)

    def test_is_that_of_training_and_validation(self, tmp_path: Path) -> None:
        texts = {"train": ["A good film <br />", "..."], "validation": ["good unseen", "bad"]}
        texts["test"] = ["film tested", "bad"]
        text = text_of(self.corpus(tmp_path / "c", texts, test="test", markup=True))
        # Neither boundary tokens nor the unknown one, for which "..." and "unseen" stand.
        expected = [["a", "good", "film"], [], ["good"], []]
        assert list(text) == expected
        assert list(text) == expected, "a second pass"

    def test_is_read_by_sentence_where_the_corpus_has_sentences(self, tmp_path: Path) -> None:
        texts = {"train": ["It was a good film. It was long.", "Bad."]}
        whole = [["it", "was", "a", "good", "film", "it", "was", "long"], ["bad"]]
        split = [whole[0][:5], whole[0][5:], ["bad"]]
        for sentences, expected in (("none", whole), ("flat", split), ("nested", split)):
            options = {"sentences": sentences, "boundary_tokens": False}
            assert list(text_of(self.corpus(tmp_path / "c", texts, **options))) == expected

    def test_corpora_follow_each_other_in_their_own_words(self, tmp_path: Path) -> None:
        first, second = (
            self.corpus(tmp_path / name, {"train": texts})
            for name, texts in (("one", ["a b", "b c"]), ("two", ["d c", "c c"]))
        )
        assert list(map(" ".join, text_of(first, second))) == ["a b", "b c", "d c", "c c"]


@pytest.mark.parametrize("binary", [False, True])
def test_a_file_is_read_to_the_last_bit(binary: bool, tmp_path: Path) -> None:
    trained = train_word2vec([[f"é{word}" for word in text] for text in documents()], SMALL)
    trained.vectors[0, :4] = [1e-30, -3.4e38, 1 / 3, 16777217]
    trained.save_word2vec_format(tmp_path / "file", binary=binary)
    read = read_vectors(tmp_path / "file", trained.key_to_index)
    assert read.covered.all()
    np.testing.assert_array_equal(read.matrix.numpy(), trained.vectors)

"""What a problem says of its corpus, by name."""

import pytest

from attnlight.errors import InputError
from attnlight.problems import PROBLEMS, Classification, Pairs, Problem, Tagging, problem_class
from tests.bases import spec


def test_registered_names() -> None:
    assert {"classification": Classification, "pairs": Pairs, "tagging": Tagging} == PROBLEMS
    assert all(problem_class(name) is kind for name, kind in PROBLEMS.items())
    assert problem_class("tests.tasks.sentences.Sentences").name == "sentences"
    for wrong in ("classfication", "attnlight.problems.Words", "nowhere.Problem"):
        with pytest.raises(InputError, match=wrong):
            problem_class(wrong)


def test_monitors() -> None:
    assert Classification.monitor == ("val/accuracy", "max")
    assert Tagging.monitor == ("val/f1", "max")


@pytest.mark.parametrize("kind", PROBLEMS.values())
class TestDifference:
    own = spec(9, ["O", "B-NP"], features={"case": 3})

    def test_of_equal_corpora(self, kind: type[Problem]) -> None:
        assert kind(self.own).difference(dict(self.own)) is None

    @pytest.mark.parametrize(
        "change", [{"vocab_size": 8}, {"classes": ["O", "B-NP", "I-NP"]}, {"features": {"case": 4}}]
    )
    def test_of_others(self, kind: type[Problem], change: dict[str, object]) -> None:
        found = kind(self.own).difference(self.own | change)
        assert (found is None) == (not kind.tags and "features" in change)


def test_words() -> None:
    words = Classification.words(["negative", "positive"])
    assert (words.instance, words.cluster, words.quality) == ("text", "text", "F1 of positive")
    assert Classification.words(["a", "b", "c"]).quality == "macro F1"
    words = Tagging.words([])
    assert (words.instance, words.cluster, words.guided) == ("token", "sentence", "a tagger")
    assert (words.quality, words.criterion) == ("chunk F1", "chunk F1")
    other = Tagging.words([], target="marked")
    assert (other.quality, other.criterion) == ("accuracy", "macro F1")

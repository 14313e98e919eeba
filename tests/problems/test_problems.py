"""What a problem says of its corpus, by name."""

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from attnlight.batch import NOT_ALLOWED, AttentionOutput
from attnlight.errors import InputError
from attnlight.problems import (
    PROBLEMS,
    Classification,
    Pairs,
    Problem,
    Tagging,
    Translation,
    problem_class,
)
from tests.bases import spec


def test_registered_names() -> None:
    kinds = Classification, Pairs, Tagging, Translation
    assert (
        dict(zip(("classification", "pairs", "tagging", "translation"), kinds, strict=True))
        == PROBLEMS
    )
    assert all(problem_class(name) is kind for name, kind in PROBLEMS.items())
    assert problem_class("tests.tasks.sentences.Sentences").name == "sentences"
    for wrong in ("classfication", "attnlight.problems.Words", "nowhere.Problem"):
        with pytest.raises(InputError, match=wrong):
            problem_class(wrong)
    with pytest.raises(InputError, match=r"no problem 'pair' \(did you mean 'pairs'\?\)"):
        problem_class("pair")


def test_monitors() -> None:
    assert Classification.monitor == Pairs.monitor == ("val/accuracy", "max")
    assert Tagging.monitor == ("val/f1", "max")
    assert Translation.monitor == ("val/loss", "min")


def test_taggers_and_translations_have_several_instances_a_text() -> None:
    sentences = problem_class("tests.tasks.sentences.Sentences")
    several = {kind for kind in (*PROBLEMS.values(), sentences) if kind.several_instances()}
    assert several == {Tagging, Translation, sentences}


@pytest.mark.parametrize("kind", PROBLEMS.values())
class TestDifference:
    base = spec(9, ["O", "B-NP"], features={"case": 3})

    def test_of_equal_corpora(self, kind: type[Problem]) -> None:
        own = self.base | {"query": kind.query}
        assert kind(own).difference(dict(own)) is None

    def test_of_a_corpus_with_queries_and_one_without(self, kind: type[Problem]) -> None:
        had = "pairs of a passage and a query", "single texts"
        message = f"is for {had[not kind.query]}, but the corpus in `data` has {had[kind.query]}: "
        with pytest.raises(InputError, match=message):
            kind(self.base | {"query": not kind.query})

    @pytest.mark.parametrize(
        "change", [{"vocab_size": 8}, {"classes": ["O", "B-NP", "I-NP"]}, {"features": {"case": 4}}]
    )
    def test_of_others(self, kind: type[Problem], change: dict[str, object]) -> None:
        own = self.base | {"query": kind.query}
        found = kind(own).difference(own | change)
        assert (found is None) == (not kind.tags and "features" in change)


def test_words() -> None:
    words = Classification.words(["negative", "positive"])
    assert (words.instance, words.cluster, words.quality) == ("text", "text", "F1 of positive")
    assert Classification.words(["a", "b", "c"]).quality == "macro F1"
    words = Pairs.words(["no", "yes"])
    assert (words.problem, words.instance, words.cluster) == ("pairs", "pair", "pair")
    assert words.quality == words.criterion == "accuracy"
    words = Tagging.words(["O", "B-NP"])
    assert (words.instance, words.cluster, words.guided) == ("token", "sentence", "a tagger")
    assert (words.quality, words.criterion) == ("chunk F1", "chunk F1")
    for other in (Tagging.words(["O", "B-NP"], "marked"), Tagging.words(["NOUN", "VERB"])):
        assert (other.quality, other.criterion) == ("accuracy", "macro F1")


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_pairs(classes: int) -> None:
    """Accuracy, and F1 as the mean over the classes that occur, by scikit-learn."""
    random = torch.Generator().manual_seed(0)
    occurring = classes if classes == 2 else classes - 1
    labels = torch.randint(0, occurring, (40,), generator=random)
    allowed = torch.rand(40, classes, generator=random) < 0.7
    allowed[:, occurring:] = False
    allowed[torch.arange(40), labels] = True
    logits = torch.randn(40, classes, generator=random).masked_fill(~allowed, NOT_ALLOWED)
    real = torch.rand(40, generator=random) < 0.8
    problem = Pairs(spec(9, classes, query=True))
    metrics, nothing = problem.metrics(), torch.zeros(0)
    rows = torch.zeros(40, 2, dtype=torch.long)
    for part in (slice(0, 17), slice(17, 40)):
        output = AttentionOutput(rows[part], logits[part], nothing, None, *[nothing] * 3)
        problem.update(metrics, output, labels[part], real[part])
    predicted, found = logits[real].argmax(-1), metrics.compute()
    assert found["accuracy"].item() == pytest.approx(accuracy_score(labels[real], predicted))
    f1 = f1_score(labels[real], predicted, average="macro")
    assert found["f1_macro"].item() == pytest.approx(f1)
    assert set(found) == {"accuracy", "f1_macro"}

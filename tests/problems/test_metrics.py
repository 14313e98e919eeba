"""Macro F1 against torchmetrics, scores of chunks against seqeval, over batches and devices."""

import copy

import numpy as np
import pytest
import torch
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from torchmetrics.classification import MulticlassF1Score

from attnlight.data.bio import tag_scheme
from attnlight.errors import InputError
from attnlight.problems import Tagging
from attnlight.problems.metrics import MacroAUROC, MacroF1, SpanMetric, SpanScore
from tests.bases import spec
from tests.functional.test_chunks import TAGS, drawn, flat


@pytest.mark.parametrize("classes", [2, 3, 40])
@pytest.mark.parametrize("probabilities", [True, False])
def test_is_that_of_torchmetrics(classes: int, probabilities: bool) -> None:
    torch.manual_seed(classes)
    ours, theirs = MacroF1(classes), MulticlassF1Score(classes, average="macro")
    for size in (1, 7, 30):
        scores, target = torch.rand(size, classes), torch.randint(classes, (size,))
        theirs.update(scores, target)
        given = scores if classes > 2 or not probabilities else scores.softmax(-1)[:, 1]
        ours.update(given if probabilities else scores.argmax(-1), target)
        assert float(ours.compute()) == pytest.approx(float(theirs.compute()), abs=1e-6)
    ours.reset()
    assert float(ours.compute()) == 0


def test_memory_grows_with_the_classes_and_not_with_their_pairs() -> None:
    metric = MacroF1(1_000_000)
    metric.update(torch.tensor([5, 999_999, 7]), torch.tensor([5, 999_999, 8]))
    assert float(metric.compute()) == pytest.approx(2 / 4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lacking", [(), (2,), (0, 3)])
def test_auroc_is_of_classes_that_occur(lacking: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    scores = torch.rand(60, 4).softmax(-1)
    target = torch.tensor([label for label in range(4) if label not in lacking])[
        torch.randint(4 - len(lacking), (60,))
    ]
    metric = MacroAUROC(4)
    for part in torch.arange(60).split(25):
        metric.update(scores[part], target[part])
    wins = []  # of pairs of a text of the class and another
    for label in sorted(set(target.tolist())):
        own, others = scores[target == label, label], scores[target != label, label]
        wins.append((own[:, None] > others).double().mean())
    assert float(metric.compute()) == pytest.approx(float(torch.stack(wins).mean()), abs=1e-6)
    one = MacroAUROC(4)
    one.update(scores, torch.zeros(60, dtype=torch.long))
    assert one.compute().isnan()


def test_scores_of_batches_are_those_of_seqeval() -> None:
    predicted, target = drawn(200, seed=3)
    metrics = Tagging(spec(9, TAGS)).metrics()
    for start in range(0, 200, 30):
        tags, begins = flat(predicted[start : start + 30])
        metrics.update(preds=tags, target=flat(target[start : start + 30])[0], begins=begins)
    expected = {
        "accuracy": accuracy_score(target, predicted),
        "precision": precision_score(target, predicted),
        "recall": recall_score(target, predicted),
        "f1": f1_score(target, predicted),
    }
    found = {name: float(value) for name, value in metrics.compute().items()}
    assert found == pytest.approx(expected, abs=1e-6)


def test_counts_of_devices_add_up_exactly() -> None:
    """Far beyond what single precision can count."""
    parts = [SpanMetric(TAGS, "f1") for _ in range(2)]
    nothing = torch.zeros(0, dtype=torch.long)
    for number, part in enumerate(parts):
        part.update(nothing, nothing, nothing.bool())
        part.counts = torch.tensor([2**24 + number, 2**25, 2**25 + 1])
    whole = copy.deepcopy(parts[0])
    whole.merge_state(parts[1])
    assert whole.counts.tolist() == [2**25 + 1, 2**26, 2**26 + 2]
    assert whole.counts.dtype == torch.long
    expected = 2 * (2**25 + 1) / (2**26 + 2**26 + 2)
    assert float(whole.compute()) == expected


@pytest.mark.parametrize("score", ["precision", "recall", "f1"])
def test_nothing_to_divide_by_is_zero(score: SpanScore) -> None:
    scored = SpanMetric(TAGS, score)
    scored.update(torch.zeros(3).long(), torch.zeros(3).long(), torch.tensor([True, False, False]))
    assert float(scored.compute()) == 0.0


def test_metrics_share_one_state() -> None:
    metrics = Tagging(spec(9, TAGS)).metrics()
    tags, begins = flat([["B-NP", "I-NP"]])
    metrics.update(preds=tags, target=tags, begins=begins)
    groups = {tuple(sorted(group)) for group in metrics.compute_groups.values()}
    assert ("f1", "precision", "recall") in groups


def test_a_tag_of_another_scheme_is_refused() -> None:
    scheme = tag_scheme(["I-B-x", "O", "B-a-b"])
    assert scheme.chunk.tolist() == [0, -1, 1]
    assert scheme.inside.tolist() == [True, False, False]
    assert tag_scheme(["I-x", "S-x", "L-x"]).last.tolist() == [False, True, True]
    with pytest.raises(InputError, match="'NOUN' is not of the BIO scheme"):
        SpanMetric(["O", "NOUN"], "f1")


def test_plain_tags_have_no_spans() -> None:
    metrics = Tagging(spec(9, ["ADJ", "NOUN", "VERB"])).metrics()
    tags = torch.tensor([0, 1, 2, 2])
    metrics.update(preds=tags, target=torch.tensor([0, 1, 1, 2]), begins=tags == 0)
    found = {name: float(value) for name, value in metrics.compute().items()}
    # F1 of ADJ is 1, of NOUN and VERB 2/3 each
    assert found == pytest.approx({"accuracy": 0.75, "f1": 7 / 9}, abs=1e-6)
    numbers = np.array([0, 1])
    assert Tagging.chunks(numbers, numbers, numbers[:1], ["NOUN", "VERB"], "tokens") is None

"""The adversary's objective, by hand, and what it does to a model."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import BaseDivergence
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.tasks import AdversarialVariant, AttentionClassifier
from attnlight.tasks.adversarial import attention_term, prediction_term
from tests.bases import Planted, batch_of, classifier, running, save, save_base, trainer
from tests.commands import CONFIGS, QUIET, attnlight_on_one, attnlight_on_two, experiment


@pytest.fixture(scope="module")
def corpora() -> dict[str, Planted]:
    return {
        "two": Planted(),
        "three": Planted(num_classes=3),
        "sentences": Planted(True, num_classes=3),
    }


@pytest.fixture(scope="module")
def corpus(corpora: dict[str, Planted]) -> Planted:
    return corpora["two"]


@pytest.fixture
def base(tmp_path: Path, corpus: Planted) -> Path:
    return save_base(tmp_path / "base.ckpt", corpus, encoder="none", attention="dot")


def adversary(
    corpus: PlantedEvidence, base: Path, lambda_: float, **options: Any
) -> AdversarialVariant:
    torch.manual_seed(1)
    return AdversarialVariant(corpus.spec, str(base), lambda_, **options)


class TestTerms:
    """By hand, on p = (1/2, 1/2) against q = (3/4, 1/4)."""

    p, q = torch.tensor([[[0.5, 0.5, 0.0]]]), torch.tensor([[[0.75, 0.25, 0.0]]])

    def test_kl_is_of_the_new_from_the_base_s(self) -> None:
        by_hand = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)
        assert float(attention_term(self.p, self.q, "kl")) == pytest.approx(by_hand, rel=1e-6)

    def test_js(self) -> None:
        by_hand = jensenshannon([0.5, 0.5], [0.75, 0.25]) ** 2
        assert float(attention_term(self.p, self.q, "js")) == pytest.approx(by_hand, rel=1e-6)

    def test_tvd(self) -> None:
        assert float(attention_term(self.p, self.q, "tvd")) == pytest.approx(0.25)

    @pytest.mark.parametrize("term", ["kl", "js", "tvd"])
    def test_mean_over_heads(self, term: Any) -> None:
        both, same = torch.cat([self.p, self.q], 1), torch.cat([self.q, self.q], 1)
        one = attention_term(self.p, self.q, term)
        torch.testing.assert_close(attention_term(both, same, term), one / 2)

    def test_predictions(self) -> None:
        logits, base = (
            torch.tensor([[0.0, math.log(4), 0.0]]),
            torch.tensor([[0.0, 0.0, math.log(2)]]),
        )
        # (1, 4, 1) / 6 against (1, 1, 2) / 4
        assert float(prediction_term(logits, base, "nll")) == pytest.approx(math.log(6), rel=1e-6)
        by_hand = (1 / 12 + 5 / 12 + 1 / 3) / 2
        assert float(prediction_term(logits, base, "tvd")) == pytest.approx(by_hand, rel=1e-6)

    def test_two_classes_differ_by_their_probability(self) -> None:
        logits, base = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, -1.0]])
        by_hand = 1 / (1 + math.exp(-2)) - 1 / (1 + math.exp(1))
        assert float(prediction_term(logits, base, "tvd")) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("term", ["kl", "js", "tvd"])
@pytest.mark.parametrize(
    ("scores", "base"),
    [
        ([0.0, 1.0, -1e4], [1.0, 0.0, 0.0]),  # the base underflowed, and so did the new one
        ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0]),  # new weight where the base has none
        ([0.0, 0.0, 0.0], [1.0 - 1e-7, 1e-7, 1e-45]),  # a subnormal number
        ([300.0, 0.0, -300.0], [0.0, 0.0, 1.0]),
        ([0.5], [1.0]),  # a single item
    ],
)
def test_what_underflows_is_finite_with_its_gradient(
    term: Any, scores: list[float], base: list[float]
) -> None:
    padding = [0.0, 0.0]
    given = torch.tensor([scores + padding], requires_grad=True)
    mask = torch.tensor([[True] * len(scores) + [False] * 2])
    weights = given.masked_fill(~mask, torch.finfo(torch.float32).min).softmax(-1).unsqueeze(1)
    found = attention_term(weights, torch.tensor([[base + padding]]), term)
    found.sum().backward()
    assert found.isfinite().all()
    assert 0 <= found.item() <= 88
    assert given.grad is not None
    assert given.grad.isfinite().all()
    if len(scores) == 1:
        assert found.item() == pytest.approx(0, abs=1e-6)


def test_where_the_base_has_nothing_it_counts_as_the_smallest_float() -> None:
    found = attention_term(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[[1.0, 0.0]]]), "kl")
    by_hand = 0.25 * math.log(0.25) + 0.75 * (math.log(0.75) - math.log(2.0**-126))
    assert float(found) == pytest.approx(by_hand, rel=1e-6)


def by_loop(task: AdversarialVariant, base: Any, batch: TextBatch, strength: float) -> list[float]:
    """The objective of each text, read alone, in plain numpy."""
    found = []
    for text in range(len(batch)):
        alone = batch.select(torch.arange(len(batch)) == text)
        with torch.no_grad():
            new, old = task.model(alone), base(alone)
        p, q = (o.weights[0, 0][o.mask[0]].double().numpy() for o in (new, old))
        one, two = (o.logits[0].double().softmax(-1).numpy() for o in (new, old))
        prediction = {
            "nll": -np.log(one[two.argmax()]),
            "tvd": np.abs(one - two).sum() / 2,
        }[task.hparams["prediction_term"]]
        attention = {
            "kl": (p * np.log(p / q)).sum(),
            "js": jensenshannon(p, q) ** 2,
            "tvd": np.abs(p - q).sum() / 2,
        }[task.hparams["attention_term"]]
        found.append(prediction - strength * attention)
    return found


@pytest.mark.parametrize("attention", ["kl", "js", "tvd"])
@pytest.mark.parametrize("prediction", ["nll", "tvd"])
@pytest.mark.parametrize("kind", ["two", "three", "sentences"])
def test_objective_equals_a_loop(
    kind: str, prediction: Any, attention: Any, corpora: dict[str, Planted], tmp_path: Path
) -> None:
    corpus = corpora[kind]
    path = save_base(tmp_path / "base.ckpt", corpus, hierarchical=kind == "sentences")
    terms = {"prediction_term": prediction, "attention_term": attention}
    task = adversary(corpus, path, 0.7, **terms)
    task.model.embedding.weight.data.mul_(1.5)  # away from the base
    expected = by_loop(task.eval(), read_base(path).model, batch_of(corpus), 0.7)
    running(task, corpus)
    task.on_train_epoch_start()
    losses = task._losses(batch_of(corpus), task.model(batch_of(corpus)))
    np.testing.assert_allclose(losses.detach(), expected, atol=2e-6)
    loss = task.training_step(batch_of(corpus), 0)
    assert loss.item() == pytest.approx(np.mean(expected), abs=2e-6)


def test_gold_labels_have_no_part_in_it(corpus: Planted, base: Path) -> None:
    task = adversary(corpus, base, 0.3)
    running(task, corpus)
    task.on_train_epoch_start()
    batch = batch_of(corpus)
    assert batch.labels is not None
    losses = []
    for labels in (batch.labels, 1 - batch.labels, None):
        given = TextBatch(batch.index, batch.tokens, batch.mask, labels)
        losses.append(float(task.training_step(given, 0)))
    assert losses[0] == losses[1] == losses[2]


def test_repeats_of_a_padded_sampler_are_finite(corpus: Planted, base: Path) -> None:
    task = adversary(corpus, base, 0.3)
    running(task, corpus, "validation")
    batch = batch_of(corpus, "validation")
    own = task._losses(batch, task.model(batch))
    batch.index[2] = -1
    losses = task._losses(batch, task.model(batch))
    assert losses.isfinite().all()
    kept = batch.index >= 0
    assert torch.equal(losses[kept], own[kept])


class TestSchedule:
    def test_steps_follow_it_and_validation_does_not(
        self, corpus: Planted, base: Path, tmp_path: Path
    ) -> None:
        task = adversary(corpus, base, 0.8, lambda_warmup_epochs=2)
        strengths: dict[bool, list[float]] = {True: [], False: []}
        losses = task._losses

        def spy(batch: TextBatch, output: Any) -> Tensor:
            strengths[task.training].append(task._lambda)
            return losses(batch, output)

        task._losses = spy  # type: ignore[method-assign]
        trainer(tmp_path, max_epochs=3).fit(task, datamodule=corpus)
        batches = math.ceil(61 / 8)
        rising = [0.8 * step / (2 * batches) for step in range(2 * batches)]
        assert strengths[True] == pytest.approx(rising + [0.8] * batches)
        running(task, corpus, "validation")
        task._lambda = 0.1
        batch, expected = batch_of(corpus, "validation"), read_base(base).model
        found = losses(batch, task.model(batch)).detach()
        np.testing.assert_allclose(found, by_loop(task, expected, batch, 0.8), atol=2e-6)


class TestReleasedLoss:
    """W&P's code: (sum of half the difference of sigmoids - lambda sum of KL) times sum of weights."""

    @staticmethod
    def restated(task: AdversarialVariant, base: Any, batch: TextBatch, ratio: float) -> float:
        with torch.no_grad():
            new, old = task.model(batch), base(batch)
        z_new, z_old = ((o.logits[:, 1] - o.logits[:, 0]).double().numpy() for o in (new, old))
        half = 0.5 * np.abs(1 / (1 + np.exp(-z_new)) - 1 / (1 + np.exp(-z_old)))
        divergence = 0.0
        for text in range(len(batch)):
            for item in range(batch.tokens.shape[1]):
                p, q = float(new.weights[text, 0, item]), float(old.weights[text, 0, item])
                divergence += p * math.log(p / q) if p > 0 else 0.0
        assert batch.labels is not None
        gold = sum(ratio if label == 1 else 1.0 for label in batch.labels.tolist())
        return float((half.sum() - task.hparams["lambda_"] * divergence) * gold)

    def test_equals_its_restatement(self, corpus: Planted, base: Path) -> None:
        task = adversary(corpus, base, 5e-4, compat=True)
        running(task, corpus)
        assert task._class_weights is not None
        task.class_weight.copy_(task._class_weights(corpus.label_counts))
        task.on_train_epoch_start()
        negative, positive = corpus.label_counts
        assert negative != positive
        frozen = read_base(base).model
        for count in (8, 13, 1):
            batch = batch_of(corpus, count=count)
            loss = float(task.training_step(batch, 0))
            expected = self.restated(task, frozen, batch, negative / positive)
            assert loss == pytest.approx(expected, rel=1e-6, abs=1e-6)

    def test_fit_counts_the_classes(self, corpus: Planted, base: Path, tmp_path: Path) -> None:
        task = adversary(corpus, base, 5e-4, compat=True)
        trainer(tmp_path, max_epochs=1).fit(task, datamodule=corpus)
        negative, positive = corpus.label_counts
        assert task.class_weight.tolist() == pytest.approx([1, negative / positive])

    @pytest.mark.parametrize("terms", [{"prediction_term": "nll"}, {"attention_term": "js"}])
    def test_is_of_tvd_and_kl(self, corpus: Planted, base: Path, terms: dict[str, str]) -> None:
        with pytest.raises(InputError, match="compat is the released loss"):
            adversary(corpus, base, 5e-4, compat=True, **terms)

    def test_is_for_two_classes(self, corpora: dict[str, Planted], tmp_path: Path) -> None:
        path = save_base(tmp_path / "three.ckpt", corpora["three"])
        with pytest.raises(InputError, match="compat is the released loss"):
            adversary(corpora["three"], path, 5e-4, compat=True)


@pytest.mark.parametrize("value", [-1e-9, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["lambda_", "lambda_warmup_epochs"])
def test_negative_numbers_are_refused(corpus: Planted, base: Path, name: str, value: float) -> None:
    options = {"lambda_": 0.1} | {name: value}
    with pytest.raises(InputError, match=f"{name} is {value}; it must be a number of at least 0"):
        adversary(corpus, base, **options)


def test_monitor_is_the_objective() -> None:
    assert AdversarialVariant.monitor({}) == ("val/loss", "min")
    assert AttentionClassifier.monitor({}) == ("val/accuracy", "max")


def test_lambda_moves_attention_and_spares_predictions(tmp_path: Path) -> None:
    """States know their neighbours, so that attention may move and the prediction stay."""
    corpus = PlantedEvidence(
        train_size=600, validation_size=50, test_size=150, min_tokens=10, max_tokens=15
    )
    torch.manual_seed(0)
    settings: dict[str, Any] = {"encoder": "bigru", "embedding_size": 16, "hidden_size": 16}
    task = classifier(corpus.spec, learning_rate=0.015, **settings)
    trainer(tmp_path, max_epochs=4).fit(task, datamodule=corpus)
    path = save(task, tmp_path / "base.ckpt")
    moved, tvd = {}, {}
    for strength in (0.0, 0.03):
        variant = adversary(corpus, path, strength)
        trainer(tmp_path, max_epochs=5).fit(variant, datamodule=corpus)
        folder = tmp_path / str(strength)
        trainer(folder, BaseDivergence(figures=False)).test(variant, corpus, verbose=False)
        rows = read_record(folder / "records/test/base_divergence.parquet").columns
        moved[strength], tvd[strength] = rows["attention_js"].mean(), rows["prediction_tvd"].mean()
    assert moved[0.03] > moved[0.0] + 0.2
    assert tvd[0.0] < 0.1
    assert tvd[0.03] < tvd[0.0] + 0.05


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices_train_and_measure_as_one(tmp_path: Path) -> None:
    sizes = ["--data.train_size=101", "--data.validation_size=33", "--data.test_size=21"]
    corpus = PlantedEvidence(
        train_size=101, validation_size=33, test_size=21, cache_dir=str(tmp_path / "cache")
    )
    base = save_base(tmp_path / "base.ckpt", corpus)
    common = [*QUIET, "--trainer.logger=false", "--trainer.max_epochs=1"]
    place = [f"--model.base={base}", f"--root={tmp_path}", "--experiment=e", "--run=r"]
    name, cache = "planted_adversarial", str(tmp_path / "cache")
    divergence = ["-c", f"{CONFIGS}/tests/base_divergence.yaml"]
    command = ["fit", *experiment(name), *divergence, *sizes, *common, *place]
    said = attnlight_on_two(*command, cwd=tmp_path, ATTNLIGHT_CACHE=cache)
    assert said.count("train texts, once") == said.count("validation texts, once") == 1
    record = read_record(tmp_path / "e/r/records/val/base_divergence-0.parquet").columns
    assert record["index"].tolist() == list(range(33))
    found = []
    for call in (attnlight_on_two, attnlight_on_one):
        command = ["-c", f"{tmp_path}/e/r/fit.yaml", f"--ckpt_path={tmp_path}/e/r/best.ckpt"]
        call("test", *command, *divergence, *QUIET, cwd=tmp_path, ATTNLIGHT_CACHE=cache)
        found.append(read_record(tmp_path / "e/r/records/test/base_divergence.parquet").columns)
    assert found[0]["index"].tolist() == found[1]["index"].tolist() == list(range(21))
    for measure in BaseDivergence.measures:
        np.testing.assert_allclose(found[0][measure], found[1][measure], atol=2e-6)

"""What all tests share, run on a model and a task from outside the package."""

import ast
import csv
import hashlib
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import (
    AttentionPermutation,
    DecisionFlip,
    Faithfulness,
    ImportanceCorrelation,
    InterpretabilityTest,
    Predictions,
    SaliencyAgreement,
    StateTokenAgreement,
    base,
)
from attnlight.callbacks.hooks import readouts
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.models.readout import Readout
from attnlight.records import Record, read_record
from tests.bases import SMALL, Planted, classifier, trainer
from tests.callbacks.every import built
from tests.outside import OutsideTask, Texts, collate, loader


def run_test(
    folder: Path, *tests: InterpretabilityTest, figures: bool = False, **options: Any
) -> pl.Trainer:
    """Run tests of a task, by default from outside, on texts or the `data` of a corpus."""
    for test in () if figures else tests:
        test.figures = False
    task, texts = options.pop("task", None) or OutsideTask(), options.pop("texts", Texts())
    data = options.pop("data", None) or loader(texts)
    started = trainer(folder, *tests, **options)
    started.test(task, data, verbose=False)
    return started


def recorded(folder: Path, test: InterpretabilityTest, **options: Any) -> Record:
    """The record of a test that is run."""
    run_test(folder, test, **options)
    return read_record(folder / f"records/test/{test.name}.parquet")


@pytest.mark.parametrize("affine", [True, False])
def test_predictions_of_a_model_from_outside(tmp_path: Path, affine: bool) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(affine), Texts()
    predictions = recorded(tmp_path, Predictions(), task=task, texts=texts).columns
    assert predictions["index"].tolist() == list(range(len(texts)))
    for item, (index, tokens) in enumerate([texts[i] for i in range(len(texts))]):
        with torch.no_grad():
            output = task.model(collate([(index, tokens)]))
        np.testing.assert_allclose(
            predictions["probabilities"][item], output.logits.softmax(-1)[0], atol=2e-6
        )
        weights = output.weights[0]
        entropy = -(weights * weights.log()).sum(-1).mean()
        assert predictions["attention_entropy"][item] == pytest.approx(float(entropy), abs=1e-5)
        assert predictions["max_attention"][item] == pytest.approx(float(weights.amax(-1).mean()))
        assert predictions["length"][item] == len(tokens)
        assert predictions["label"][item] == index % 3


@pytest.mark.parametrize("affine", [True, False])
def test_every_test_records_logs_and_draws(
    tmp_path: Path, affine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of each text, means and intervals of measures, and a figure, in one run of all."""
    monkeypatch.setattr("attnlight.figures.style.figure_bytes", lambda *_, **__: b"")
    torch.manual_seed(0)
    tests, texts = built("time", figures=affine), Texts(5)
    started = run_test(tmp_path, *tests, figures=True, task=OutsideTask(affine), texts=texts)
    for test in tests:
        record = read_record(tmp_path / f"records/test/{test.name}.parquet")
        rows, about = record.columns, record.metadata
        assert rows["index"].tolist() == list(range(5))
        assert about["measures"] == list(test.measures)
        assert about["non_finite"] == 0
        assert about.keys() >= test.metadata.keys()
        assert {"prediction", "max_attention", *test.measures} <= rows.keys()
        logged = {
            key.rpartition("/")[2]: float(value)
            for key, value in started.callback_metrics.items()
            if key.startswith(f"test/{test.name}/")
        }
        ends = {f"{name}{end}" for name in test.measures for end in ("", "_low", "_high")}
        assert logged.keys() == ends | {"non_finite"}
        for name in test.measures:
            defined = rows[name][~np.isnan(rows[name])]
            mean = float(defined.mean()) if len(defined) else math.nan
            assert logged[name] == pytest.approx(mean, rel=1e-5, abs=1e-7, nan_ok=True)
            low, high = logged[f"{name}_low"], logged[f"{name}_high"]
            assert low - 1e-6 <= mean <= high + 1e-6 or math.isnan(mean)
        drawn = list((tmp_path / "figures/test").glob(f"{test.name}.*"))
        assert bool(drawn) == affine, test.name


@pytest.mark.parametrize("affine", [True, False])
def test_tests_of_the_same_texts_share_one_leave_one_out(tmp_path: Path, affine: bool) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(affine), Texts(9)
    occlusion = {"name": "occlusion", "replacement": "delete"}

    def tests() -> list[InterpretabilityTest]:
        return [
            StateTokenAgreement(hidden_tokens="local"),
            ImportanceCorrelation(gradients=[], keep_scores=True),
            SaliencyAgreement(["attention", occlusion], keep_scores=True),
            Faithfulness([occlusion], replacement="attention"),
        ]

    alone = {
        test.name: recorded(tmp_path / test.name, test, task=task, texts=texts).columns
        for test in tests()
    }
    read: list[int] = []
    task.model.register_forward_hook(lambda _, args, __: read.append(len(args[0])))
    run_test(tmp_path, *tests(), task=task, texts=texts)
    lengths = [len(tokens) for tokens in texts.tokens]
    deletions = sum(length for length in lengths if length > 1)
    assert sum(read) == 2 * len(texts) + deletions  # the complete texts once by their test step
    assert not readouts._READOUTS
    for test in tests():
        together = read_record(tmp_path / f"records/test/{test.name}.parquet").columns
        assert together.keys() == alone[test.name].keys()
        for name, column in alone[test.name].items():
            for one, other in zip(column, together[name], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=name)


def test_tests_of_other_texts_share_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(), Texts(9)
    few, all_texts = StateTokenAgreement(max_instances=5), ImportanceCorrelation(gradients=[])
    run_test(tmp_path, few, all_texts, task=task, texts=texts)
    for test, expected in ((few, 5), (all_texts, len(texts))):
        together = read_record(tmp_path / f"records/test/{test.name}.parquet").columns
        alone = recorded(tmp_path / test.name, test, task=task, texts=texts).columns
        assert len(together["index"]) == expected
        for name in test.measures:
            np.testing.assert_array_equal(together[name], alone[name])


def test_max_instances_is_a_hash_of_the_index_not_the_first(tmp_path: Path) -> None:
    record = recorded(tmp_path, Predictions(max_instances=7, seed=5))
    chosen = choose(np.arange(23), 7, 5)
    assert record.columns["index"].tolist() == chosen.tolist()
    assert chosen.tolist() != list(range(7))
    assert record.metadata["partial"] is True


def test_only_texts_that_tests_record_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where all tests choose some; their rows are those beside a test of all texts."""
    data, read = Planted(test_size=21), list[int]()
    task = classifier(data.spec, **SMALL, embedding_scale=2.0, encoder="none").eval()
    task.model.register_forward_hook(lambda _, args, __: read.extend(args[0].index.tolist()))

    def tests() -> list[InterpretabilityTest]:
        of_three = DecisionFlip(draws=1, max_instances=3, seed=1)
        return [of_three, AttentionPermutation(max_instances=5)]

    expected = set(choose(np.arange(21), 3, 1)) | set(choose(np.arange(21), 5, 0))
    run_test(tmp_path / "some", *tests(), task=task, data=data)
    assert set(read) == expected
    said = f"test reads {len(expected)} of 21 texts"
    assert said in capsys.readouterr().err
    read.clear()
    run_test(tmp_path / "all", *tests(), Predictions(), task=task, data=data)
    assert set(read) == set(range(21))
    assert said not in capsys.readouterr().err
    for test in tests():
        some, every = (
            read_record(tmp_path / folder / f"records/test/{test.name}.parquet")
            for folder in ("some", "all")
        )
        assert some.metadata["partial"] is True
        for name, column in every.columns.items():
            np.testing.assert_allclose(some.columns[name], column, rtol=1e-5, atol=1e-6)


def test_limits_mark_the_record_partial(tmp_path: Path) -> None:
    record = recorded(tmp_path, Predictions(), limit_test_batches=2)
    assert record.columns["index"].tolist() == list(range(8))
    assert record.metadata["partial"] is True
    assert recorded(tmp_path, Predictions()).metadata["partial"] is False


class Padded(Texts):
    """Four texts, and two repeats at the end as a padded sampler adds them."""

    def __getitem__(self, item: int) -> tuple[int, Tensor]:
        return item if item < 4 else -1, self.tokens[item]


def test_repeats_of_a_padded_sampler_are_not_recorded(tmp_path: Path) -> None:
    started = trainer(tmp_path, Predictions(), max_epochs=1)
    started.fit(OutsideTask(), loader(Texts()), loader(Padded(6, range(4))))
    record = read_record(tmp_path / "records/val/predictions-0.parquet")
    assert record.columns["index"].tolist() == [0, 1, 2, 3]


def test_validation_epochs_of_fit(tmp_path: Path) -> None:
    tests = AttentionPermutation(draws=5, every_n_epochs=2), Predictions()
    started = trainer(tmp_path, *tests, max_epochs=4, num_sanity_val_steps=2)
    started.fit(OutsideTask(), loader(Texts()), loader(Texts()))
    names = sorted(path.name for path in (tmp_path / "records/val").iterdir())
    assert names == [
        "attention_permutation-1.parquet",
        "attention_permutation-3.parquet",
        *(f"predictions-{epoch}.parquet" for epoch in range(4)),
    ]
    assert "val/attention_permutation/median_tvd" in started.callback_metrics
    assert read_record(tmp_path / "records/val/predictions-2.parquet").metadata["epoch"] == 2


def test_fast_dev_run_writes_nothing_here(tmp_path: Path) -> None:
    run_test(tmp_path, Predictions(), fast_dev_run=True)
    assert not list(tmp_path.rglob("*.parquet"))


class Gradient(InterpretabilityTest):
    """Norm of the gradient of the winning logit with respect to the embeddings."""

    needs_gradients = True
    measures = ("norm",)

    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> dict[str, Tensor]:
        model = readout.model
        embeddings = model.embed(batch).detach().requires_grad_()
        logits = model(batch, embeddings=embeddings).logits
        (gradient,) = torch.autograd.grad(logits.amax(-1).sum(), embeddings)
        return {"norm": gradient.flatten(1).norm(dim=1)}


class Undefined(Predictions):
    """Predictions, and a measure that is defined for no text before some epoch."""

    measures = ("max_attention", "later")

    def __init__(self, defined_from: float) -> None:
        super().__init__()
        self.defined_from = defined_from

    def begin(self, around: Surroundings) -> None:
        super().begin(around)
        self.defined = (around.epoch or 0) >= self.defined_from

    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> dict[str, Tensor]:
        columns = dict(super().measure(batch, output, readout))
        later = torch.full_like(columns["attention_entropy"], 1.0 if self.defined else torch.nan)
        return columns | {"later": later}


@pytest.mark.parametrize("defined_from", [1, 3])
def test_a_measure_may_be_undefined_at_first(tmp_path: Path, defined_from: int) -> None:
    logger = CSVLogger(tmp_path)
    started = trainer(tmp_path, Undefined(defined_from), max_epochs=2, logger=logger)
    started.fit(OutsideTask(), loader(Texts()), loader(Texts()))
    value = 1.0 if defined_from == 1 else math.nan
    name = "val/undefined/later"
    assert float(started.callback_metrics[name]) == pytest.approx(value, nan_ok=True)
    (path,) = tmp_path.rglob("metrics.csv")
    logged = [float(x[name]) for x in csv.DictReader(path.open()) if x[name]]
    assert logged == pytest.approx([math.nan, value], nan_ok=True)


def test_an_undefined_measure_of_a_test_has_no_panel(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    started = trainer(tmp_path, Undefined(1), logger=logger)
    started.test(OutsideTask(), loader(Texts()), verbose=False)
    assert started.callback_metrics["test/undefined/later"].isnan()
    (path,) = tmp_path.rglob("metrics.csv")
    (row,) = csv.DictReader(path.open())
    assert "test/undefined/max_attention" in row
    assert "test/undefined/later" not in row


class Tolerant(Gradient):
    def __init__(self, epsilon: object) -> None:
        super().__init__()
        self.epsilon = epsilon

    @property
    def metadata(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "test": "mine"}


class TestMetadata:
    def test_a_test_adds_its_own(self, tmp_path: Path) -> None:
        found = recorded(tmp_path, Tolerant(0.01)).metadata
        assert found["epsilon"] == 0.01
        assert found["test"] == "tolerant"

    def test_names_corpus_and_checkpoint(self, tmp_path: Path) -> None:
        started = trainer(tmp_path, Predictions(), plugins=[])  # it checks what it loads
        task = OutsideTask()
        started.strategy.connect(task)
        started.save_checkpoint(tmp_path / "best.ckpt")
        data = pl.LightningDataModule()
        data.test_dataloader = lambda: loader(Texts())  # type: ignore[method-assign]
        data.fingerprint = "abc"  # type: ignore[attr-defined]
        started.test(task, datamodule=data, ckpt_path=tmp_path / "best.ckpt", verbose=False)
        found = read_record(tmp_path / "records/test/predictions.parquet").metadata
        assert found["corpus"] == "abc"
        digest = hashlib.sha256((tmp_path / "best.ckpt").read_bytes()).hexdigest()
        assert found["checkpoint_hash"] == digest[:16]
        found = recorded(tmp_path, Predictions()).metadata
        assert found["corpus"] is found["checkpoint_hash"] is found["checkpoint"] is None


class Bare(OutsideTask):
    """A task whose model does not attend."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("tests", "options", "sentence"),
    [
        ([Predictions()], {"texts": Texts(6, [0, 1, 2, 4, 4, 5])}, "instance 4 .* evaluated twice"),
        ([Predictions(), Predictions()], {}, "attached twice"),
        ([Predictions()], {"task": Bare()}, "AttentionModel"),
        ([Tolerant(np.float32(0.01))], {}, "metadata of tolerant must be plain values"),
        ([Gradient()], {"inference_mode": True}, "inference_mode"),
    ],
)
def test_refusals_leave_no_record(
    tests: list[InterpretabilityTest], options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        run_test(tmp_path, *tests, **options)
    assert not list(tmp_path.rglob("*.parquet"))


def test_tests_know_surroundings_and_no_trainer() -> None:
    folder = Path(base.__file__).parent
    for module in sorted(folder.glob("*.py")):
        names = {n.id for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Name)}
        assert "trainer" not in names or module.name == "base.py", module.name

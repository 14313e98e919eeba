"""What all tests share, run on a model and a task from outside the package."""

import ast
import hashlib
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import AttentionPermutation, InterpretabilityTest, Predictions, base
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.models.readout import Readout
from attnlight.records import RecordError, read_record
from tests.callbacks.every import built
from tests.outside import OutsideTask, Texts, collate, loader


def trainer(folder: Path, *tests: InterpretabilityTest, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        default_root_dir=folder,
        callbacks=list(tests),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
        inference_mode=False,
        **options,
    )


def run_test(folder: Path, *tests: InterpretabilityTest, **options: Any) -> pl.Trainer:
    texts = options.pop("texts", Texts())
    task = options.pop("task", None) or OutsideTask()
    started = trainer(folder, *tests, **options)
    started.test(task, loader(texts), verbose=False)
    return started


@pytest.mark.parametrize("affine", [True, False])
def test_predictions_of_a_model_from_outside(tmp_path: Path, affine: bool) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(affine), Texts()
    run_test(tmp_path, Predictions(), task=task, texts=texts)
    predictions = read_record(tmp_path / "records/test/predictions.parquet").columns
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
def test_every_test_records_logs_and_draws(tmp_path: Path, affine: bool) -> None:
    """A row of each text, means and intervals of measures, and a figure, in one run of all."""
    torch.manual_seed(0)
    tests, texts = built("time", figures=affine), Texts(11)
    started = run_test(tmp_path, *tests, task=OutsideTask(affine), texts=texts)
    for test in tests:
        record = read_record(tmp_path / f"records/test/{test.name}.parquet")
        rows, about = record.columns, record.metadata
        assert rows["index"].tolist() == list(range(11))
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


def test_max_instances_is_a_hash_of_the_index_not_the_first(tmp_path: Path) -> None:
    run_test(tmp_path, Predictions(max_instances=7, seed=5))
    record = read_record(tmp_path / "records/test/predictions.parquet")
    chosen = choose(np.arange(23), 7, 5)
    assert record.columns["index"].tolist() == chosen.tolist()
    assert chosen.tolist() != list(range(7))
    assert record.metadata["partial"] is True


def test_limits_mark_the_record_partial(tmp_path: Path) -> None:
    run_test(tmp_path, Predictions(), limit_test_batches=2)
    record = read_record(tmp_path / "records/test/predictions.parquet")
    assert record.columns["index"].tolist() == list(range(8))
    assert record.metadata["partial"] is True
    run_test(tmp_path, Predictions())
    assert read_record(tmp_path / "records/test/predictions.parquet").metadata["partial"] is False


def test_repeated_instance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"instance 4 .* evaluated twice"):
        run_test(tmp_path, Predictions(), texts=Texts(6, [0, 1, 2, 4, 4, 5]))
    assert not list(tmp_path.rglob("predictions.parquet"))


class Padded(Texts):
    """Four texts, and two repeats at the end as a padded sampler adds them."""

    def __init__(self) -> None:
        super().__init__(6, range(4))

    def __getitem__(self, item: int) -> tuple[int, Tensor]:
        return item if item < 4 else -1, self.tokens[item]


def test_repeats_of_a_padded_sampler_are_not_recorded(tmp_path: Path) -> None:
    started = trainer(tmp_path, Predictions(), max_epochs=1)
    started.fit(OutsideTask(), loader(Texts()), loader(Padded()))
    record = read_record(tmp_path / "records/val/predictions-0.parquet")
    assert record.columns["index"].tolist() == [0, 1, 2, 3]


def test_validation_epochs_of_fit(tmp_path: Path) -> None:
    started = trainer(
        tmp_path, AttentionPermutation(draws=5, every_n_epochs=2), Predictions(), max_epochs=4
    )
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


def test_attached_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attached twice"):
        run_test(tmp_path, Predictions(), Predictions())


def test_task_without_a_model_is_refused(tmp_path: Path) -> None:
    class Bare(OutsideTask):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Linear(1, 1)

    with pytest.raises(InputError, match="AttentionModel"):
        run_test(tmp_path, Predictions(), task=Bare())


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


def test_gradients_are_there_in_test(tmp_path: Path) -> None:
    run_test(tmp_path, Gradient())
    rows = read_record(tmp_path / "records/test/gradient.parquet").columns
    assert (rows["norm"] > 0).all()


class Tolerant(Gradient):
    def __init__(self, epsilon: object) -> None:
        super().__init__()
        self.epsilon = epsilon

    @property
    def metadata(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "test": "mine"}


class TestMetadata:
    def test_a_test_adds_its_own(self, tmp_path: Path) -> None:
        run_test(tmp_path, Tolerant(0.01))
        found = read_record(tmp_path / "records/test/tolerant.parquet").metadata
        assert found["epsilon"] == 0.01
        assert found["test"] == "tolerant"

    def test_what_is_not_plain_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="metadata of tolerant must be plain values"):
            run_test(tmp_path, Tolerant(np.float32(0.01)))

    def test_names_corpus_and_checkpoint(self, tmp_path: Path) -> None:
        started = trainer(tmp_path, Predictions())
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
        run_test(tmp_path, Predictions())
        found = read_record(tmp_path / "records/test/predictions.parquet").metadata
        assert found["corpus"] is found["checkpoint_hash"] is found["checkpoint"] is None


def test_gradients_need_inference_mode_off(tmp_path: Path) -> None:
    started = pl.Trainer(
        default_root_dir=tmp_path, callbacks=[Gradient()], logger=False, accelerator="cpu"
    )
    with pytest.raises(InputError, match="inference_mode"):
        started.test(OutsideTask(), loader(Texts()), verbose=False)


def test_tests_know_surroundings_and_no_trainer() -> None:
    folder = Path(base.__file__).parent
    for module in sorted(folder.glob("*.py")):
        names = {n.id for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.Name)}
        assert "trainer" not in names or module.name == "base.py", module.name

"""What users of Lightning's Trainer are used to works here, or a sentence says where it is."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import Namespace

from attnlight.__main__ import main
from attnlight.callbacks import Predictions
from attnlight.cli.configuration import resolve_callbacks
from attnlight.records import read_record
from attnlight.tasks import AttentionClassifier
from tests.bases import SMALL, Planted, classifier, trainer
from tests.commands import CPU, QUIET, Refused, attnlight

FINDER = "lightning.pytorch.callbacks.LearningRateFinder"
FIT = ["fit", "planted_none", "--data.train_size=300", "--data.validation_size=20", *CPU, *QUIET]
FIT += ["--data.test_size=20", "--trainer.max_epochs=2", "--trainer.logger=false"]


def trained(
    folder: Path, batch_size: int = 16, encoder: str = "none", epochs: int = 3, **options: Any
) -> Any:
    torch.manual_seed(0)
    data = Planted(train_size=64, batch_size=batch_size, test_size=101)
    rates = {"learning_rate": 0.03}
    task = classifier(data.spec, **SMALL, encoder=encoder, optimizer=rates)
    trainer(folder, max_epochs=epochs, limit_val_batches=0, **options).fit(task, data)
    return task, data


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 32, "accumulate_grad_batches": 2}, {"gradient_clip_val": 1e9}],
    ids=["accumulated", "clipped"],
)
def test_the_same_training_by_other_options(tmp_path: Path, options: dict[str, Any]) -> None:
    """On all 64 texts at once: smaller batches of another size hold other texts."""
    (plain, data) = trained(tmp_path, 64)
    (other, _) = trained(tmp_path, **{"batch_size": 64} | options)
    torch.manual_seed(0)
    untrained = classifier(data.spec, **SMALL, encoder="none").state_dict()
    for (name, expected), found in zip(plain.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert "embedding" in name or not torch.equal(found, untrained[name])


@pytest.mark.parametrize("encoder", ["none", "cnn"])
def test_half_precision_predicts_alike(tmp_path: Path, encoder: str) -> None:
    task, data = trained(tmp_path, encoder=encoder, epochs=10)
    found, accuracy = {}, {}
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        used: Any = {"precision": precision}
        started = trainer(tmp_path / precision, Predictions(figures=False), **used)
        started.test(copy.deepcopy(task), data, verbose=False)
        record = read_record(tmp_path / precision / "records/test/predictions.parquet")
        found[precision] = torch.tensor([list(p) for p in record.columns["probabilities"]])
        accuracy[precision] = float(started.callback_metrics["test/accuracy"])
    assert found["32-true"].std() > 0.1, "it has learned to tell classes apart"
    for precision in ("bf16-mixed", "16-mixed"):
        assert (found[precision] - found["32-true"]).abs().max() < 1e-2
        assert accuracy[precision] == pytest.approx(accuracy["32-true"], abs=0.01)
    assert not torch.equal(found["bf16-mixed"], found["32-true"]), "it computes in that precision"


def test_the_rate_that_is_found_is_that_of_the_run(here: Path) -> None:
    place = ["--root=.", "--experiment=e"]
    finder = [f"--trainer.callbacks+={FINDER}", "--trainer.callbacks.num_training_steps=40"]
    assert main([*FIT, *place, "--run=found", *finder]) == 0
    config = yaml.safe_load(Path("e/found/fit.yaml").read_text())
    rate = config["model"]["init_args"]["optimizer"]["learning_rate"]
    assert 1e-8 < rate < 1
    assert rate != 1e-3
    assert FINDER not in str(config)
    assert main([*FIT, *place, "--run=given", f"--model.optimizer.learning_rate={rate}"]) == 0
    found, given = (
        torch.load(f"e/{name}/best.ckpt", weights_only=True) for name in ("found", "given")
    )
    assert found["hyper_parameters"]["optimizer"]["learning_rate"] == rate
    for name, values in given["state_dict"].items():
        torch.testing.assert_close(found["state_dict"][name], values, rtol=0, atol=1e-6)


def test_a_schedule_keeps_no_found_rate(refused: Refused) -> None:
    task = classifier(Planted().spec, **SMALL, optimizer={"warmup": 0.1})
    with pytest.raises(
        ValueError, match="finds one rate of all steps and layers: leave out warmup"
    ):
        task.learning_rate = 0.1
    assert AttentionClassifier.learning_rate.fget(task) == 1e-3  # type: ignore[attr-defined]
    for option in ("--optimizer=SGD", "--optimizer.lr=0.1", "--lr_scheduler=StepLR"):
        refused(
            "fit", "planted_none", option, names=["the task has its own", "--model.optimizer.name"]
        )


def test_a_bar_replaces_ours() -> None:
    bars = [
        f"lightning.pytorch.callbacks.{name}" for name in ("RichProgressBar", "TQDMProgressBar")
    ]
    others = [FINDER, "lightning.pytorch.callbacks.Timer"]
    paths = [bars[0], others[0], bars[1], others[1]]
    named = [Namespace(class_path=path) for path in paths]  # type: ignore[no-untyped-call]
    options = Namespace(callbacks=named, enable_progress_bar=None, fast_dev_run=False)  # type: ignore[no-untyped-call]
    resolve_callbacks(options)
    assert [callback.class_path for callback in options.callbacks] == paths[1:]


def test_the_last_test_of_each_class_and_label_stays() -> None:
    given: list[tuple[dict[str, str | None], int]]
    given = [({}, 0), ({"label": "words"}, 1), ({"label": None}, 2), ({"label": "words"}, 3)]
    named = [
        Namespace(class_path="attnlight.callbacks.SingleErasure", init_args=Namespace(**x, seed=n))  # type: ignore[no-untyped-call]
        for x, n in given
    ]
    options = Namespace(callbacks=named, enable_progress_bar=None, fast_dev_run=False)  # type: ignore[no-untyped-call]
    resolve_callbacks(options)
    assert [callback.init_args.seed for callback in options.callbacks] == [2, 3]


@pytest.mark.slow
def test_an_lstm_in_half_precision_where_torch_has_none(tmp_path: Path) -> None:
    avx2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    words = [*FIT, "--model.net.encoder=bilstm", "--trainer.precision=bf16-mixed"]
    said = attnlight(*words, cwd=tmp_path, status=2, **avx2)
    assert "attnlight: torch computes no LSTM in half precision on this processor" in said

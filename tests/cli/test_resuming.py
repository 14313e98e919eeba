"""What a resumed `fit` may change: not what its weights are trained by, but where and how long."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import chdir, nullcontext
from functools import reduce
from operator import getitem
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint

from attnlight.__main__ import main
from attnlight.cli.processes import RANK_ZERO
from attnlight.cli.resuming import require_same_batches, require_same_training
from attnlight.errors import InputError
from attnlight.storage.checkpoint_file import read_checkpoint
from attnlight.storage.files import read_yaml
from attnlight.tasks import AttentionTask
from tests.commands import CONFIGS, Printed, Refused, attnlight_on_two, on_ranks, without_figures
from tests.test_mistakes import FIT, corpus, described

RUN = "checkpoints/new/r"
REQUEUED = "checkpoints/new/q/hpc_ckpt_1.ckpt"
RESUME = [*FIT, "--run=r", "--ckpt_path=last"]
FURTHER = [*RESUME, "--trainer.max_epochs=2"]
EARLY = "lightning.pytorch.callbacks.EarlyStopping"
PATIENCE = [f"--trainer.callbacks+={EARLY}", "--trainer.callbacks.monitor=val/loss"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A corpus, and a run of one epoch on it."""
    world = tmp_path_factory.mktemp("world")
    with chdir(world):
        corpus(world / "corpus")
        described(world / "corpus.yaml", f"{world}/corpus")
        assert main([*FIT, "--run=r"]) == 0
        yield world


@pytest.fixture
def world(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, to be changed."""
    copy = shutil.copytree(trained, tmp_path / "copy")
    described(copy / "corpus.yaml", f"{copy}/corpus")
    monkeypatch.chdir(copy)
    return copy


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run / "last.ckpt", weights_only=True)["state_dict"]
    return found


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model.optimizer.learning_rate=0.01"], ("optimizer.learning_rate", "0.001", "0.01")),
        (["--model.net.attention=scaled_dot"], ("model.net.attention", "additive", "scaled_dot")),
        (["--model.objective.lambda_deceive=1"], ("model.objective.lambda_deceive", "null", "1")),
        (["--data.erased_words={}"], ("data.erased_words.texts", "null", "0.5")),
        (["--data.batch_size=16"], ("32", "16", "--data.batch_size 32")),
        (["--trainer.devices=2"], ("64", "2 devices", "--data.batch_size 16")),
        (PATIENCE, ("EarlyStopping", "monitor", "val/loss")),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_another_training_is_refused(
    trained: Path,
    options: list[str],
    named: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:
    # Two devices are refused before the second process starts.
    monkeypatch.setenv("ATTNLIGHT_JOIN_TIMEOUT", "1e6")
    monkeypatch.setenv(RANK_ZERO, "")
    refused(*FURTHER, *options, names=(f"{RUN}/last.ckpt", *named), leaving=trained)


@pytest.mark.parametrize(
    ("section", "option", "said"),
    [
        ("", {"seed_everything": 1}, "seed_everything 0, now 1"),
        ("data.init_args", {"lowercase": False}, "data.lowercase true, now false"),
        ("trainer", {"precision": "64-true"}, "trainer.precision null, now 64-true"),
        ("trainer", {"gradient_clip_val": 1}, "trainer.gradient_clip_val null, now 1"),
    ],
)
def test_every_section_is_compared(
    trained: Path, section: str, option: dict[str, Any], said: str
) -> None:
    last = trained / RUN / "last.ckpt"
    config: Any = read_yaml(last.with_name("fit.yaml"))
    reduce(getitem, filter(None, section.split(".")), config).update(option)
    model, corpus = read_checkpoint(last)["hyper_parameters"], SimpleNamespace()
    with pytest.raises(InputError, match=f"was trained with {said}: leave it as it was"):
        require_same_training(last, config, model, corpus, 1)  # type: ignore[arg-type]


def test_a_warmup_by_share_of_the_epochs_refuses_others(trained: Path, refused: Refused) -> None:
    given = [*FIT, "--run=w", "--model.optimizer.warmup=0.5"]
    assert main(given) == 0
    resumed = [*given, "--ckpt_path=last", "--trainer.max_epochs=3"]
    refused(*resumed, names=("trainer.max_epochs 1", "3"))
    shutil.rmtree(trained / "checkpoints/new/w")


def test_another_corpus_is_refused(world: Path, refused: Refused) -> None:
    file = world / "corpus/train.csv"
    swapped = file.read_text().replace("neg", "#").replace("pos", "neg").replace("#", "pos")
    file.write_text(swapped)
    names = (f"{RUN}/last.ckpt", f"{world}/corpus", "another corpus")
    refused(*FURTHER, names=names, leaving=world)


def test_a_base_that_was_trained_again_is_refused(world: Path, refused: Refused) -> None:
    given = [word for word in FIT if "--model" not in word and "models" not in word]
    given += ["--model=SeedVariant", f"--model.base={RUN}/best.ckpt", "--run=v"]
    assert main(given) == 0
    again = torch.load(world / RUN / "best.ckpt", weights_only=True)
    again["state_dict"]["model.decoder.bias"] += 1
    torch.save(again, world / RUN / "best.ckpt")
    resumed = [*given, "--ckpt_path=last", "--trainer.max_epochs=2"]
    refused(*resumed, names=["model.inherited"])


def test_without_the_configuration_of_its_training(world: Path, refused: Refused) -> None:
    (world / RUN / "fit.yaml").unlink()
    refused(*RESUME, names=(f"{RUN}/fit.yaml", "--overwrite"), leaving=world)


def test_an_edited_configuration_is_refused(world: Path, refused: Refused) -> None:
    file = world / RUN / "fit.yaml"
    file.write_text(file.read_text().replace("learning_rate: 0.001", "learning_rate: 0.01"))
    given = ["fit", "-c", str(file), "--ckpt_path=last", "--trainer.max_epochs=2"]
    refused(*given, names=["model.optimizer.learning_rate 0.001, now 0.01"])


def test_what_a_resumed_run_may_change(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[bool] = []
    status = world / RUN / "status.json"
    monkeypatch.setattr(
        ModelCheckpoint, "on_train_epoch_start", lambda *_: finished.append(status.exists())
    )
    moved = shutil.copytree(world / "corpus", world / "moved")
    changed = [f"--data.path={moved}", "--data.num_workers=1", "--data.eval_batch_size=7"]
    changed += ["--trainer.max_epochs=2", "--trainer.max_time=00:01:00:00"]
    changed += ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=logs"]
    changed += ["--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.log_every_n_steps=1"]
    changed += ["-c", f"{CONFIGS}/tests/predictions.yaml"]
    assert main([*RESUME, *changed]) == 0
    written = yaml.safe_load((world / RUN / "fit.yaml").read_text())
    assert written["trainer"]["max_epochs"] == 2
    assert written["data"]["init_args"]["path"] == str(moved)
    assert torch.load(world / RUN / "last.ckpt", weights_only=True)["epoch"] == 1
    assert status.exists()
    assert finished == [False, False]  # for each ModelCheckpoint


@pytest.mark.ddp
@pytest.mark.slow
def test_a_run_goes_on_on_two_devices(world: Path) -> None:
    attnlight_on_two(*FURTHER, "--data.batch_size=16", cwd=world)
    last = torch.load(world / RUN / "last.ckpt", weights_only=True)
    assert (last["epoch"], last["global_batch_size"]) == (1, 32)


@pytest.mark.slow
def test_a_run_goes_on_under_ddp_on_one_device(world: Path) -> None:
    shutil.copytree(world, world / "alone")
    on_ranks(1, main, [*FURTHER, "--trainer.strategy=ddp", "--trainer.devices=1"], cwd=world)
    assert main([*FURTHER, "--root=alone/checkpoints"]) == 0
    under_ddp, alone = (weights(world / place / RUN) for place in ("", "alone"))
    for name, values in alone.items():
        torch.testing.assert_close(under_ddp[name], values, rtol=0, atol=1e-6)


class TestRequeuedJob:
    """The same command is started again after Lightning saved a checkpoint within an epoch."""

    @pytest.fixture
    def job(self, world: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Epochs of the steps that are trained in a job of SLURM."""
        names = {"NTASKS": "1", "JOB_ID": "7", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
        for name, value in names.items():
            monkeypatch.setenv(f"SLURM_{name}", value)
        return []

    def start(self, command: list[str], epochs: list[int], until: int | None) -> int:
        """Train until SLURM ends the job at a step, which is saved before."""
        step = AttentionTask.training_step

        def ended(task: AttentionTask, *batch: Any) -> Any:
            if len(epochs) == until:
                task.trainer.save_checkpoint(REQUEUED)
                raise SystemExit(143)
            epochs.append(task.current_epoch)
            return step(task, *batch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AttentionTask, "training_step", ended)
            if until is None:
                return main(command)
            with pytest.raises(SystemExit) as end:
                main(command)
            assert isinstance(end.value.code, int)
            return end.value.code

    @pytest.mark.parametrize(
        ("options", "steps", "left"),
        [([], 1, [0, 0, 1, 1]), (["--overwrite"], 3, [1, 1])],
        ids=["", "overwrite"],
    )
    def test_goes_on_after_the_last_whole_epoch(
        self,
        job: list[int],
        monkeypatch: pytest.MonkeyPatch,
        options: list[str],
        steps: int,
        left: list[int],
    ) -> None:
        command = [*FIT, "--trainer.max_epochs=2", *options]
        assert self.start([*command, "--run=q"], job, steps) == 143
        assert Path(REQUEUED).is_file()
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        job.clear()
        assert self.start([*command, "--run=q"], job, None) == 0
        assert job == left
        assert not Path(REQUEUED).exists()
        assert main([*command, "--run=undisturbed"]) == 0
        found, expected = (weights(Path(REQUEUED).parents[1] / n) for n in ("q", "undisturbed"))
        assert all(torch.equal(found[name], values) for name, values in expected.items())

    def test_another_job_or_another_command_of_it_does_not(
        self, job: list[int], monkeypatch: pytest.MonkeyPatch, refused: Refused
    ) -> None:
        command = [*FIT, "--trainer.max_epochs=2", "--run=q"]
        assert self.start(command, job, 3) == 143
        within = f"{REQUEUED} was saved within an epoch"
        refused(*command, f"--ckpt_path={REQUEUED}", names=[within])
        job.clear()
        assert self.start([*command, "--overwrite"], job, 3) == 143
        assert job == [0, 0, 1]
        monkeypatch.setenv("SLURM_JOB_ID", "8")
        refused(*command, names=["unfinished: add --ckpt_path last"])


SAME = [(32, 1, None), (16, 2, None), (8, 4, None)]
OTHER = [(32, 2, "--data.batch_size 16"), (16, 3, "divides 32")]


@pytest.mark.parametrize(("size", "devices", "remedy"), [*SAME, *OTHER])
def test_devices_read_the_same_batches(size: int, devices: int, remedy: str | None) -> None:
    with pytest.raises(InputError, match=remedy) if remedy else nullcontext():
        require_same_batches("last.ckpt", 32, size, devices)


@pytest.fixture(scope="module")
def measured(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with records of predictions."""
    copy = shutil.copytree(trained, tmp_path_factory.mktemp("tested") / "world")
    described(copy / "corpus.yaml", f"{copy}/corpus")
    predictions = without_figures(copy / "predictions.yaml", "predictions")
    without_figures(copy / "erasure.yaml", "single_erasure")
    assert main(["test", str(copy / RUN), *predictions]) == 0
    return copy


class TestTwoCheckpoints:
    """Records of two checkpoints share neither a card nor a page."""

    @pytest.fixture
    def tested(self, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(shutil.copytree(measured, tmp_path / "copy"))
        return tmp_path / "copy" / RUN

    def test_of_two_names(self, tested: Path, printed: Printed, refused: Refused) -> None:
        last = ["test", RUN, "-c", "erasure.yaml", "--ckpt_path=last"]
        names = ("predictions.parquet", "best.ckpt, now last.ckpt", "--overwrite")
        refused(*last, names=names, leaving=tested)
        both = "predictions.parquet and .*single_erasure.parquet are of two checkpoints, best.ckpt"
        assert re.search(f"No verdict: .*{both}", printed(*last, "--overwrite"))
        assert re.search(both, refused("report", RUN))

    def test_of_an_earlier_version(self, tested: Path, refused: Refused) -> None:
        best = torch.load(tested / "best.ckpt", weights_only=True)
        torch.save(best | {"epoch": 7}, tested / "best.ckpt")
        earlier = "predictions.parquet was measured with an earlier best.ckpt"
        refused("test", RUN, "-c", "erasure.yaml", names=[earlier])
        for tests in ("predictions", "erasure"):
            assert main(["test", RUN, "-c", f"{tests}.yaml"]) == 0

    def test_of_texts_on_the_page(self, tested: Path, refused: Refused) -> None:
        assert main(["predict", RUN, "--ckpt_path=last"]) == 0
        both = "predictions.parquet are of two checkpoints, best.ckpt and last.ckpt"
        refused("report", RUN, names=[both])

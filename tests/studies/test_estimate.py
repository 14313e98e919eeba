"""How long a study takes: what a dry run prints, what is timed, and what is made of it."""

import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader

from attnlight.errors import InputError
from attnlight.studies import estimate as module
from attnlight.studies import run_study
from attnlight.studies.estimate import BatchTimer, Estimate, estimate
from attnlight.studies.job import study_folders
from attnlight.studies.plan import PlannedRun
from attnlight.studies.process_executor import ProcessExecutor
from tests.studies.conftest import ALL_ROLES, MINIMAL, Lab


class TestDryRun:
    def test_times_each_role_and_leaves_nothing(self, lab: Lab) -> None:
        temporary = lab.folder / "temporary"
        temporary.mkdir()
        lab.monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        assert lab.run(ALL_ROLES, "--dry-run", "--jobs=3") == 0
        assert not lab.root.exists()
        assert list(temporary.iterdir()) == []
        printed = lab.capsys.readouterr()
        lines = printed.out.splitlines()
        assert lines[0].split() == ["run", "role", "state", "needs", "estimate"]
        assert lines[1].split()[:3] == ["base-s0", "base", "missing"]
        assert all(line.endswith("  at most 1.8 min") for line in lines[1:13])
        assert lines[13] == "12 runs of 12; one at a time: at most 22.0 min"
        assert lines[14].startswith("base, uniform, seed, guide, adversary: estimated from a few")
        roles = [line.rpartition(" ")[2] for line in printed.err.splitlines()]
        assert roles == ["base", "uniform", "seed", "guide", "adversary"]

    def test_measured_roles_are_not_timed(self, lab: Lab) -> None:
        assert lab.run(ALL_ROLES, "--only=base,uniform") == 0
        logs = lab.root / "tiny/logs"
        (logs / "base-s0.json").write_text('{"state": "finished", "seconds": 60}')
        (logs / "seed-b0-s1.json").write_text('{"state": "failed", "seconds": 600}')
        (logs / "uniform-s0.json").write_text('{"state": "finished", "seconds": 30}')
        before = sorted(lab.root.rglob("*"))
        more = ALL_ROLES | {"uniform": {"seeds": [0, 1]}}
        lab.capsys.readouterr()
        assert lab.run(more, "--dry-run") == 0
        lines = [" ".join(line.split()) for line in lab.capsys.readouterr().out.splitlines()]
        assert "base-s0 base finished -" in lines
        assert "uniform-s1 uniform missing base-s0 30 s" in lines
        assert "seed-b0-s1 seed failed base-s0 at most 1.8 min" in lines
        assert lines[-1].startswith("seed, guide, adversary: estimated")
        assert sorted(lab.root.rglob("*")) == before
        planned = json.loads((lab.root / "tiny/plan.json").read_text())["runs"]
        assert planned.keys() == lab.runs(ALL_ROLES).keys()
        assert lab.run(more, "--dry-run", "--only=uniform") == 0
        printed = lab.capsys.readouterr()
        assert printed.err == "", "nothing is left to time"
        assert printed.out.endswith("2 runs of 13; one at a time: 30 s\n")

    def test_says_why_a_role_could_not_be_timed(self, lab: Lab) -> None:
        every = "base, uniform, seed, guide, adversary"
        for failing, roles in (("base-s0", every), ("guide-adversary-s0", "guide")):
            lab.monkeypatch.setenv("FAKE_FAILS", failing)
            assert lab.run(ALL_ROLES, "--dry-run") == 1
            *_, total, last = lab.capsys.readouterr().out.splitlines()
            assert last == f"{roles}: unknown, since a short run failed: the disk is on fire"
            others = total.startswith("base, uniform, seed, adversary: estimated")
            assert others == (roles == "guide")


def test_times_of_runs_add_up() -> None:
    estimates = Estimate({"base": 60, "seed": 30}, timed=["seed"])
    base = PlannedRun("base-s0", "base", 0)
    seeds = [PlannedRun(f"s{i}", "seed", i, needs=("base-s0",)) for i in range(3)]
    assert estimates.words([base]) == "1.0 min"
    assert estimates.words([base, *seeds]) == "at most 2.5 min"
    assert estimates.words([]) == "0 s"
    assert estimates.words([PlannedRun("g", "guide", 0)]) == "unknown"


class Clocked(pl.LightningModule):
    """A training batch takes 2 s, one of evaluation 1 s, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.now = 0.0

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        self.now += 2
        return self.weight.sum()

    def validation_step(self, batch: torch.Tensor) -> None:
        self.now += 1

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())


class TestBatchTimer:
    """Of 20 training and 10 evaluation batches, 50 s an epoch."""

    QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")

    def run(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str, **options: Any
    ) -> tuple[float, float]:
        """Seconds that ran, and those that were omitted."""
        clocked, given = Clocked(), {"default_root_dir": folder, "num_sanity_val_steps": 0}
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clocked.now))
        given |= dict.fromkeys(self.QUIET, False) | options
        trainer = pl.Trainer(accelerator="cpu", callbacks=[BatchTimer()], **given)
        batches = [DataLoader(range(number)) for number in (20, 10)]  # type: ignore[arg-type]
        getattr(trainer, verb)(clocked, *(batches if verb == "fit" else batches[1:]))
        return clocked.now, float((folder / "omitted_seconds").read_text())

    @pytest.mark.parametrize(
        ("verb", "options", "seconds"),
        [
            ("fit", {"max_epochs": 6}, (30, 270)),
            ("fit", {"max_epochs": 1}, (15, 35)),
            ("fit", {"max_epochs": 4, "limit_train_batches": 0.5}, (30, 90)),
            ("fit", {"max_epochs": 4, "limit_train_batches": 3, "limit_val_batches": 0}, (12, 12)),
            ("fit", {"max_epochs": -1, "max_steps": 9}, None),
            ("validate", {}, (5, 5)),
            ("test", {}, (5, 5)),
        ],
    )
    def test_of_a_verb(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, options: Any, seconds: Any
    ) -> None:
        if seconds is not None:
            assert self.run(tmp_path, monkeypatch, verb, **options) == seconds
            return
        with pytest.raises(InputError, match="max_epochs"):  # epochs without a limit
            self.run(tmp_path, monkeypatch, verb, **options)


@pytest.mark.slow
def test_estimate_is_near_what_runs_take(tmp_path: Path, lab: Lab) -> None:
    lab.monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))  # of no other test
    content = MINIMAL | {
        "options": {
            "data": {"train_size": 1000, "validation_size": 200, "test_size": 200},
            "trainer": {"max_epochs": 4, "accelerator": "cpu", "devices": 1},
        },
        "base": {"seeds": [0], "options": {"model": {"net": {"hidden_size": 32}}}},
        "adversaries": {"lambdas": {"kl": [0.01]}, "seeds": [0]},
    }
    file, root = lab.write(content), tmp_path / "runs"
    (folder,) = study_folders(file, root, "tiny")
    runs = list(folder.runs.values())
    executor = ProcessExecutor(1)
    try:
        estimated = estimate(folder, runs, executor)
        assert estimated.reasons == {}
        assert estimated.timed == ["base", "adversary"]
        assert not root.exists()
        assert not list(Path(os.environ["ATTNLIGHT_CACHE"]).glob("outputs-*"))
        (outcome,) = run_study(file, root, executor=executor).values()
    finally:
        executor.shutdown(cancel_futures=True)
    assert outcome.finished == [run.name for run in runs]
    measured = sum(folder.job_result(run)["seconds"] for run in runs)
    total = sum(estimated.seconds[run.role] for run in runs)
    print(f"estimated {total:.0f} s, measured {measured:.0f} s")
    assert measured / 4 < total < measured * 4

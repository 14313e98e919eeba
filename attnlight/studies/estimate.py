"""`estimate`: how long the runs of a study take, from finished runs or else from timed batches."""

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from attnlight.__main__ import main
from attnlight.data.prepared import cache_root
from attnlight.errors import InputError, one_line
from attnlight.storage.foreign_classes import TRUST, trusting
from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.job import become_attnlight, last_line, print_to
from attnlight.studies.plan import ROLES, PlannedRun
from attnlight.studies.scheduling import minutes
from attnlight.studies.spec import Study
from attnlight.studies.state import StudyFolder

BATCHES = 5  # of each loop
_EPOCHS = 2  # the first also imports and allocates what later ones use again
_OMITTED = "omitted_seconds"


@dataclass
class Estimate:
    """How long the runs of a study take."""

    seconds: dict[str, float]  # of one run, by role
    # The roles of which a few batches were timed: an upper bound, for all epochs. Of the others it
    # is the median of finished runs.
    timed: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why a role has no estimate

    def words(self, runs: Sequence[PlannedRun]) -> str:
        """How long runs take one after the other, in words."""
        roles = [run.role for run in runs]
        if "roar" not in self.seconds:  # of no more words than a base, which scores them, too
            roles = ["base" if role == "roar" else role for role in roles]
        if set(roles) - self.seconds.keys():
            return "unknown"
        bound = "at most " if set(roles) & {*self.timed} else ""
        return bound + minutes(sum(self.seconds[role] for role in roles))


def estimate(folder: StudyFolder, runs: Sequence[PlannedRun], executor: Executor) -> Estimate:
    """How long runs of a study take by their roles: as finished ones did, or else by timed batches.

    One run of each role that has none finished is trained and tested on a few batches in a temporary
    folder, the base first, since the others are made from it. Nothing stays but the prepared corpus.
    The executor calls functions in processes of their own, as a `ProcessExecutor` does.
    """
    finished: dict[str, list[float]] = defaultdict(list)
    for run in folder.runs.values():
        result = folder.job_result(run)
        if result.get("state") == "finished":
            finished[run.role].append(float(result["seconds"]))
    estimates = Estimate({role: median(seconds) for role, seconds in finished.items()})
    unknown = {run.role: run for run in runs if run.role not in finished and not run.removals}
    if not unknown:
        return estimates
    base = next(run for run in folder.runs.values() if run.role == "base")
    environment = {"WANDB_MODE": "disabled", TRUST: trusting(folder.study)}
    with TemporaryDirectory(prefix="attnlight-", ignore_cleanup_errors=True) as temporary:
        place, cache = Path(temporary, "study"), Path(temporary, "cache")
        try:
            executor.submit(os.getpid).result()  # the first process waits for the server's imports
            for role in [role for role in ROLES if role in unknown or role == "base"]:
                print(f"timing {BATCHES} batches of a run: {role}", file=sys.stderr, flush=True)
                run, tested = base, role in unknown
                if role != "base":  # of a guided model, any guide but the base needs another run
                    run, guide = unknown[role], unknown[role].guide and "base"
                    run = replace(run, base=base.name, guide=guide)
                try:
                    seconds = _time(folder.study, run, place, executor, environment, tested)
                except (InputError, OSError) as error:
                    lost = (role, *unknown) if role == "base" else (role,)
                    estimates.reasons |= dict.fromkeys(lost, one_line(error))
                    if role == "base":
                        break
                    continue
                if tested:
                    estimates.timed.append(role)
                    estimates.seconds[role] = seconds
                if role == "base":
                    # All that is prepared, to which a base's outputs for a corpus may be added.
                    cache.mkdir()
                    for prepared in cache_root().absolute().glob("[!.]*"):
                        if prepared.is_dir() and not prepared.name.startswith("outputs-"):
                            (cache / prepared.name).symlink_to(prepared)
                    environment["ATTNLIGHT_CACHE"] = str(cache)
        except (KeyboardInterrupt, SystemExit):
            executor.shutdown(cancel_futures=True)  # before the folder goes
            raise
    return estimates


def _time(
    study: Study,
    run: PlannedRun,
    folder: Path,
    executor: Executor,
    environment: Mapping[str, str],
    tested: bool,
) -> float:
    """Seconds of a run: what a few batches of it took, and what the others would have taken.

    Its base is in the temporary `folder`; it is also evaluated if it is `tested`.
    """
    timer = f"--trainer.callbacks+={__name__}.{BatchTimer.__name__}"
    commands = [fit_command(study, run, folder, None, (timer,))]
    commands += evaluation_commands(study, run, folder) if tested else []
    seconds, log = 0.0, folder / f"logs/{run.name}.log"
    for command in commands:
        began = time.monotonic()
        status = executor.submit(_perform, command, log, dict(environment)).result()
        seconds += time.monotonic() - began
        if status:
            ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            reason = ended if status < 0 else last_line(log) or ended
            raise InputError(reason.removeprefix("attnlight: "))
        omitted = folder / run.name / _OMITTED
        seconds += float(omitted.read_text())
        omitted.unlink()
    return seconds


def _perform(command: list[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run a command of `attnlight` in a process that does nothing else."""
    become_attnlight(environment)
    sys.argv[1:] = command
    print_to(log)
    sys.exit(main())


class BatchTimer(Callback):
    """End each loop after a few batches, and write how many seconds the others would have taken.

    The number goes to a file in the run's folder.
    """

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Limit epochs and batches."""
        self._starts: dict[str, list[float]] = defaultdict(list)  # of batches, by loop
        self._epochs, self._limits = 1, dict[str, int | float]()
        for loop in ("train", "val", "test", "predict"):
            name = f"limit_{loop}_batches"
            self._limits[loop] = limit = getattr(trainer, name)
            if limit:
                setattr(trainer, name, min(limit, BATCHES) if isinstance(limit, int) else BATCHES)
        if stage == "fit":
            self._epochs = trainer.max_epochs or -1
            if self._epochs < 1:
                raise InputError("trainer.max_epochs gives no number of epochs.")
            trainer.fit_loop.max_epochs = min(self._epochs, _EPOCHS)
            trainer.check_val_every_n_epoch = 1

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._starts.clear()
        self._began = time.monotonic()

    @override
    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any, **__: Any
    ) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        stage = trainer.state.stage
        assert stage is not None
        self._starts[str(stage.dataloader_prefix)].append(time.monotonic())

    on_train_batch_start = on_test_batch_start = on_validation_batch_start
    on_predict_batch_start = on_validation_batch_start

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        omitted = 0.0
        if trainer.training:
            epochs = self._epochs - (trainer.max_epochs or 0)
            omitted = epochs * (time.monotonic() - self._began)
        for loop, starts in self._starts.items():
            loader = getattr(trainer, f"{loop}_dataloader{'s' * (loop != 'train')}")
            limit, number = self._limits[loop], len(loader)
            number = min(limit, number) if isinstance(limit, int) else int(limit * number)
            gaps = [end - start for start, end in pairwise(starts)]
            batch = mean(gaps[1:] or gaps or [0.0])  # the first may wait for imports
            omitted += self._epochs * max(0, number - len(starts)) * batch
        if trainer.is_global_zero:
            Path(trainer.default_root_dir, _OMITTED).write_text(str(omitted))

    # In `fit` what validation writes is written over when training ends.
    on_validation_end = on_test_end = on_predict_end = on_train_end

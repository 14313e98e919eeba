"""Every verb that SIGTERM or Ctrl-C ends has the exit status of that signal, 143 or 130."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from pydoc import locate
from typing import Any

import pytest

from attnlight.__main__ import OTHER_VERBS, USAGE, main
from attnlight.studies import cli as study
from tests.commands import CPU, finish, in_forks, start, wait_for
from tests.studies import fake
from tests.test_ranks_end import START, fit

STEPS = "attnlight.tasks.AttentionTask"
# Where each verb is when it is ended, and its arguments.
VERBS: dict[str, tuple[str, list[str]]] = {
    "fit": (f"{STEPS}.training_step", ["--run=again"]),
    "validate": (f"{STEPS}.validation_step", ["e/r"]),
    "test": (
        "attnlight.callbacks.hooks.epoch_recorder.merge_shards",
        ["e/r", "--tests=predictions"],
    ),
    "predict": (f"{STEPS}.predict_step", ["e/r"]),
    "sanity": (f"{STEPS}.test_step", ["e/r", "--data.eval_batch_size=10"]),
    "report": ("attnlight.report.page.load_run", ["e/r"]),
    "browse": ("attnlight.report.run.trained_run", ["e/r"]),
    "study": ("attnlight.studies.cli.run_study", ["planted"]),
    "reliability": ("attnlight.report.agreement.read_scores", ["e/r", "e/s"]),
    "explain": ("attnlight.api.explain.explain", ["e/r", "a text"]),
    "export": ("attnlight.cli.export.kept_scores", ["e/r"]),
    "vectors": ("attnlight.cli.vectors.find_config", ["-c", "planted", "--output=x.vec"]),
    "configs": ("attnlight.storage.shipped.shipped_configs", []),
    "demo": ("attnlight.cli.demo.subprocess.Popen.wait", []),
    "card": ("attnlight.cli.card.VerbParser.parse_args", ["e/r"]),
    "completion": ("attnlight.cli.completion.shipped_configs", ["bash"]),
    "push": ("attnlight.cli.push.VerbParser.parse_args", ["e/r", "me/films"]),
    "env": ("attnlight.cli.env.cache_root", []),
}
BOTH = ("test", "study", "demo")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert main([*fit(folder, *CPU), "--trainer.max_epochs=1"]) == 0
    return folder


def signalled(arguments: list[str]) -> int:
    """Run a command that sends itself a signal where it first calls a function."""
    number, place, *words = arguments
    owner, _, name = place.rpartition(".")
    found: Any = locate(owner)
    function = getattr(found, name)

    def called(*given: Any, **options: Any) -> Any:
        setattr(found, name, function)
        os.kill(os.getpid(), int(number))
        return function(*given, **options)

    setattr(found, name, called)
    study.ProcessExecutor = fake.Here  # type: ignore[attr-defined, misc, assignment]
    sys.executable = "/bin/sleep"  # for the demo's commands, which fail
    sys.argv[1:] = words
    signal.signal(int(number), signal.SIG_DFL)  # a shell lets its background jobs ignore Ctrl-C
    return main()


def test_each_verb_is_ended() -> None:
    assert VERBS.keys() == {*USAGE, *OTHER_VERBS}


@pytest.mark.parametrize(
    ("verb", "number"),
    [(verb, signal.SIGTERM) for verb in VERBS] + [(verb, signal.SIGINT) for verb in BOTH],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_status(trained: Path, verb: str, number: signal.Signals) -> None:
    place, words = VERBS[verb]
    words = fit(trained, *CPU, *words) if verb == "fit" else [verb, *words]
    statuses, printed = in_forks(
        signalled, [str(int(number)), place, *words], cwd=trained, environments=[dict(os.environ)]
    )
    assert statuses == [128 + number], printed[-3000:]
    assert "Traceback" not in printed
    assert ("the same command continues the study" in printed) == (verb == "study")
    assert not list(trained.glob("e/r/records/test/*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_status_where_workers_are_ended_too(tmp_path: Path, number: signal.Signals) -> None:
    words = fit(tmp_path, *CPU, "--data.num_workers=2", "--trainer.max_epochs=10000")
    process = start(["-m", "attnlight", *words], cwd=tmp_path)
    wait_for((tmp_path / "e/r/last.ckpt").exists, START)
    os.killpg(process.pid, number)
    assert "Traceback" not in finish(process, 128 + number)


def test_slurm_requeues_before_the_job_is_ended(trained: Path, tmp_path: Path) -> None:
    """SIGUSR1 saves a checkpoint and requeues the job, which SLURM then ends by SIGTERM."""
    requeue = tmp_path / "scontrol"
    requeue.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/requeued\nkill -TERM $PPID\n')
    requeue.chmod(0o755)
    variables = {"NTASKS": "1", "JOB_ID": "7", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
    slurm = {f"SLURM_{name}": value for name, value in variables.items()}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = fit(trained, *CPU, "--run=requeued")
    given = [str(int(signal.SIGUSR1)), f"{STEPS}.training_step", *words]
    statuses, printed = in_forks(signalled, given, cwd=trained, environments=[environment])
    assert statuses == [143], printed[-3000:]
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert (trained / "e/requeued/hpc_ckpt_1.ckpt").is_file()

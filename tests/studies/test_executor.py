"""What is done, what is left out, and what becomes of failures; the runs are stand-ins."""

from __future__ import annotations

import json
from subprocess import TimeoutExpired
from typing import IO, Any

import pytest

from attnlight.studies import executor
from attnlight.studies.executor import Executor
from tests.studies.conftest import CONTENT, TAGGER, WHOLE, Lab
from tests.studies.fake import Instant

PAIR: dict[str, Any] = CONTENT | {"uniform": {"seeds": [0]}}


@pytest.mark.parametrize(
    ("content", "verbs", "missing"),
    [
        (WHOLE, ("fit", "test"), "test/predictions.parquet"),
        (TAGGER, ("fit", "validate", "test"), "val/base_divergence.parquet"),
    ],
    ids=["texts", "tokens"],
)
def test_each_run_is_trained_and_then_evaluated(
    lab: Lab, content: dict[str, Any], verbs: tuple[str, ...], missing: str
) -> None:
    assert lab.run(content) == 0
    started = lab.started()
    for name in lab.runs(content):
        assert [verb for verb, run in started if run == name] == list(verbs)
    (lab.root / "tiny/seed-b0-s1/records" / missing).unlink()
    assert lab.run(content) == 0
    assert lab.started() == [(verb, "seed-b0-s1") for verb in verbs[1:]], "it was not done"


def test_whole_study(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run(WHOLE, "--jobs=2") == 0
    started = lab.started()
    last = max(started.index(("test", name)) for name in lab.runs(WHOLE) if "l0.0" in name)
    assert started.index(("fit", "guide-adversary-s0")) > last
    printed = capsys.readouterr().out
    assert "[12/12] guide-adversary-s0 finished in" in printed
    assert "12 finished" in printed
    assert not list(lab.root.rglob("last.ckpt"))
    # F1 of lambda 0.05 is higher, and both are far enough.
    assert guide_run(lab) == "adversary-kl-l0.05-s0"
    collected = lab.collected()
    assert collected["selected"] == {
        "run": "adversary-kl-l0.05-s0",
        "term": "kl",
        "lambda": 0.05,
        "reached": True,
    }
    assert lab.run(WHOLE) == 0
    assert lab.calls() == [], "what is done is not done again"
    assert lab.collected() == collected


def guide_run(lab: Lab) -> str | None:
    """The adversary that guides."""
    return lab.state(WHOLE).guide_run(lab.runs(WHOLE)["guide-adversary-s0"])


def test_failure_does_not_stop_the_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "adversary-kl-l0.06-s1")
    assert lab.run(WHOLE) == 1
    log = lab.root / "tiny/logs/adversary-kl-l0.06-s1.log"
    printed = capsys.readouterr().out
    assert f"attnlight: the disk is on fire. ({log})" in printed
    assert "failed: adversary-kl-l0.06-s1: attnlight: the disk is on fire." in printed
    assert "guide-adversary-s0 skipped: it needs adversary-kl-l0.06-s1" in printed
    assert "10 finished, 1 failed, 1 skipped" in printed
    assert "$ attnlight fit -c" in log.read_text()
    states = {run["name"]: run["state"] for run in lab.collected()["runs"]}
    assert states.pop("adversary-kl-l0.06-s1") == "failed"
    assert states.pop("guide-adversary-s0") == "missing"
    assert set(states.values()) == {"finished"}
    lab.calls()
    monkeypatch.delenv("FAKE_FAILS")
    assert lab.run(WHOLE) == 0
    assert {name for _, name in lab.started()} == {"adversary-kl-l0.06-s1", "guide-adversary-s0"}


def test_nothing_finished_is_not_collected(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAILS", "base-s0")
    assert lab.run(PAIR) == 1
    assert not (lab.root / "tiny/study.json").exists()


def test_shards_wait_for_each_other(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run(WHOLE, "--shard=2/2") == 3
    assert lab.calls() == []
    assert "wait for runs of another shard or role" in capsys.readouterr().out
    assert lab.run(WHOLE, "--only=base") == 0
    assert lab.run(WHOLE, "--shard=1/2") == 3, "an adversary's guide waits for all adversaries"
    assert lab.run(WHOLE, "--shard=2/2") == 0
    assert lab.run(WHOLE, "--shard=1/2") == 0
    done = lab.started()
    assert len(done) == len(set(done)) == 2 * len(lab.runs(WHOLE)), "each run once"


def test_only_some_roles(lab: Lab) -> None:
    assert lab.run(WHOLE, "--only=base,seed") == 0
    assert {name for _, name in lab.started()} == {"base-s0", "seed-b0-s1"}


def test_interrupted_runs_go_on(lab: Lab) -> None:
    assert lab.run(PAIR) == 0
    lab.calls()
    folder = lab.root / "tiny"
    uniform = folder / "uniform-s0"
    (uniform / "status.json").unlink()
    (uniform / "last.ckpt").write_bytes((uniform / "best.ckpt").read_bytes())
    assert lab.run(PAIR) == 0
    fit, test = lab.calls()
    assert fit[-2:] == ["--ckpt_path", "last"]
    assert test[0] == "test"

    (uniform / "status.json").unlink()  # and no last.ckpt
    assert lab.run(PAIR) == 0
    assert lab.calls()[0][-1] == "--overwrite"

    (uniform / "best.ckpt").write_bytes(b"half")  # of a run that says it is finished
    assert lab.run(PAIR) == 0
    assert lab.calls()[0][-1] == "--overwrite"

    record = uniform / "records/test/base_divergence.parquet"
    record.write_bytes(record.read_bytes()[:100])
    assert lab.run(PAIR) == 0
    assert lab.started() == [("test", "uniform-s0")]


def test_interruption_ends_what_is_under_way(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[str] = []

    class Endless:
        returncode = None

        def __init__(self, command: list[str], **_: Any) -> None:
            self.run = next(word for word in json.loads(command[3])[0] if word.startswith("--run="))

        def poll(self) -> None:
            if self.run == "--run=uniform-s0":
                raise KeyboardInterrupt

        def terminate(self) -> None:
            ended.append(f"asked {self.run}")

        def wait(self, timeout: float | None = None) -> None:
            if timeout is not None and self.run == "--run=seed-b0-s1":
                raise TimeoutExpired("attnlight", timeout)
            ended.append(f"over {self.run}")

        def kill(self) -> None:
            ended.append(f"killed {self.run}")

    assert lab.run(WHOLE, "--only=base") == 0
    before = lab.collected()
    monkeypatch.setattr(executor, "Popen", Endless)
    assert lab.run(WHOLE, "--jobs=2") == 130
    assert "goes on where it was" in capsys.readouterr().out
    uniform, seed = "--run=uniform-s0", "--run=seed-b0-s1"
    asked = [f"asked {uniform}", f"asked {seed}"]
    assert ended == [*asked, f"over {uniform}", f"killed {seed}", f"over {seed}"]
    assert lab.collected() == before, "what was there stays"


def test_a_larger_grid_tells_guides_anew(lab: Lab) -> None:
    fewer = WHOLE | {"adversaries": {"lambdas": {"kl": [0, 0.06]}, "seeds": [0, 1]}}
    assert lab.run(fewer) == 0
    assert guide_run(lab) == "adversary-kl-l0.06-s0"
    lab.calls()
    assert lab.run(WHOLE) == 0
    started = lab.started()
    assert {name for _, name in started} == {
        "adversary-kl-l0.05-s0",
        "adversary-kl-l0.05-s1",
        "guide-adversary-s0",
    }
    assert guide_run(lab) == "adversary-kl-l0.05-s0"


@pytest.mark.parametrize("given", [None, "5"])
def test_what_processes_are_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    told: list[dict[str, str]] = []

    class Told(Instant):
        def __init__(self, command: list[str], *, env: dict[str, str], **options: Any) -> None:
            told.append(env)
            super().__init__(command, env=env, **options)

    monkeypatch.setattr(executor, "Popen", Told)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert lab.run(PAIR, "--jobs=3") == 0
    assert [environment["WANDB_JOB_TYPE"] for environment in told] == ["base", "uniform"]
    assert {environment["OMP_NUM_THREADS"] for environment in told} == {given or "2"}
    assert not any("SLURM_NTASKS" in environment for environment in told)


@pytest.mark.parametrize(
    ("status", "log", "why"),
    [
        (2, b"one\n\xfftwo \n\n", "\ufffdtwo"),
        (-9, b"one", "ended by SIGKILL"),
        (1, b"\n", "$ attnlight fit -c"),
        (0, b"fine", "it left no readable checkpoint, or not all records"),
    ],
)
def test_why_a_process_failed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, status: int, log: bytes, why: str
) -> None:
    class Failed:
        returncode = status

        def __init__(self, _: Any, *, stdout: IO[bytes], **__: Any) -> None:
            stdout.write(log)

        def poll(self) -> int:
            return self.returncode

    monkeypatch.setattr(executor, "Popen", Failed)
    outcome = Executor(lab.state(CONTENT), jobs=1, lock=0).work([*lab.runs(CONTENT).values()])
    assert outcome.failed["base-s0"].startswith(why)


def test_dry_run_runs_nothing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run(WHOLE, "--dry-run") == 0
    assert not lab.root.exists()
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["run", "role", "state", "needs", "estimate"]
    assert printed.splitlines()[1].split() == ["base-s0", "base", "missing", "unknown"]
    assert printed.endswith("12 runs of 12; one after the other: unknown\n")


def test_dry_run_estimates_from_what_is_done(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run(WHOLE, "--only=base,uniform") == 0
    logs = lab.root / "tiny/logs"
    (logs / "base-s0.json").write_text('{"state": "finished", "seconds": 60}')
    (logs / "seed-b0-s1.json").write_text('{"state": "failed", "seconds": 600}')
    more = WHOLE | {"uniform": {"seeds": [0, 1]}}
    (logs / "uniform-s0.json").write_text('{"state": "finished", "seconds": 30}')
    capsys.readouterr()
    assert lab.run(more, "--dry-run") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["base-s0", "base", "finished", "-"] in lines
    assert ["uniform-s1", "uniform", "missing", "base-s0", "30", "s"] in lines
    assert ["seed-b0-s1", "seed", "failed", "base-s0", "1.0", "min"] in lines
    assert lines[-1][-2:] == ["10.5", "min"]
    assert json.loads((lab.root / "tiny/plan.json").read_text())["runs"].keys() == (
        lab.runs(WHOLE).keys()
    )

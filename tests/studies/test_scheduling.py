"""What is done, what is left out, and what becomes of failures; the runs are stand-ins."""

import pickle
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import pytest

from attnlight.studies import cli, plan, run_study
from attnlight.studies.job import Job
from attnlight.studies.plan import PlannedRun
from attnlight.studies.spec import Study
from tests.studies import fake
from tests.studies.conftest import ALL_ROLES, MINIMAL, TAGGER, Lab

PAIR: dict[str, Any] = MINIMAL | {"uniform": {"seeds": [0]}}


@pytest.mark.parametrize(
    ("content", "verbs", "missing"),
    [
        (ALL_ROLES, ("fit", "test"), "test/predictions.parquet"),
        (TAGGER, ("fit", "validate", "test"), "val/base_divergence.parquet"),
    ],
    ids=["texts", "tokens"],
)
def test_each_run_is_trained_and_then_evaluated(
    lab: Lab, content: dict[str, Any], verbs: tuple[str, ...], missing: str
) -> None:
    started = lab.starts(content)
    for name in lab.runs(content):
        assert [verb for verb, run in started if run == name] == list(verbs)
    (lab.root / "tiny/seed-b0-s1/records" / missing).unlink()
    assert lab.starts(content) == [(verb, "seed-b0-s1") for verb in verbs[1:]], "it was not done"


def test_whole_study(lab: Lab) -> None:
    started = lab.starts(ALL_ROLES, "--jobs=2")
    last = max(started.index(("test", name)) for name in lab.runs(ALL_ROLES) if "l0.0" in name)
    assert started.index(("fit", "guide-adversary-s0")) > last
    printed = lab.capsys.readouterr().out
    for words in ("[12/12] guide-", "guide-adversary-s0 finished in", "12 finished"):
        assert words in printed
    assert not list(lab.root.rglob("last.ckpt"))
    # F1 of lambda 0.05 is higher, and both are far enough.
    assert guide_run(lab) == "adversary-kl-l0.05-s0"
    collected, chosen = lab.collected(), {"term": "kl", "lambda": 0.05, "reached": True}
    assert collected["selected"] == chosen | {"run": "adversary-kl-l0.05-s0"}
    assert lab.starts(ALL_ROLES) == [], "what is done is not done again"
    assert lab.collected() == collected


def guide_run(lab: Lab) -> str | None:
    return lab.study_folder(ALL_ROLES).guide_run(lab.runs(ALL_ROLES)["guide-adversary-s0"])


def test_failure_does_not_stop_the_others(lab: Lab) -> None:
    lab.monkeypatch.setenv("FAKE_FAILS", "adversary-kl-l0.06-s1")
    assert lab.run(ALL_ROLES) == 1
    log = lab.root / "tiny/logs/adversary-kl-l0.06-s1.log"
    printed = lab.capsys.readouterr().out
    assert f"attnlight: the disk is on fire. ({log})" in printed
    assert "failed: adversary-kl-l0.06-s1: attnlight: the disk is on fire." in printed
    assert "guide-adversary-s0 skipped: it needs adversary-kl-l0.06-s1" in printed
    assert "10 finished, 1 failed, 1 skipped" in printed
    assert "$ attnlight fit -c" in log.read_text()
    states = {run["name"]: run["state"] for run in lab.collected()["runs"]}
    assert states.pop("adversary-kl-l0.06-s1") == "failed"
    assert states.pop("guide-adversary-s0") == "missing"
    assert set(states.values()) == {"finished"}
    lab.monkeypatch.delenv("FAKE_FAILS")
    again = {"adversary-kl-l0.06-s1", "guide-adversary-s0"}
    assert {name for _, name in lab.starts(ALL_ROLES)} == again


def test_shards_wait_for_each_other(lab: Lab) -> None:
    assert lab.starts(ALL_ROLES, "--shard=2/2", status=3) == []
    *_, waiting, last = lab.capsys.readouterr().out.splitlines()
    assert "wait for runs of another shard or role" in waiting
    assert Path(last).is_dir()
    assert lab.run(ALL_ROLES, "--only=base") == 0
    assert lab.run(ALL_ROLES, "--shard=1/2") == 3, "an adversary's guide waits for all adversaries"
    assert lab.run(ALL_ROLES, "--shard=2/2") == 0
    assert lab.run(ALL_ROLES, "--shard=1/2") == 0
    done = lab.started()
    assert len(done) == len(set(done)) == 2 * len(lab.runs(ALL_ROLES)), "each run once"


def test_interrupted_runs_go_on(lab: Lab) -> None:
    assert lab.run(PAIR) == 0
    lab.calls()
    uniform = lab.root / "tiny/uniform-s0"
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
    assert lab.starts(PAIR) == [("test", "uniform-s0")]


def test_interruption_cancels_what_waits(lab: Lab) -> None:
    assert lab.run(ALL_ROLES, "--only=base") == 0
    before, futures, shut = lab.collected(), list[Future[int]](), list[bool]()

    class Interrupted(fake.Here):
        def submit(self, fn: Any, /, *_: Any, **__: Any) -> Future[Any]:
            if len(futures) == 3:
                raise SystemExit(143)  # by SIGTERM
            futures.append(Future())
            return futures[-1]

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            shut.append(cancel_futures)

    lab.monkeypatch.setattr(cli, "ProcessExecutor", Interrupted)
    with pytest.raises(SystemExit, match="143"):
        lab.run(ALL_ROLES)
    assert "the same command continues the study" in lab.capsys.readouterr().out
    assert len(futures) == 3
    assert shut == [True]
    assert lab.collected() == before, "what was there stays"


def test_a_study_that_grows_after_its_corpus_changed_is_refused(lab: Lab) -> None:
    lab.monkeypatch.setenv("FAKE_CORPUS", "v2-a")
    assert lab.run(PAIR) == 0
    before = lab.collected()
    lab.monkeypatch.setenv("FAKE_CORPUS", "v2-b")
    grown = PAIR | {"base": {"seeds": [0, 1]}, "seeds": {"seeds": [0, 1]}}
    for expected in ([("fit", "base-s1"), ("test", "base-s1")], []):
        assert lab.starts(grown, "--only=base", status=2) == expected
        told = lab.capsys.readouterr().err
        for name in ("tiny/base-s0/", "tiny/base-s1/", "different corpora", "--name"):
            assert name in told
        assert lab.collected() == before
    assert lab.run(PAIR) == 0, "what was there is one study"


def test_a_larger_grid_tells_guides_anew(lab: Lab) -> None:
    fewer = ALL_ROLES | {"adversaries": {"lambdas": {"kl": [0, 0.06]}, "seeds": [0, 1]}}
    assert lab.run(fewer) == 0
    assert guide_run(lab) == "adversary-kl-l0.06-s0"
    told = {"adversary-kl-l0.05-s0", "adversary-kl-l0.05-s1", "guide-adversary-s0"}
    assert {name for _, name in lab.starts(ALL_ROLES)} == told
    assert guide_run(lab) == "adversary-kl-l0.05-s0"


def test_what_jobs_take_along(lab: Lab) -> None:
    jobs: list[Job] = []

    class Noted(fake.Here):
        def status(self, given: Any) -> int:
            jobs.append(pickle.loads(pickle.dumps(given)))
            return super().status(given)

    lab.monkeypatch.setattr(cli, "ProcessExecutor", Noted)
    lab.monkeypatch.setenv("WANDB_PROJECT", "mine")
    lab.monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    own = {"base": {"seeds": [0], "options": {"model": {"net": {"class_path": "pandas.Net"}}}}}
    assert lab.run(PAIR | own) == 0
    assert [job.run for job in jobs] == ["base-s0", "uniform-s0"]
    assert {job.environment["ATTNLIGHT_TRUST"] for job in jobs} == {"pandas,tests"}
    assert [job.environment["WANDB_JOB_TYPE"] for job in jobs] == ["base", "uniform"]
    assert {job.environment["WANDB_PROJECT"] for job in jobs} == {"mine"}
    assert not any("CUDA_VISIBLE_DEVICES" in job.environment for job in jobs), "the worker's own"


class Failing(fake.Here):
    """Ends the first jobs in some other way, and does the others."""

    ends: ClassVar[list[int | Exception]] = []

    def submit(self, fn: Any, /, *_: Any, **__: Any) -> Future[Any]:
        if not self.ends:
            return super().submit(fn)
        future: Future[Any] = Future()
        end = self.ends.pop(0)
        future.set_exception(end) if isinstance(end, Exception) else future.set_result(end)
        return future


@pytest.mark.parametrize(
    ("end", "log", "why", "times"),
    [
        (2, b"one\n\xfftwo \n\n", "\ufffdtwo", 1),
        (1, b"\n", "it printed nothing", 1),
        (0, b"fine", "its checkpoint is not readable, or records are missing", 1),
        (-9, b"one", "ended by SIGKILL", 2),
        (143, b"one", "ended by SIGTERM", 2),
        (255, b"one", "its process was lost", 2),
        (OSError("the node\nis gone"), b"one", "its worker failed: the node is gone", 2),
    ],
)
def test_why_a_job_failed_and_whether_it_is_tried_again(
    lab: Lab, end: int | Exception, log: bytes, why: str, times: int
) -> None:
    folder = lab.study_folder(MINIMAL)
    folder.log("base-s0").parent.mkdir(parents=True)
    folder.log("base-s0").write_bytes(log)
    executor = Failing()
    executor.ends[:] = [end] * times
    (outcome,) = run_study(lab.write(MINIMAL), lab.root, executor=executor).values()
    assert outcome.failed == {"base-s0": why}
    assert folder.state(lab.runs(MINIMAL)["base-s0"]) == "failed"
    executor.ends[:] = [end] * (times - 1)
    (outcome,) = run_study(lab.write(MINIMAL), lab.root, executor=executor).values()
    assert outcome.finished == ["base-s0"]


def test_a_package_without_torch_and_without_other_names() -> None:
    """A job starts as a module of the package, which must not have imported it."""
    command = """
import sys, attnlight.studies as studies
assert not {'torch', 'attnlight.studies.job'} & set(sys.modules)
assert not hasattr(studies, 'run_studies')
"""
    subprocess.run([sys.executable, "-c", command], check=True)


def test_digests_of_a_study_are_computed_once(lab: Lab) -> None:
    calls: list[Study] = []

    def counted(study: Study, runs: Iterable[PlannedRun]) -> dict[str, str]:
        calls.append(study)
        return plan.digests(study, runs)

    lab.monkeypatch.setattr("attnlight.studies.state.digests", counted)
    run_study(lab.write(MINIMAL), lab.root, roles=())
    assert len(calls) == 1

"""A job: a run of a study in a process of its own."""

import json
import os
import sys

import pytest
import torch

from attnlight.studies import job
from attnlight.studies.job import Job
from tests.studies import fake
from tests.studies.conftest import MINIMAL, TAGGER, Lab


def the_job(lab: Lab, run: str = "base-s0") -> Job:
    environment = {"FAKE_ADDED": "1"}
    file, root = str(lab.folder / "tiny.yaml"), str(lab.root)
    return Job(file, root, "tiny", None, run, str(lab.folder), environment)


def test_is_plain_strings(lab: Lab) -> None:
    assert Job(**json.loads(the_job(lab).command[-1])) == the_job(lab)
    assert the_job(lab).command[:-1] == [sys.executable, "-m", "attnlight.studies.job"]


def test_commands_follow_each_other_until_one_fails(lab: Lab) -> None:
    def main() -> int:
        assert os.environ["FAKE_ADDED"] == "1"
        assert "SLURM_NTASKS" not in os.environ
        assert "LEFT_BEHIND" not in os.environ
        os.environ["LEFT_BEHIND"] = "1"
        status = fake.main()
        if sys.argv[1] == "validate":
            print("attnlight: a mistake.")
        return 2 * (sys.argv[1] == "validate") or status

    lab.monkeypatch.setattr(job, "main", main)
    lab.monkeypatch.setenv("SLURM_NTASKS", "4")
    lab.write(TAGGER)
    assert fake.Here().status(the_job(lab)) == 2
    assert lab.started() == [("fit", "base-s0"), ("validate", "base-s0")]
    log = (lab.root / "tiny/logs/base-s0.log").read_text()
    assert log.startswith("$ attnlight fit -c")
    assert log.endswith("attnlight: a mistake.\n")
    assert lab.study_folder(TAGGER).job_result(lab.runs(TAGGER)["base-s0"])["state"] == "failed"
    lab.monkeypatch.setattr(job, "main", fake.main)
    for left in (
        [("validate", "base-s0"), ("test", "base-s0")],
        [],
    ):  # it goes on, until it is done
        assert fake.Here().status(the_job(lab)) == 0
        assert lab.started() == left


def test_a_run_that_a_signal_ends_is_missing(lab: Lab) -> None:
    lab.monkeypatch.setattr(job, "main", lambda: sys.exit(143))
    lab.write(MINIMAL)
    assert fake.Here().status(the_job(lab)) == 143
    assert lab.study_folder(MINIMAL).state(lab.runs(MINIMAL)["base-s0"]) == "missing"


def test_refuses_a_study_that_has_changed(lab: Lab) -> None:
    assert lab.run(MINIMAL) == 0
    lab.write(MINIMAL | {"options": {"trainer": {"max_epochs": 1}}})
    assert fake.Here().status(the_job(lab)) == 1
    lab.write(MINIMAL | {"base": {"seeds": [0, 3]}})
    assert fake.Here().status(the_job(lab, "uniform-s0")) == 1


def test_after_several_ranks_another_process_goes_on(lab: Lab) -> None:
    class Gone(BaseException):
        """This process became another."""

    def become(program: str, words: list[str]) -> None:
        assert program == words[0]
        assert words == the_job(lab).command
        assert lab.started() == [("fit", "base-s0")]
        raise Gone

    def main() -> int:
        lab.monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        return fake.main()

    lab.monkeypatch.setattr(job, "main", main)
    lab.monkeypatch.setattr(os, "execv", become)
    lab.write(MINIMAL)
    with pytest.raises(Gone):
        fake.Here().status(the_job(lab))

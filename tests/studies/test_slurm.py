"""A study on a real cluster of one node: `tests/studies/slurm.sh python -m pytest -m slurm`."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import torch

from tests.commands import wait_for
from tests.studies.test_whole import PAIR, begin, finish

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(shutil.which("sbatch") is None, reason="no sbatch here"),
    pytest.mark.skipif("SLURM_CONF" not in os.environ, reason="no cluster: see slurm.sh"),
]
STUDY: dict[str, Any] = PAIR | {"uniform": {"seeds": [0, 1, 2]}, "seeds": {"seeds": [1]}}
SLURM = ("--slurm", "partition=cpu", "timeout_min=30", "mem_gb=1")


def jobs(state: str) -> list[str]:
    command = ["squeue", "--noheader", "--array", f"--states={state}", "--format=%i"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def workers() -> list[psutil.Process]:
    """The processes that train a variant by now."""
    found = psutil.process_iter(["cmdline"])
    own = [p for p in found if "attnlight.studies.job" in (p.info["cmdline"] or [])]
    return [process for process in own if '"base-s0"' not in process.info["cmdline"][-1]]


def weights(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(run / "best.ckpt", weights_only=True)["state_dict"]
    return state


def test_disturbed_study_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    places = [tmp_path / "whole", tmp_path / "disturbed"]
    for place in places:
        place.mkdir()
    finish(begin(places[0], STUDY))
    study = begin(places[1], STUDY, *SLURM)
    wait_for(lambda: (places[1] / "study/base-s0/records/test/predictions.parquet").is_file())
    array = wait_for(lambda: jobs("RUNNING,PENDING") if len(jobs("RUNNING,PENDING")) > 3 else None)
    assert len({job.partition("_")[0] for job in array}) == 1, "variants are one array"
    subprocess.run(["scancel", array[-1]], check=True)
    wait_for(workers)[0].send_signal(signal.SIGKILL)
    assert not [line for line in (places[1] / "study").rglob("slurm") if line.stat().st_mode & 0o77]
    time.sleep(5)
    study.kill()
    study.communicate()
    process = begin(places[1], STUDY, *SLURM)
    output, _ = process.communicate(timeout=1800)
    sys.stdout.write(output)
    assert process.returncode == 0, output
    whole, disturbed = (place / "study" for place in places)
    tables = [pq.read_table(folder / "study.parquet") for folder in (whole, disturbed)]
    assert tables[0].equals(tables[1])
    for run in sorted(path.parent.name for path in whole.glob("*/best.ckpt")):
        expected, found = weights(whole / run), weights(disturbed / run)
        assert all(torch.equal(expected[name], found[name]) for name in expected | found), run


def test_mistyped_parameter_is_named(tmp_path: Path) -> None:
    process = begin(tmp_path, STUDY, "--slurm", "partitoin=cpu")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "did you mean 'partition'?" in output

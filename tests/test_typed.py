"""A user's project passes mypy --strict against attnlight as it is installed, and a mistake does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import attnlight
from tests.commands import ROOT

PROJECT = '''\
import torch

import attnlight
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.functional import total_variation
from attnlight.models.readout import Readout


class Uniform(InterpretabilityTest):
    """Attend to all words alike."""

    measures = ("tvd",)

    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> dict[str, torch.Tensor]:
        uniform = output.mask / output.mask.sum(dim=-1, keepdim=True)
        candidate = uniform[:, None, None].expand_as(output.weights[:, :, None])
        probabilities = readout.candidates(candidate).squeeze(1).softmax(dim=-1)
        return {"tvd": total_variation(probabilities, output.probabilities)}


results: attnlight.Results = attnlight.run("sst", ["a joy"], tests=[Uniform()])
sentence: str = results.verdict().sentence
best: list[attnlight.Explanation] = attnlight.explain("sst", ["a joy"])
'''
WRONG = "number: int = attnlight.run('sst', ['a joy'])\n"


def test_the_stub_has_all_that_the_package_exports() -> None:
    stub = (ROOT / "attnlight/__init__.pyi").read_text(encoding="utf-8")
    assert sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == sorted(attnlight.__all__)


@pytest.mark.slow
def test_a_small_project_is_checked(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    command = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(command, check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "attnlight").symlink_to(ROOT / "attnlight")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "wrong.py").write_text(PROJECT + WRONG)
    options = ["--strict", "--python-executable", str(environment / "bin/python")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "project.py", "wrong.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if ": error:" in line]
    place = PROJECT.count("\n") + 1
    assert line.startswith(f"wrong.py:{place}: error: Incompatible types"), done.stdout

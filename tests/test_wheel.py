"""The built wheel holds all that attnlight needs, and works outside the repository."""

import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.commands import CPU, QUIET, ROOT

pytestmark = pytest.mark.slow
SMALL = ["--data.train_size=64", "--data.validation_size=16", "--data.test_size=16"]
SMALL += ["--trainer.max_epochs", "1", "--trainer.logger=false", *QUIET, *CPU]
STUDY = """\
experiment: planted_bilstm
tests: [attention_permutation]
options:
  trainer: {max_epochs: 1, logger: false, accelerator: cpu, devices: 1}
  data: {train_size: 64, validation_size: 16, test_size: 16}
uniform: {seeds: [0]}
"""
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package, built in a copy, since setuptools packs what earlier builds left."""
    folder = tmp_path_factory.mktemp("wheel")
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("attnlight", "configs"):
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    run([sys.executable, "-c", BUILD, str(folder)], folder / "source", os.environ)
    (built,) = folder.glob("*.whl")
    return built


class Installation:
    """The wheel in its own folder, before the packages of these tests, and a folder to be in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.packages, self.home = folder / "packages", folder / "home"
        self.home.mkdir()
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
        run([*pip, "--target", str(self.packages), str(wheel)], folder, os.environ)

    def attnlight(self, *arguments: str) -> str:
        changes = {"PYTHONPATH": str(self.packages), "OMP_NUM_THREADS": "1"}
        left_out = {"ATTNLIGHT_DATA"}
        environment = {k: v for k, v in os.environ.items() if k not in left_out} | changes
        return run([sys.executable, "-m", "attnlight", *arguments], self.home, environment)


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """What a command prints that ends with status 0."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installation:
    return Installation(tmp_path_factory.mktemp("installed"), wheel)


def test_holds_every_file(wheel: Path) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in (ROOT / "attnlight", ROOT / "attnlight/configs")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"attnlight/py.typed", "attnlight/configs/trainer.yaml"} <= files
    assert {"attnlight/report/templates/run.html.jinja", "attnlight/configs/README.md"} <= files
    assert {"attnlight/trained/sst/best.ckpt", "attnlight/trained/sst/README.md"} <= files
    packed = {name for name in ZipFile(wheel).namelist() if not name.startswith("attnlight-")}
    assert packed == files
    assert wheel.stat().st_size <= 3e6


def test_lists_its_own_files(installed: Installation) -> None:
    assert "experiments/planted_bilstm" in installed.attnlight("configs").splitlines()
    first, *_ = installed.attnlight("configs", "planted_bilstm").splitlines()
    assert first.startswith(f"# {installed.packages}/attnlight/configs/experiments/")


def test_does_a_study(installed: Installation) -> None:
    (installed.home / "small.yaml").write_text(STUDY)
    installed.attnlight("study", "small.yaml", "--jobs", "1")
    assert (installed.home / "checkpoints/small/study.json").is_file()
    assert "13 runs of 13" in installed.attnlight("study", "planted", "--dry-run")


def test_the_dockerfile_installs_into_an_empty_environment(tmp_path: Path) -> None:
    """What it copies and runs, with a new environment in place of its image's Python."""
    lines = (ROOT / "docs/Dockerfile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 15
    steps = [line.partition(" ")[::2] for line in lines]
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PATH"] = f"{tmp_path / 'venv/bin'}:{environment['PATH']}"
    environment["PIP_RETRIES"] = "0"  # once for each package where torch's index cannot be reached
    source, home = tmp_path / "source", tmp_path / "home"
    source.mkdir()
    home.mkdir()
    for step, words in steps:
        if step == "COPY":
            *names, place = words.split()
            for path in (ROOT / name for name in names):
                if path.is_dir():
                    shutil.copytree(path, source / place, symlinks=True)
                else:
                    shutil.copy(path, source / place)
        elif step == "RUN":
            run(shlex.split(words), source, environment)
    assert [step for step, _ in steps].count("RUN") == 1
    said = run(["attnlight", "explain", "sst", "a gripping film"], home, environment)
    assert said.startswith("Prediction: positive")

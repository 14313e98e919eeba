"""launch.sh and .ci/run with a stand-in for Python and nothing of this machine on PATH."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ["bash", "cat", "cksum", "cp", "dirname", "env", "flock", "grep", "ls", "mkdir", "mktemp"]
TOOLS += ["rm", "sleep", "touch"]
ARGUMENTS = ("fit", "-c", "a folder/x.yaml", "--run", "it's")
TORCHRUN = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "host"}
VERBS = ("fit", "validate", "test", "predict")
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "2", "SLURM_NTASKS": "8"}

PYTHON = """#!/usr/bin/env bash
# Stands in for Python, pip and venv.
printf -v line ' %q' "$@"
log() { echo "${line:1}" >>"$LOG"; }
case "$1 ${2:-} ${3:-}" in
  "-c import ensurepip, sys"*) [[ -z ${UNSUITABLE:-} ]] ;;
  "-m venv --clear")
    log
    rm -rf -- "$5" && mkdir -p -- "$5/bin" && touch -- "$5/pyvenv.cfg" && cp -- "$0" "$5/bin/python"
    ;;
  "-m pip --version") ;;
  "-m pip install") log && sleep "${PIP_SECONDS:-0}" && exit "${PIP_STATUS:-0}" ;;
  *) log && [[ $2 != "${FAILING:-}" ]] && exit "${PYTHON_STATUS:-0}" ;;
esac
"""


class Checkout:
    """A copy of the repository's shell side, in a folder whose name has a space."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.log = folder / "log"
        self.path = folder / "bin"
        self.path.mkdir()
        (self.root / ".ci").mkdir(parents=True)
        for name in ("launch.sh", ".ci/run"):
            shutil.copy(ROOT / name, self.root / name)
        for name in ("pyproject.toml", "constraints.txt"):
            (self.root / name).write_text(f"{name}\n")
        for tool in TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool) or tool)
        self.add_command("python3", PYTHON)

    def add_command(self, name: str, script: str) -> None:
        (self.path / name).write_text(script)
        (self.path / name).chmod(0o755)

    @property
    def python(self) -> str:
        return str(self.root / ".venv/bin/python")

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.path), "LOG": str(self.log), "LC_ALL": "C.UTF-8"}

    def launch(self, *arguments: str, status: int = 0, **variables: str) -> tuple[str, str]:
        """What `launch.sh` prints and says on stderr; it must end with `status`."""
        done = subprocess.run(
            [str(self.root / "launch.sh"), *arguments],
            env=self.environment | variables,
            cwd=self.root.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout, done.stderr

    def lines(self, *arguments: str, **variables: str) -> list[list[str]]:
        """The commands of a dry run, as the shell would split them."""
        printed, said = self.launch("--dry-run", *arguments, **variables)
        assert not said
        return [shlex.split(line) for line in printed.splitlines()]

    def calls(self) -> list[list[str]]:
        """How Python was called since the last look."""
        if not self.log.exists():
            return []
        found = [shlex.split(line) for line in self.log.read_text().splitlines()]
        self.log.unlink()
        return found

    def modules(self) -> list[str]:
        """What Python was called with as `-m` since the last look."""
        return [call[1] for call in self.calls()]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def installation(extras: str = "") -> list[str]:
    pip = ["-m", "pip", "install", "--disable-pip-version-check"]
    return [*pip, "-c", "constraints.txt", "-e", f".{extras}"]


def trainer(nodes: int, devices: int) -> list[str]:
    given = {"num_nodes": str(nodes), "devices": str(devices), "strategy": "ddp"}
    return [part for name, value in given.items() for part in (f"--trainer.{name}", value)]


@pytest.mark.parametrize("script", ["launch.sh", ".ci/run"])
def test_scripts_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


class TestLauncher:
    @pytest.mark.parametrize(
        ("words", "variables"),
        [
            *(((verb, *ARGUMENTS[1:]), {}) for verb in (*VERBS, "report", "--help")),
            ((), {}),
            (ARGUMENTS, TORCHRUN | {"NNODES": "1", "NODE_RANK": "0"}),  # needs no torchrun
            # what launches nothing: ranks, and other verbs
            (ARGUMENTS, TORCHRUN | {"LOCAL_RANK": "0", "RANK": "1", "WORLD_SIZE": "2"}),
            (ARGUMENTS, SLURM | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}),
            (ARGUMENTS, SLURM | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"} | TORCHRUN),
            (("report", "run"), TORCHRUN),
            (("report", "run"), SLURM),
        ],
    )
    def test_one_machine(
        self, checkout: Checkout, words: tuple[str, ...], variables: dict[str, str]
    ) -> None:
        assert checkout.lines(*words, **variables) == [[checkout.python, "-m", "attnlight", *words]]

    @pytest.mark.parametrize(
        ("variables", "devices", "port"),
        [
            ({}, 1, 29500),
            ({"MASTER_PORT": "1234"}, 1, 1234),
            ({"CUDA_VISIBLE_DEVICES": ""}, 1, 29500),
            ({"CUDA_VISIBLE_DEVICES": "-1"}, 1, 29500),
            ({"CUDA_VISIBLE_DEVICES": "3"}, 1, 29500),
            ({"CUDA_VISIBLE_DEVICES": "0,2,GPU-5d"}, 3, 29500),
            ({"CUDA_VISIBLE_DEVICES": "0,2", "NPROC_PER_NODE": "4"}, 4, 29500),
        ],
    )
    def test_several_nodes(
        self, checkout: Checkout, variables: dict[str, str], devices: int, port: int
    ) -> None:
        (line,) = checkout.lines(*ARGUMENTS, **TORCHRUN, **variables)
        launcher = f"--nnodes 2 --node-rank 1 --nproc-per-node {devices} --master-addr host"
        assert line == [
            str(checkout.root / ".venv/bin/torchrun"),
            *launcher.split(),
            *("--master-port", str(port), "-m", "--", "attnlight"),
            *ARGUMENTS,
            *trainer(2, devices),
        ]

    def test_torchrun_leaves_all_arguments_to_attnlight(self, checkout: Checkout) -> None:
        from torch.distributed.run import get_args_parser

        (line,) = checkout.lines(*ARGUMENTS, **TORCHRUN)
        options = get_args_parser().parse_args(line[1:])
        assert (options.module, options.training_script) == (True, "attnlight")
        assert options.training_script_args == [*ARGUMENTS, *trainer(2, 1)]

    @pytest.mark.parametrize("gpus", [1, 2, 8])
    def test_gpus_are_counted(self, checkout: Checkout, gpus: int) -> None:
        listing = "\n".join(f"GPU {number}: H200\n  MIG 1g" for number in range(gpus))
        checkout.add_command("nvidia-smi", f"#!/usr/bin/env bash\necho '{listing}'\n")
        (line,) = checkout.lines(*ARGUMENTS, **TORCHRUN)
        assert line[line.index("--nproc-per-node") + 1] == str(gpus)
        assert line[-6:] == trainer(2, gpus)

    def test_what_the_command_line_says_stands(self, checkout: Checkout) -> None:
        given = ("fit", "--trainer.devices=3", "--trainer.strategy", "fsdp")
        (line,) = checkout.lines(*given, **TORCHRUN)
        assert line[line.index("fit") :] == [*given, "--trainer.num_nodes", "2"]

    @pytest.mark.parametrize(
        ("variables", "tasks", "more"),
        [
            ({}, 4, []),
            ({"SLURM_CPUS_PER_TASK": "6"}, 4, ["--cpus-per-task", "6"]),
            ({"SLURM_NTASKS": "", "SLURM_NTASKS_PER_NODE": "2"}, 2, []),
            ({"SLURM_NTASKS": "", "SLURM_GPUS_ON_NODE": "8"}, 8, []),
            ({"SLURM_NTASKS": ""}, 1, []),
            ({"SLURM_NNODES": "1", "SLURM_NTASKS": "2"}, 2, []),
            # a batch script's own shell, and what many of them export for other programs
            ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "MASTER_ADDR": "h"}, 4, []),
            ({"WORLD_SIZE": "8", "NNODES": "2", "MASTER_PORT": "1"}, 4, []),
            # the shell of an interactive allocation
            ({"SLURM_STEP_ID": "4294967290", "SLURM_JOB_NAME": "interactive"}, 4, []),
        ],
    )
    def test_slurm(
        self, checkout: Checkout, variables: dict[str, str], tasks: int, more: list[str]
    ) -> None:
        given = SLURM | variables
        nodes = int(given["SLURM_NNODES"])
        (line,) = checkout.lines(*ARGUMENTS, **given)
        srun = f"srun --nodes {nodes} --ntasks {nodes * tasks} --ntasks-per-node {tasks}"
        inside = f"env SLURM_NTASKS_PER_NODE={tasks} SLURM_JOB_NAME=attnlight"
        python = [checkout.python, "-m", "attnlight"]
        expected = [*srun.split(), *more, "--kill-on-bad-exit=1", *inside.split(), *python]
        assert line == [*expected, *ARGUMENTS, *trainer(nodes, tasks)]

    def test_one_task_of_slurm_starts_its_own_ranks(self, checkout: Checkout) -> None:
        variables = {"SLURM_JOB_ID": "1", "SLURM_NNODES": "1", "SLURM_NTASKS": "1"}
        plain = checkout.lines(*ARGUMENTS)[0]
        assert checkout.lines(*ARGUMENTS, **variables) == [["env", "-u", "SLURM_NTASKS", *plain]]

    @pytest.mark.parametrize(
        ("variables", "said"),
        [
            ({"NNODES": "2", "MASTER_ADDR": "h"}, "NNODES is 2 but NODE_RANK is not set"),
            ({"NNODES": "2", "NODE_RANK": "0"}, "NNODES is 2 but MASTER_ADDR is not set"),
            ({"NODE_RANK": "1"}, "NODE_RANK is 1 but NNODES is not set"),
            (SLURM | {"SLURM_NTASKS": "7"}, "7 tasks do not spread evenly over 2 nodes"),
        ],
    )
    def test_half_said(self, checkout: Checkout, variables: dict[str, str], said: str) -> None:
        printed, error = checkout.launch("--dry-run", *ARGUMENTS, status=2, **variables)
        assert said in error
        assert (printed, error.count("\n")) == ("", 1)


class TestVerbs:
    def test_demo(self, checkout: Checkout) -> None:
        demo = [checkout.python, "-m", "attnlight", "demo"]
        assert checkout.lines("demo") == [["cd", str(checkout.root)], demo]

    @pytest.mark.parametrize(("options", "chosen"), [([], ["-m", "not slow"]), (["--all"], [])])
    def test_check(self, checkout: Checkout, options: list[str], chosen: list[str]) -> None:
        enter, *lines = checkout.lines("check", *options)
        assert enter == ["cd", str(checkout.root)]
        tools = ["ruff", "ruff", "yamllint", "mypy", "sphinx", "pytest"]
        assert [line[:3] for line in lines] == [[checkout.python, "-m", tool] for tool in tools]
        assert "--strict" in lines[2]
        assert lines[4][3:] == ["-W", "--keep-going", "-n", "-q", "docs", "build/site"]
        assert lines[5][3:] == ["-n", "2", "--dist", "worksteal", *chosen]

    @pytest.mark.parametrize("verb", ["demo", "check"])
    def test_neither_waits_for_the_tasks_of_slurm(self, checkout: Checkout, verb: str) -> None:
        lines = checkout.lines(verb, **SLURM)
        assert [line[:3] for line in lines].count(["env", "-u", "SLURM_NTASKS"]) == 1
        assert not any("srun" in line for line in lines)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["demo", "--fast"], "demo takes no arguments"),
            (["check", "--fast"], "check takes no argument but --all"),
            (["check", "--all", "x"], "check takes no argument but --all"),
        ],
    )
    def test_other_arguments_are_refused(
        self, checkout: Checkout, words: list[str], said: str
    ) -> None:
        assert said in checkout.launch(*words, status=2)[1]
        assert not checkout.calls()

    def test_a_failing_step_ends_it(self, checkout: Checkout) -> None:
        checkout.launch("check", status=3, PYTHON_STATUS="3")
        assert checkout.modules() == ["venv", "pip", "ruff"]
        for one in ("mypy", "sphinx"):  # which run at once
            checkout.launch("check", status=1, FAILING=one)
            assert {"mypy", "sphinx"} <= {*checkout.modules()}
            assert "pytest" not in checkout.modules()

    def test_arguments_and_status_come_through(self, checkout: Checkout) -> None:
        checkout.launch("--version")
        checkout.calls()
        given = ("report", "", "a  b", "quote \" ' $HOME", "*", "ü")
        checkout.launch(*given, status=7, PYTHON_STATUS="7")
        assert checkout.calls() == [["-m", "attnlight", *given]]

    def test_dry_run_touches_nothing(self, checkout: Checkout) -> None:
        for verb in ("fit", "demo", "check"):
            checkout.lines(verb)
        assert not checkout.calls()
        assert not (checkout.root / ".venv").exists()


class TestEnvironment:
    def test_made_once(self, checkout: Checkout) -> None:
        venv = ["-m", "venv", "--clear", "--", str(checkout.root / ".venv")]
        (printed, first), (_, second) = (checkout.launch("--version") for _ in range(2))
        assert "installing into" in first
        assert not printed + second
        started = ["-m", "attnlight", "--version"]
        assert checkout.calls() == [venv, installation(), started, started]

    def test_in_another_folder(self, checkout: Checkout) -> None:
        checkout.launch("--version", ATTNLIGHT_VENV="other folder")
        assert (checkout.root.parent / "other folder/bin/python").is_file()
        assert not (checkout.root / ".venv").exists()

    @pytest.mark.parametrize(
        ("changed", "calls"),
        [
            ("pyproject.toml", ["pip", "attnlight"]),
            ("constraints.txt", ["pip", "attnlight"]),
            (".venv/.attnlight-installed", ["pip", "attnlight"]),  # an environment made by hand
            ("", ["pip", "attnlight"]),  # a checkout that was moved
            (".venv/bin/python", ["venv", "pip", "attnlight"]),
        ],
    )
    def test_installed_again_after_a_change(
        self, checkout: Checkout, changed: str, calls: list[str]
    ) -> None:
        checkout.launch("--version")
        checkout.calls()
        if not changed:
            checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
        elif changed.startswith("."):
            (checkout.root / changed).unlink()
        else:
            (checkout.root / changed).write_text("more\n")
        for _ in range(2):
            checkout.launch("--version")
        assert checkout.modules() == [*calls, "attnlight"]

    def test_check_adds_its_tools_and_they_stay(self, checkout: Checkout) -> None:
        for verb in ("--version", "check", "--version", "check"):
            checkout.launch(verb)
        installed = [call for call in checkout.calls() if call[1:3] == ["pip", "install"]]
        assert installed == [installation(), installation("[dev]")]

    def test_made_anew_after_an_interruption(self, checkout: Checkout) -> None:
        checkout.launch("--version", status=9, PIP_STATUS="9")
        assert checkout.modules() == ["venv", "pip"]
        checkout.launch("--version")
        assert checkout.modules() == ["venv", "pip", "attnlight"]

    def test_a_folder_of_something_else_is_left_alone(self, checkout: Checkout) -> None:
        thesis = checkout.root.parent / "mine/thesis.tex"
        thesis.parent.mkdir()
        thesis.touch()
        _, said = checkout.launch("--version", status=2, ATTNLIGHT_VENV="mine")
        assert "is no virtual environment" in said
        assert thesis.exists()

    def test_another_name_of_python(self, checkout: Checkout) -> None:
        checkout.add_command("python3", "#!/usr/bin/env bash\nexit 1\n")
        checkout.add_command("python3.12", PYTHON)
        checkout.launch("--version")

    def test_no_python(self, checkout: Checkout) -> None:
        _, said = checkout.launch("--version", status=2, UNSUITABLE="1")
        assert "no Python 3.11 to 3.13" in said
        assert not (checkout.root / ".venv").exists()

    def test_two_at_once_install_once(self, checkout: Checkout) -> None:
        variables = checkout.environment | {"PIP_SECONDS": "0.3"}
        command = [str(checkout.root / "launch.sh"), "--version"]
        both = [subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) for _ in "12"]
        assert [process.wait() for process in both] == [0, 0]
        assert checkout.modules() == ["venv", "pip", "attnlight", "attnlight"]


class TestContinuousIntegration:
    SHOW = """#!/usr/bin/env bash
[[ ! -e $ATTNLIGHT_VENV ]] || exit 90
[[ -z ${VIRTUAL_ENV+set}${PYTHONPATH+set} ]] || exit 91
[[ $ATTNLIGHT_REQUIRE_DATA == 1 ]] || exit 92
read -r && exit 93
mkdir -p "$ATTNLIGHT_VENV"
echo "$PWD|$*|$ATTNLIGHT_VENV"
exit "${STATUS:-0}"
"""

    @pytest.mark.parametrize("status", [0, 5])
    def test_checks_in_an_environment_of_its_own(self, checkout: Checkout, status: int) -> None:
        (checkout.root / "launch.sh").write_text(self.SHOW)
        checkout.add_command("node", "#!/bin/sh\n")
        checkout.add_command("apt-get", '#!/bin/sh\necho "apt-get $*" >>"$LOG"\n')
        reused = {"VIRTUAL_ENV": "/old", "PYTHONPATH": "/old", "ATTNLIGHT_VENV": "/old"}
        done = subprocess.run(
            ["bash", str(checkout.root / ".ci/run")],
            env=checkout.environment | reused | {"STATUS": str(status), "CI": "true"},
            input="unread\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        folder, verb, venv = done.stdout.strip().split("|")
        assert (folder, verb) == (str(checkout.root), "check")
        assert not Path(venv).parent.exists()
        installed = ["apt-get update", "apt-get install -y --no-install-recommends chromium zsh"]
        assert checkout.log.read_text().splitlines() == installed

    def test_without_a_browser_it_fails(self, checkout: Checkout) -> None:
        run = ["bash", str(checkout.root / ".ci/run")]
        done = subprocess.run(
            run, env=checkout.environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (127, "")
        assert "apt-get: command not found" in done.stderr

"""Every file of configs/sweeps gives a command that `attnlight` takes, expanded by W&B's own code."""

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from attnlight.__main__ import main
from attnlight.cli.lightning_cli import AttnlightCLI
from attnlight.datamodules import PlantedEvidence
from tests.bases import save_base
from tests.commands import CONFIGS, CPU, QUIET
from tests.test_configs import read

SWEEPS = sorted((CONFIGS / "sweeps").glob("*.yaml"))
TASKS = {"adversary": "Adversarial", "guides": "Guided", "seeds": "Seed", "uniform": "Uniform"}
SIZES = {"train_size": 60, "validation_size": 40, "test_size": 40}


def grid(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Every point, nested as W&B nests it."""
    axes = []
    for name, told in parameters.items():
        values = grid(told["parameters"]) if "parameters" in told else None
        axes.append([(name, v) for v in values or told.get("values") or [told["value"]]])
    return [dict(point) for point in product(*axes)]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return save_base(tmp_path / "base.ckpt", PlantedEvidence(**SIZES))


def expanded(content: dict[str, Any], point: dict[str, Any], folder: Path) -> list[str]:
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    given = {"args": {name: {"value": value} for name, value in point.items()}}
    variables = create_sweep_command_args(given)
    file = folder / "config-abc.json"
    file.write_text(variables["args_json"][0])
    variables["args_json_file"] = [str(file)]
    words: list[str] = []
    for word in create_sweep_command(content["command"]):
        macro = word[2:-1] if word.startswith("${") else None
        words += variables[macro] if macro else [word]
    return words


def test_there_is_one_for_each_variant() -> None:
    assert {path.stem for path in SWEEPS} == set(TASKS)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_sweep_runs(base: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE", str(base))
    content = read(file)
    assert (content["method"], content["program"]) == ("grid", "attnlight")
    points = grid(content["parameters"])
    assert len({json.dumps(point) for point in points}) == len(points) > 7
    command = expanded(content, points[-1], base.parent)
    assert command[0] == "attnlight"
    assert f"--model.base={base}" in command
    named = [Path(word) for word in command if word.startswith("configs/")]
    assert all((CONFIGS.parent / path).is_file() for path in named)
    command = [word.replace("sst_bilstm", "planted_bilstm") for word in command[1:]]
    command = [word.replace("configs/", f"{CONFIGS}/") for word in command]
    told: list[Any] = []
    monkeypatch.setattr(AttnlightCLI, "_run_subcommand", lambda cli, verb: told.append(cli.model))
    sizes = [f"--data.{name}={value}" for name, value in SIZES.items()]
    assert main([*command, *sizes, "--trainer.fast_dev_run=true", *CPU, *QUIET]) == 0
    (task,) = told
    assert type(task).__name__ == f"{TASKS[file.stem]}Variant"
    wanted = points[-1]["model"].get("init_args", {})
    assert {name: task.hparams[name] for name in wanted} == wanted

"""The commands that measure what a verdict card lacks."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from attnlight.report.run import VERBS
from attnlight.storage.files import read_yaml
from attnlight.storage.run_folder import is_run
from attnlight.storage.shipped import find_config


def measuring_command(folder: Path, corpus: str, tests: Collection[str], test: str) -> str:
    """The command that writes the record of a test as the card needs it, if there is one.

    Args:
        folder: The run folder.
        corpus: Name of the corpus; "" is the corpus of training.
        tests: The tests that have a record.
        test: The test.
    """
    if not is_run(folder):
        return 'attnlight.run(model, data, tests="card")'
    card, key = _arguments("card"), test.replace("_", "")
    run = [str(folder)]
    if corpus:
        run = ["-c", str(folder / f"{VERBS['test']}-{corpus}.yaml")]
    words = ["attnlight", "test", *run, "--tests"]
    recorded = {name.replace("_", "") for name in tests} - {"predictions"}
    if key in card and recorded.isdisjoint(card):
        return shlex.join([*words, "card"])
    own = _arguments(test)[key]
    changed = {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in card.get(key, {}).items()
        if own.get(name) != value
    }
    words += [test, *(f"--trainer.callbacks.{name}={value}" for name, value in changed.items())]
    return shlex.join([*words, "--overwrite"] if test in tests else words)


def adversary_commands(folder: Path) -> str:
    """The commands that train and test an adversary, beside the run of a folder."""
    place = folder.absolute()
    root, experiment = from_here(place.parent.parent), place.parent.name
    name = f"{place.name}-adversary"
    fit = ["fit", "-c", str(folder / "fit.yaml"), "--model", "adversarial", "--model.base"]
    fit += [str(folder / "best.ckpt"), "--root", str(root), "--experiment", experiment]
    test = ["test", str(root / experiment / name), "--tests", "base_divergence"]
    return "\n".join(shlex.join(["attnlight", *x]) for x in ([*fit, "--run", name], test))


def from_here(path: Path) -> Path:
    """The path relative to the working directory, if it is within, else absolute."""
    whole = Path(os.path.abspath(path))  # symbolic links stay
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole


def _arguments(tests: str) -> dict[str, dict[str, Any]]:
    """The arguments of each test that a shipped file attaches, by its class in lower case."""
    attached = read_yaml(Path(find_config(tests, "tests")))["trainer"]["callbacks+"]
    arguments = ((one["class_path"], one.get("init_args") or {}) for one in attached)
    return {path.rpartition(".")[2].lower(): given for path, given in arguments}

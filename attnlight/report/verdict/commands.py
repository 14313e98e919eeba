"""The commands that measure what a verdict card lacks."""

import os
import shlex
from pathlib import Path

from attnlight.report.run import VERBS
from attnlight.storage.run_folder import is_run


def command_of(
    folder: Path, corpus: str, tests: str, again: bool = False, verb: str = VERBS["test"]
) -> str:
    """The command that runs some tests of a run's model on a corpus, `again` if they have records."""
    if not is_run(folder):
        return f'attnlight.run(model, data, tests="{tests}")'
    run = [str(folder)]
    if corpus:
        run = ["-c", str(folder / f"{verb}-{corpus}.yaml")]
    return shlex.join(["attnlight", verb, *run, "--tests", tests, *["--overwrite"] * again])


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

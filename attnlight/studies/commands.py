"""How a run of a study is made: the ordinary `fit` and `test`, of a tagger `validate` between."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from attnlight.studies.file import Study
from attnlight.studies.groups import COMPAT
from attnlight.studies.plan import PlannedRun

_TASKS = {
    "uniform": "attnlight.tasks.UniformVariant",
    "seed": "attnlight.tasks.SeedVariant",
    "guide": "attnlight.tasks.GuidedVariant",
    "adversary": "attnlight.tasks.AdversarialVariant",
}
PREDICTIONS, DIVERGENCE = "predictions", "base_divergence"
_CALLBACKS = {
    PREDICTIONS: "attnlight.callbacks.Predictions",
    DIVERGENCE: "attnlight.callbacks.BaseDivergence",
}
PROGRAM = (sys.executable, "-m", "attnlight.studies.launched")
Stage = Literal["val", "test"]
_THEN = "then"  # stands between the words of two commands


def attached(run: PlannedRun) -> tuple[str, ...]:
    """The records that every study needs of a run."""
    return (PREDICTIONS,) if run.base is None else (PREDICTIONS, DIVERGENCE)


def checkpoint(folder: Path, run: str) -> Path:
    """The best epoch of a run, by the study's folder."""
    return folder / run / "best.ckpt"


def fit_command(
    study: Study, run: PlannedRun, folder: Path, told_by: str | None, how: tuple[str, ...] = ()
) -> list[str]:
    """The arguments of `attnlight` that train a run.

    Args:
        study: Its study.
        run: The run.
        folder: The study's folder.
        told_by: The run whose attention guides it, where one does.
        how: What is to be done with what is there: `--ckpt_path last` or `--overwrite`.
    """
    configs = [study.trainer, study.experiment, *study.tests]
    # A record of a tagger has a row for each token and class: too much to keep of every epoch.
    names = () if study.tagger else attached(run)
    quiet = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    place = [f"--root={folder.parent}", f"--experiment={folder.name}", f"--run={run.name}"]
    return [
        "fit",
        *(word for config in configs for word in ("-c", str(config))),
        *_model(study, run, folder, told_by),
        *(f"--trainer.callbacks+={_CALLBACKS[name]}" for name in names),
        *quiet,
        *run.options,
        *place,
        f"--seed_everything={run.seed}",
        *how,
    ]


def _model(study: Study, run: PlannedRun, folder: Path, told_by: str | None) -> list[str]:
    """The variant in place of the experiment's model."""
    if run.base is None:
        return []
    told: dict[str, object] = {"base": checkpoint(folder, run.base)}
    if run.guide is not None:
        told["guide"] = run.guide
    if told_by is not None:
        told["guide_checkpoint"] = checkpoint(folder, told_by)
    if run.term is not None:
        term = "kl" if run.term == COMPAT else run.term
        told |= {"lambda_": run.lambda_, "attention_term": term}
    told |= _of_tagger(run)
    return [f"--model={_TASKS[run.role]}", *(f"--model.{k}={v}" for k, v in told.items())]


def _of_tagger(run: PlannedRun) -> dict[str, object]:
    """What variants of taggers alone are told."""
    told: dict[str, object] = {}
    if run.head is not None:
        told["head"] = run.head
    if run.context == "query_key":
        told["query_key"] = "true"
    elif run.context is not None:
        told["context"] = run.context
    if run.term == COMPAT:
        told["compat"] = "true"
    return told


def evaluation_commands(study: Study, run: PlannedRun, folder: Path) -> list[list[str]]:
    """The arguments of `attnlight`, one after the other, that test a run once it is trained.

    Of a classifier it is `test`: the records of validation are those of `fit`. A tagger's best epoch
    is validated first.
    """
    return [_evaluation(study, run, folder, stage) for stage in evaluated(study)]


def evaluated(study: Study) -> tuple[Stage, ...]:
    """The splits that are recorded once a run is trained."""
    return ("val", "test") if study.tagger else ("test",)


def _evaluation(study: Study, run: PlannedRun, folder: Path, stage: Stage) -> list[str]:
    tests = (*study.tests, *(study.base_tests if run.base is None and stage == "test" else ()))
    return [
        "validate" if stage == "val" else "test",
        "-c",
        str(folder / run.name / "fit.yaml"),
        *(word for config in tests for word in ("-c", str(config))),
        *(option for option in run.options if option.startswith("--trainer.callbacks+=")),
        f"--trainer.callbacks+={_attached_options(study, run)}",
        f"--ckpt_path={checkpoint(folder, run.name)}",
    ]


def _attached_options(study: Study, run: PlannedRun) -> str:
    """The tests that every study needs; a study of taggers has figures of its own."""
    options: dict[str, dict[str, Any]] = {PREDICTIONS: {}, DIVERGENCE: {}}
    if study.tagger:
        options = {
            PREDICTIONS: {"figures": False},
            DIVERGENCE: {"figures": False, "rankings": True},
        }
    callbacks = [
        {"class_path": _CALLBACKS[name], "init_args": options[name]} for name in attached(run)
    ]
    return json.dumps(callbacks)


def joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of several commands for one process."""
    return [word for command in commands for word in (_THEN, *command)][1:]


def first_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first of the commands that `joined` put together, and the words of the others.

    Example:
        >>> first_command(joined([["fit", "--run=a"], ["test"]]))
        (['fit', '--run=a'], ['test'])
    """
    end = words.index(_THEN) if _THEN in words else len(words)
    return list(words[:end]), list(words[end + 1 :])

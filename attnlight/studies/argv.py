"""The command lines of a run: `fit` and `test`, with `validate` between where instances are many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from attnlight.studies.plan import PlannedRun
from attnlight.studies.spec import COMPAT, Study

Stage = Literal["val", "test"]
PREDICTIONS, DIVERGENCE = "predictions", "base_divergence"
CALLBACKS = {
    PREDICTIONS: "attnlight.callbacks.Predictions",
    DIVERGENCE: "attnlight.callbacks.BaseDivergence",
}
VARIANTS = {
    "uniform": "attnlight.tasks.UniformVariant",
    "seed": "attnlight.tasks.SeedVariant",
    "guide": "attnlight.tasks.GuidedVariant",
    "adversary": "attnlight.tasks.AdversarialVariant",
}
BEST = "best.ckpt"


def recorded(study: Study, run: PlannedRun) -> tuple[tuple[Stage, ...], tuple[str, ...]]:
    """The splits that are evaluated once a run is trained, and the records that a study needs.

    Validation is recorded by `fit`, but where an instance is a part of a text: several rows for each
    text are too much to keep of every epoch.
    """
    stages: tuple[Stage, ...] = ("val", "test") if study.target else ("test",)
    return stages, (PREDICTIONS,) if run.base is None else (PREDICTIONS, DIVERGENCE)


def fit_command(
    study: Study, run: PlannedRun, folder: Path, guide_run: str | None, how: tuple[str, ...] = ()
) -> list[str]:
    """The arguments of `attnlight` that train a run in the study's folder.

    `guide_run` is the run whose attention guides it, where one does; `how` says what becomes of what
    is there, as `--ckpt_path last` or `--overwrite`.
    """
    trained = "" if study.setup.foreign else BEST  # a checkpoint alone, or its folder
    model: dict[str, object] = {
        "base": run.base and folder / run.base / trained,
        "guide": run.guide,
        "guide_checkpoint": guide_run and folder / guide_run / trained,
        "lambda_": run.lambda_,
        "attention_term": "kl" if run.term == COMPAT else run.term,
        "head": run.head,
        "query_key": "true" if run.context == "query_key" else None,
        "context": None if run.context == "query_key" else run.context,
        "compat": "true" if run.term == COMPAT else None,
    }
    stages, names = recorded(study, run)
    return [
        "fit",
        *_configs(study.trainer, study.experiment, *study.tests),
        *([] if run.base is None else [f"--model={VARIANTS[run.role]}"]),
        *(f"--model.{name}={value}" for name, value in model.items() if value is not None),
        *(f"--trainer.callbacks+={CALLBACKS[name]}" for name in names if "val" not in stages),
        "--trainer.enable_progress_bar=false",
        "--trainer.enable_model_summary=false",
        *run.options,
        f"--root={folder.parent}",
        f"--experiment={folder.name}",
        f"--run={run.name}",
        f"--seed_everything={run.seed}",
        *how,
    ]


def _configs(*paths: Path) -> list[str]:
    return [word for path in paths for word in ("-c", str(path))]


def evaluation_commands(study: Study, run: PlannedRun, folder: Path) -> list[list[str]]:
    """The arguments of `attnlight`, one after the other, that evaluate a run once it is trained.

    It is `test` where validation was recorded in `fit`, else `validate` and `test`.
    """
    stages, names = recorded(study, run)
    shared: dict[str, bool] = {"figures": False} if study.target else {}  # the study has its own
    options = {PREDICTIONS: shared, DIVERGENCE: shared and shared | {"rankings": True}}
    attached = [{"class_path": CALLBACKS[name], "init_args": options[name]} for name in names]
    commands = []
    for stage in stages:
        tests = study.tests + (study.base.tests if stage == "test" and run.base is None else ())
        commands.append(
            [
                "validate" if stage == "val" else "test",
                *_configs(folder / run.name / "fit.yaml", *tests),
                *(option for option in run.options if option.startswith("--trainer.callbacks+=")),
                f"--trainer.callbacks+={json.dumps(attached)}",
                f"--ckpt_path={folder / run.name / BEST}",
            ]
        )
    return commands

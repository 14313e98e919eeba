"""The command lines of a run: `fit` and `test`, with `validate` between where instances are many."""

from __future__ import annotations

import json
from itertools import chain
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
VARIANTS = {"uniform": "Uniform", "seed": "Seed", "guide": "Guided", "adversary": "Adversarial"}
BEST = "best.ckpt"


def recorded(
    study: Study, run: PlannedRun
) -> tuple[dict[Stage, tuple[Path, ...]], tuple[str, ...]]:
    """The splits that are evaluated once a run is trained, and the records that a study needs.

    With each split stand the files that name its further tests. Validation is recorded by `fit`, but
    where an instance is a part of a text: several rows for each text are too much to keep of every
    epoch.
    """
    before: dict[Stage, tuple[Path, ...]] = {"val": study.tests} if study.target else {}
    if run.base is None:
        return before | {"test": (*study.tests, *study.base.tests)}, (PREDICTIONS,)
    return before | {"test": study.tests}, (PREDICTIONS, DIVERGENCE)


def fit_command(
    study: Study, run: PlannedRun, folder: Path, guide_run: str | None, how: tuple[str, ...] = ()
) -> list[str]:
    """The arguments of `attnlight` that train a run in the study's folder, guided by `guide_run`.

    `how` says what becomes of what is there, as `--ckpt_path last` or `--overwrite`.
    """
    trained = "" if study.foreign else BEST  # a checkpoint alone, or its folder
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
    splits, names = recorded(study, run)
    configs = (study.trainer, study.experiment, *study.tests)
    return [
        "fit",
        *chain.from_iterable(("-c", str(path)) for path in configs),
        *([] if run.base is None else [f"--model=attnlight.tasks.{VARIANTS[run.role]}Variant"]),
        *(f"--model.{name}={value}" for name, value in model.items() if value is not None),
        *(f"--trainer.callbacks+={CALLBACKS[name]}" for name in names if "val" not in splits),
        "--trainer.enable_progress_bar=false",
        "--trainer.enable_model_summary=false",
        *run.options,
        f"--root={folder.parent}",
        f"--experiment={folder.name}",
        f"--run={run.name}",
        f"--seed_everything={run.seed}",
        *how,
    ]


def evaluation_commands(study: Study, run: PlannedRun, folder: Path) -> list[list[str]]:
    """The arguments of `attnlight test`, where need be after `validate`, of a run that is trained."""
    own, (splits, names) = folder / run.name, recorded(study, run)
    shared: dict[str, bool] = {"figures": False} if study.target else {}  # the study has its own
    options = {PREDICTIONS: shared, DIVERGENCE: shared and shared | {"rankings": True}}
    attached = [{"class_path": CALLBACKS[name], "init_args": options[name]} for name in names]
    return [
        [
            "validate" if stage == "val" else "test",
            *chain.from_iterable(("-c", str(path)) for path in (own / "fit.yaml", *tests)),
            *(option for option in run.options if option.startswith("--trainer.callbacks+=")),
            f"--trainer.callbacks+={json.dumps(attached)}",
            f"--ckpt_path={own / BEST}",
        ]
        for stage, tests in splits.items()
    ]

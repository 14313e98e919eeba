"""How a run of a study is started: the ordinary `fit` and `test`."""

from __future__ import annotations

from pathlib import Path

from attnlight.studies.file import Study
from attnlight.studies.plan import PlannedRun

_TASKS = {
    "uniform": "attnlight.tasks.UniformClassifier",
    "seed": "attnlight.tasks.SeedVariant",
    "guide": "attnlight.tasks.GuidedMLP",
    "adversary": "attnlight.tasks.AdversarialClassifier",
}
PREDICTIONS, DIVERGENCE = "predictions", "base_divergence"
_CALLBACKS = {
    PREDICTIONS: "attnlight.callbacks.Predictions",
    DIVERGENCE: "attnlight.callbacks.BaseDivergence",
}


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
    callbacks = [f"--trainer.callbacks+={_CALLBACKS[name]}" for name in attached(run)]
    quiet = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    place = [f"--root={folder.parent}", f"--experiment={folder.name}", f"--run={run.name}"]
    return [
        "fit",
        *(word for config in configs for word in ("-c", str(config))),
        *_model(run, folder, told_by),
        *callbacks,
        *quiet,
        *run.options,
        *place,
        f"--seed_everything={run.seed}",
        *how,
    ]


def _model(run: PlannedRun, folder: Path, told_by: str | None) -> list[str]:
    """The variant in place of the experiment's model."""
    if run.base is None:
        return []
    told: dict[str, object] = {"base": checkpoint(folder, run.base)}
    if run.guide is not None:
        told["guide"] = run.guide
    if told_by is not None:
        told["guide_checkpoint"] = checkpoint(folder, told_by)
    if run.term is not None:
        told |= {"lambda_": run.lambda_, "attention_term": run.term}
    return [f"--model={_TASKS[run.role]}", *(f"--model.{k}={v}" for k, v in told.items())]


def test_command(study: Study, run: PlannedRun, folder: Path) -> list[str]:
    """The arguments of `attnlight` that test a run; the tests of `fit` are in its `fit.yaml`."""
    tests = study.base_tests if run.base is None else ()
    return [
        "test",
        "-c",
        str(folder / run.name / "fit.yaml"),
        *(word for config in tests for word in ("-c", str(config))),
        f"--ckpt_path={checkpoint(folder, run.name)}",
    ]

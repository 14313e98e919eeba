"""The command lines of a run: `fit` and `test`, with `validate` between where instances are many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from attnlight.studies.plan import PlannedRun
from attnlight.studies.spec import COMPAT, Study

Stage = Literal["val", "test"]
PREDICTIONS, DIVERGENCE = "predictions", "base_divergence"
CALLBACKS = {
    PREDICTIONS: "attnlight.callbacks.Predictions",
    DIVERGENCE: "attnlight.callbacks.BaseDivergence",
}
# The variant of each role, and the names of options of its model.
VARIANTS = {
    "uniform": "attnlight.tasks.UniformVariant",
    "seed": "attnlight.tasks.SeedVariant",
    "guide": "attnlight.tasks.GuidedVariant",
    "adversary": "attnlight.tasks.AdversarialVariant",
}
OPTIONS = {
    "base": "base",
    "guide": "guide",
    "guide_run": "guide_checkpoint",
    "lambda": "lambda_",
    "term": "attention_term",
    "head": "head",
    "query_key": "query_key",
    "context": "context",
    COMPAT: "compat",
    "readout": "net.readout",
}


def attached(run: PlannedRun) -> tuple[str, ...]:
    """Names of the records that a study needs from a run."""
    return (PREDICTIONS,) if run.base is None else (PREDICTIONS, DIVERGENCE)


def checkpoint(folder: Path, run: str) -> Path:
    """The best epoch of a run, by the study's folder."""
    return folder / run / "best.ckpt"


def fit_command(
    study: Study, run: PlannedRun, folder: Path, guide_run: str | None, how: tuple[str, ...] = ()
) -> list[str]:
    """The arguments of `attnlight` that train a run.

    Args:
        study: Its study.
        run: The run.
        folder: The study's folder.
        guide_run: The run whose attention guides it, where one does.
        how: What is to be done with what is there: `--ckpt_path last` or `--overwrite`.
    """

    def trained(name: str | None) -> Path | None:
        """The best epoch of a run, or its folder where a checkpoint alone would not do."""
        if name is None:
            return None
        return folder / name if study.foreign else checkpoint(folder, name)

    model: dict[str, object] = {
        "base": trained(run.base),
        "guide": run.guide,
        "guide_run": trained(guide_run),
        "lambda": run.lambda_,
        "term": "kl" if run.term == COMPAT else run.term,
        "head": run.head,
        "query_key": "true" if run.context == "query_key" else None,
        "context": None if run.context == "query_key" else run.context,
        COMPAT: "true" if run.term == COMPAT else None,
    }
    # A record with several rows for each text is too much to keep of every epoch.
    names = () if study.clustered else attached(run)
    return [
        "fit",
        *_configs(study.trainer, study.experiment, *study.tests),
        *([] if run.base is None else [f"--model={VARIANTS[run.role]}"]),
        *(f"--model.{OPTIONS[k]}={value}" for k, value in model.items() if value is not None),
        *(f"--trainer.callbacks+={CALLBACKS[name]}" for name in names),
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


def evaluated(study: Study) -> tuple[Stage, ...]:
    """The splits that are recorded once a run is trained."""
    return ("val", "test") if study.clustered else ("test",)


def evaluation_commands(study: Study, run: PlannedRun, folder: Path) -> list[list[str]]:
    """The arguments of `attnlight`, one after the other, that evaluate a run once it is trained.

    It is `test` where validation was recorded in `fit`, else `validate` and `test`.
    """
    options: dict[str, dict[str, Any]] = {PREDICTIONS: {}, DIVERGENCE: {}}
    if study.clustered:  # whose study has figures of its own
        options = {name: {"figures": False} for name in options}
        options[DIVERGENCE]["rankings"] = True
    tests = [{"class_path": CALLBACKS[k], "init_args": options[k]} for k in attached(run)]
    of_bases = {"test": study.base.tests if run.base is None else ()}
    return [
        [
            "validate" if stage == "val" else "test",
            *_configs(folder / run.name / "fit.yaml", *study.tests, *of_bases.get(stage, ())),
            *(option for option in run.options if option.startswith("--trainer.callbacks+=")),
            f"--trainer.callbacks+={json.dumps(tests)}",
            f"--ckpt_path={checkpoint(folder, run.name)}",
        ]
        for stage in evaluated(study)
    ]

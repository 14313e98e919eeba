"""The command lines of a run: `fit`, `test`, and for some `validate` and `predict`."""

import json
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from attnlight.data.removed_words import RECORD
from attnlight.studies.plan import RANDOM, PlannedRun
from attnlight.studies.spec import RELEASED, Study

Stage = Literal["val", "test", "predict-train"]
PREDICTIONS, DIVERGENCE = "predictions", "base_divergence"
CALLBACKS = {
    RECORD: "attnlight.callbacks.SaliencyAgreement",
    PREDICTIONS: "attnlight.callbacks.Predictions",
    DIVERGENCE: "attnlight.callbacks.BaseDivergence",
}
_VERBS = {"val": "validate", "predict-train": "predict"}
_BY_SIZE = "_by_size"
_METHODS = {"occlusion": {"replacement": "delete"}}
VARIANTS = {"uniform": "Uniform", "seed": "Seed", "guide": "Guided", "adversary": "Adversarial"}
BEST = "best.ckpt"


def evaluations(
    study: Study, run: PlannedRun
) -> tuple[dict[Stage, tuple[Path, ...]], tuple[str, ...]]:
    """The evaluations of a trained run: test files by split, and records that every one writes.

    `fit` records the validation split, unless an instance is a part of a text: several rows per text
    and epoch would take too much space. If the words of all splits are scored, each is evaluated.
    """
    tests = (*study.tests, *(study.base.tests if run.role == "base" else ()))
    splits: dict[Stage, tuple[Path, ...]] = {"test": tests}
    if study.setup.several_instances or run.scored:
        splits = {"val": study.tests, "test": tests}
    names = (PREDICTIONS,) if run.base is None else (PREDICTIONS, DIVERGENCE)
    if run.scored:
        return splits | {"predict-train": ()}, (*names, RECORD)
    return splits, names


def fit_command(
    study: Study, run: PlannedRun, folder: Path, guide_run: str | None, mode: tuple[str, ...] = ()
) -> list[str]:
    """The arguments of `attnlight` that train a run in the study's folder, guided by `guide_run`.

    `mode` are options for an existing run, such as `--ckpt_path last` or `--overwrite`.
    """
    # Custom classes need the folder with its fit.yaml.
    checkpoint = "" if study.setup.foreign else BEST
    model: dict[str, object] = {
        "base": run.base and folder / run.base / checkpoint,
        "guide": run.guide,
        "guide_checkpoint": guide_run and folder / guide_run / checkpoint,
        "lambda_": run.lambda_,
        "attention_term": "kl" if run.term == RELEASED else run.term,
        "head": run.head,
        "query_key": "true" if run.context == "query_key" else None,
        "context": None if run.context == "query_key" else run.context,
        "released": "true" if run.term == RELEASED else None,
    }
    removed = [
        {"scores": str(folder / scorer), "method": method, "share": share}
        for scorer, method, share in run.removals
    ]
    splits, names = evaluations(study, run)
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
        *([f"--data.removed_words={json.dumps(removed)}"] if removed else []),
        f"--root={folder.parent}",
        f"--experiment={folder.name}",
        f"--run={run.name}",
        f"--seed_everything={run.seed}",
        *mode,
    ]


def evaluation_commands(study: Study, run: PlannedRun, folder: Path) -> list[list[str]]:
    """The arguments of `attnlight` that evaluate a trained run on each split of `evaluations`."""
    run_folder, (splits, names) = folder / run.name, evaluations(study, run)
    # The study draws the figures of a tagger.
    shared: dict[str, Any] = {"figures": False} if study.setup.several_instances else {}
    options = {PREDICTIONS: shared, DIVERGENCE: shared and shared | {"rankings": True}}
    seeded = _METHODS | {RANDOM: {"seed": run.seed}}
    split = [(name.removesuffix(_BY_SIZE), name.endswith(_BY_SIZE)) for name in run.scored]
    methods = [{"name": name, "by_size": sizes, **seeded.get(name, {})} for name, sizes in split]
    options[RECORD] = {"methods": methods, "keep_scores": True, "figures": False}
    attached = [{"class_path": CALLBACKS[name], "init_args": options[name]} for name in names]
    return [
        [
            _VERBS.get(stage, stage),
            *chain.from_iterable(("-c", str(path)) for path in (run_folder / "fit.yaml", *tests)),
            *(option for option in run.options if option.startswith("--trainer.callbacks+=")),
            f"--trainer.callbacks+={json.dumps(attached)}",
            *(["--data.predict_split=train"] if stage == "predict-train" else []),
            *(["--overwrite"] if run.scored else []),  # of scores by fewer methods
            f"--ckpt_path={run_folder / BEST}",
        ]
        for stage, tests in splits.items()
    ]

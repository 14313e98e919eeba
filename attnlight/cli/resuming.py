"""Where `fit` resumes, and what it may change then: where it computes, how long, what it shows."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import ModelSummary, ProgressBar

from attnlight.callbacks.hooks.epoch_recorder import RecordingCallback
from attnlight.datamodules import CorpusDataModule
from attnlight.errors import InputError
from attnlight.storage.checkpoint_file import (
    CHECKPOINT_KEY,
    GLOBAL_BATCH_SIZE,
    OPTIMIZER_STATES,
    SLURM_JOB,
    read_checkpoint,
)
from attnlight.storage.files import read_yaml

_OBSERVERS = (ProgressBar, ModelSummary, RecordingCallback)
# Keys whose values may differ. Paths may, since fingerprints of corpus, base and network are compared.
_FREE = re.compile(
    r"(config|root|experiment|run|overwrite|corpus|ckpt_path|weights_only)"
    r"|trainer\.(accelerator|strategy|devices|num_nodes|logger|(max|min)_(epochs|steps)|max_time"
    r"|num_sanity_val_steps|limit_(test|predict)_batches|log_every_n_steps|enable_progress_bar"
    r"|enable_model_summary|enable_autolog_hparams|inference_mode|profiler|detect_anomaly"
    r"|default_root_dir|model_registry|fast_dev_run)(\..*)?"
    r"|model\.(base|guide_checkpoint|net\.path)"
    r"|data\.(.*\.)?(path|local|tokenizer|cache_dir|num_workers|batch_size|eval_batch_size"
    r"|predict_split)"
)
_LENGTH = re.compile(r"trainer\.max_(epochs|steps)")


def requeued(folder: Path, *, overwrite: bool) -> str | None:
    """The `last.ckpt` from which a requeued SLURM job continues; None: training starts anew."""
    path = folder / "last.ckpt"
    # A command that replaces a run may be another one of the job, unless SLURM has restarted that.
    restarted = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    if not SLURMEnvironment.detect() or (overwrite and not restarted):
        return None
    if not path.is_file() or path.with_name("status.json").exists():  # which says: finished
        return None
    job = read_checkpoint(path).get(SLURM_JOB)
    return str(path) if job is not None and job == os.environ.get("SLURM_JOB_ID") else None


def require_same_training(
    path: Path,
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    corpus: CorpusDataModule,
    devices: int,
) -> None:
    """Check that a run resumes the training that wrote a checkpoint.

    The `fit.yaml` of its training is beside it; `config` is the configuration as `fit.yaml` will
    hold it. The task's hyperparameters, `model`, are compared too since a `fit.yaml` may have been
    edited.

    Raises:
        InputError: The checkpoint cannot be resumed from; an option that changes the weights, the
            corpus or the number of texts of a step differs; or there is no `fit.yaml`.
    """
    checkpoint = read_checkpoint(path)
    if OPTIMIZER_STATES not in checkpoint:
        raise InputError(
            f"{path} contains weights but no optimizer state, so training cannot resume from it: "
            "give --ckpt_path last."
        )
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    batches = progress["current"]
    if not progress["is_last_batch"] or batches["completed"] < batches["ready"]:
        raise InputError(
            f"{path} was saved within an epoch, of which training would read other batches now: "
            "give --ckpt_path last."
        )
    file = path.with_name("fit.yaml")
    if not file.is_file():
        raise InputError(
            f"there is no {file}, by which the training of {path.name} is compared with this one: "
            "restore it, or give --overwrite in place of --ckpt_path to train the run again."
        )
    before = dict(_options(read_yaml(file), checkpoint["hyper_parameters"]))
    now = dict(_options(config, model))
    warmup = now.get("model.optimizer.warmup") or 0
    for key in (key for key in {**now, **before} if before.get(key) != now.get(key)):
        if not _FREE.fullmatch(key) or (0 < warmup < 1 and _LENGTH.fullmatch(key)):
            old, new = (yaml.safe_dump(of.get(key)).splitlines()[0] for of in (before, now))
            raise InputError(
                f"{path} was trained with {key} {old}, now {new}: leave it as it was to resume the "
                "run, or train another one with --run, or this one again with --overwrite in place "
                "of --ckpt_path."
            )
    trained_on = str(checkpoint[CHECKPOINT_KEY]["corpus"])
    if corpus.fingerprint != trained_on:
        raise InputError(
            f"{path} was trained on another corpus than {corpus.corpus_name} is now (fingerprint "
            f"{trained_on}, now {corpus.fingerprint}): give the `data` of {file} with its files as "
            "they were, or --overwrite in place of --ckpt_path to train the run again."
        )
    size = corpus.batch_size
    require_same_batches(path, checkpoint.get(GLOBAL_BATCH_SIZE, size * devices), size, devices)


def require_same_batches(path: object, before: int, size: int, devices: int) -> None:
    """Refuse devices that together read another number of texts at a step than `before`.

    Each reads `size` of them; as many were read in the training that wrote the checkpoint `path`.
    """
    if size * devices == before:
        return
    remedy = f"give --data.batch_size {before // devices}"
    if before % devices:
        remedy = f"give a number of --trainer.devices that divides {before}"
    each = "device reads" if devices == 1 else "devices read"
    raise InputError(
        f"{path} was trained on {before} texts at a step, but {devices} {each} {size * devices}: "
        f"{remedy}."
    )


def _options(config: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys of a configuration without `init_args`, and their values, callbacks by class.

    Hyperparameters of the model come last.
    """
    trainer = dict(config.get("trainer") or {})
    callbacks: dict[str, Any] = {}
    for callback in trainer.pop("callbacks", None) or ():
        module, _, name = callback["class_path"].rpartition(".")
        kind = getattr(sys.modules.get(module), name, object)  # `fit.yaml` imports nothing
        if not issubclass(kind, _OBSERVERS):
            options = callback.get("init_args") or {}
            label = " ".join(filter(None, [name, options.get("filename")]))
            callbacks[label] = options | {"attached": True}
    yield from _leaves({**config, "trainer": trainer | callbacks})
    plain = json.loads(json.dumps(dict(model), default=str))  # lists for tuples, as in YAML
    yield from _leaves({"model": plain | {"spec": None}})  # which the corpus determines


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        key = prefix.removesuffix(".") if name == "init_args" else f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value

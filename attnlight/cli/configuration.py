"""Changes to a parsed configuration before its classes are instantiated."""

import netrc
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from jsonargparse import Namespace
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, ProgressBar

from attnlight.callbacks import InterpretabilityTest
from attnlight.callbacks.hooks.wandb_run import WandbRun
from attnlight.storage.foreign_classes import import_class
from attnlight.storage.run_folder import is_rank_zero

_MAX_TAG = 64  # characters that W&B accepts


def fill_placeholders(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401
    """A copy of a configuration whose strings have placeholders such as `{run}` replaced."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, list):
        return [fill_placeholders(item, names) for item in value]
    if isinstance(value, Namespace | dict):
        items = value.items() if isinstance(value, dict) else vars(value).items()
        return type(value)({key: fill_placeholders(item, names) for key, item in items})
    return value


def resolve_callbacks(trainer: Namespace) -> None:
    """Keep the last EarlyStopping, progress bar and test of each class and label; drop disabled callbacks.

    `enable_progress_bar: false` disables progress bars. `fast_dev_run` disables checkpoints: with
    it, Lightning 2.6 does not save the best epochs, but still saves the last one at the end.
    """
    seen: set[tuple[str, str | None]] = set()
    remaining = []
    for callback in reversed(trainer.callbacks or ()):
        path = callback["class_path"]
        cls = import_class(path, object)
        disabled = trainer.enable_progress_bar is False and issubclass(cls, ProgressBar)
        disabled |= bool(trainer.fast_dev_run) and issubclass(cls, Checkpoint)
        path = "ProgressBar" if issubclass(cls, ProgressBar) else path  # Lightning takes one
        single = InterpretabilityTest | EarlyStopping | ProgressBar
        key = path, callback.get("init_args", {}).get("label")
        if not disabled and (key not in seen or not issubclass(cls, single)):
            remaining.append(callback)
        seen.add(key)
    trainer.callbacks = remaining[::-1]


def keep_wandb_offline_without_key(loggers: Any) -> None:  # noqa: ANN401
    """Set `WANDB_MODE=offline`, and print it, if a W&B logger is used without an API key."""
    used = "WandbLogger" in str(loggers)  # one configuration, a list, or a bool
    if not used or os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY"):
        return
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    with suppress(OSError, netrc.NetrcParseError):
        if netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None:
            return
    os.environ["WANDB_MODE"] = "offline"
    os.environ.setdefault("WANDB_SILENT", "true")
    if is_rank_zero():
        print("W&B: no API key, so this run is offline; `wandb sync` uploads it later.")


def use_wandb_run(
    logger: Namespace, *, role: str, tags: Sequence[str], monitor: str, mode: str, step: int
) -> None:
    """Turn the configuration of a `WandbLogger` into that of a `WandbRun` that resumes its id.

    `role` (the job type) and `tags` apply unless the configuration or the environment sets them.
    """
    logger.class_path = f"{WandbRun.__module__}.{WandbRun.__qualname__}"
    init_args = logger.init_args
    defaults = {"job_type": role, "tags": [tag[:_MAX_TAG] for tag in tags], "resume": "allow"}
    if init_args.get("resume_from") or init_args.get("fork_from"):
        del defaults["resume"]  # W&B accepts only one of the three
    for name, value in defaults.items():
        if init_args.get(name) is None and f"WANDB_{name.upper()}" not in os.environ:
            init_args[name] = value
    init_args.monitor, init_args.mode, init_args.step = monitor, mode, step

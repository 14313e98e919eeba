"""What the command line changes in a parsed configuration before anything is built."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from jsonargparse import Namespace
from lightning.fabric.utilities.rank_zero import rank_zero_only

from attnlight.callbacks import InterpretabilityTest


def fill_placeholders(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Replace `{run}`, `{experiment}`, `{name}` and `{wandb_id}` in all strings of a config."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, list):
        return [fill_placeholders(item, names) for item in value]
    if isinstance(value, Namespace):
        filled = {key: fill_placeholders(item, names) for key, item in vars(value).items()}
        return Namespace(**filled)
    if isinstance(value, dict):
        return {key: fill_placeholders(item, names) for key, item in value.items()}
    return value


def last_of_each_test(callbacks: Sequence[Any]) -> list[Any]:
    """Drop a test that a later configuration attaches again: the later one wins."""
    seen: set[str] = set()
    kept = []
    for callback in reversed(callbacks):
        path = callback["class_path"]
        if _is_test(path):
            if path in seen:
                continue
            seen.add(path)
        kept.append(callback)
    return kept[::-1]


def _is_test(path: str) -> bool:
    module, _, name = path.rpartition(".")
    return issubclass(getattr(import_module(module), name), InterpretabilityTest)


def keep_wandb_offline_without_key(loggers: Any) -> None:  # noqa: ANN401
    """Keep Weights & Biases offline where there is no API key, and say so in one line."""
    used = any("WandbLogger" in str(logger) for logger in loggers or ())
    if not used or os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY"):
        return
    if _netrc_holds(urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname):
        return
    os.environ["WANDB_MODE"] = "offline"
    os.environ.setdefault("WANDB_SILENT", "true")
    if rank_zero_only.rank == 0:
        print("W&B: no API key, so this run is kept offline; `wandb sync` uploads it later.")


def _netrc_holds(host: str | None) -> bool:
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False

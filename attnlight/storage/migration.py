"""Refuse what was written before version 0.1.0, and name the script that migrates it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlight.errors import InputError

_COMMIT = "498215c"  # the one that has the script
# Options that tasks, corpora and tests of attnlight had.
_FORMER = {"compat", "training", "learning_rate", "freeze_embeddings"}


def unmigrated(path: Path) -> InputError:
    """The error for a file that was written before version 0.1.0."""
    return InputError(
        f"{path} was written before version 0.1.0 of attnlight: migrate {path.parent} by "
        f"docs/migrate.py of commit {_COMMIT}."
    )


def require_migrated(path: Path, config: Mapping[str, Any]) -> None:
    """Check that a stored configuration has none of the options from before version 0.1.0.

    Args:
        path: The file.
        config: Its content.

    Raises:
        InputError: It has one.
    """
    trainer = config.get("trainer")
    callbacks = trainer.get("callbacks") if isinstance(trainer, Mapping) else None
    sections = [config.get("model"), config.get("data")]
    sections += callbacks if isinstance(callbacks, list) else []
    if any(map(_has_former, sections)):
        raise unmigrated(path)


def _has_former(section: object) -> bool:
    """Whether a class of attnlight, or a group of its options, has an option of `_FORMER`."""
    if not isinstance(section, Mapping):
        return False
    path, options = str(section.get("class_path", "")), section.get("init_args")
    if ("." in path and not path.startswith("attnlight.")) or not isinstance(options, Mapping):
        return False
    net = options.get("net")
    own = net.keys() if isinstance(net, Mapping) else ()
    return bool(_FORMER & {*options, *own})

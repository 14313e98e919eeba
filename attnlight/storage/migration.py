"""Refuse what was written before version 0.1.0, and name the script that migrates it."""

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
    """Raise `InputError` if a stored configuration has an option of before version 0.1.0."""
    trainer = config.get("trainer")
    callbacks = trainer.get("callbacks") if isinstance(trainer, Mapping) else None
    sections = [config.get("model"), config.get("data")]
    sections += callbacks if isinstance(callbacks, list) else []
    for section in (section for section in sections if isinstance(section, Mapping)):
        kind, options = str(section.get("class_path", "")), section.get("init_args")
        if ("." in kind and not kind.startswith("attnlight.")) or not isinstance(options, Mapping):
            continue
        net = options.get("net")
        if _FORMER & {*options, *(net if isinstance(net, Mapping) else ())}:
            raise unmigrated(path)

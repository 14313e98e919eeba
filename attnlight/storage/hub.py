"""What lies on the Hugging Face hub under an id, `org/name`: a model of transformers, or a run."""

import os
import shutil
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from attnlight.errors import InputError
from attnlight.storage.files import named_errors, read_yaml
from attnlight.storage.foreign_classes import require_trusted
from attnlight.storage.model_folder import is_model

# A run there is what `push` sends; nothing else is fetched.
RUN_FILES = ("fit.yaml", "best.ckpt", "report/verdict*.json")
_MODEL_FILES = ("config.json", "tokenizer*.json", "vocab.txt", "model*.safetensors*")


@cache
def hub_folder(name: str, offline: bool = False) -> Path:
    """The cached files of the model or run of an id; with `offline`, the hub itself is not asked."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        files = [*_MODEL_FILES, *RUN_FILES]
        place = Path(snapshot_download(name, allow_patterns=files, local_files_only=offline))
    except Exception as error:
        reason = "cannot be asked for a model that is not in its cache: run `hf download` where there is a network"
        if isinstance(error, RepositoryNotFoundError):
            reason = "has no model of that name, or shows it only to others: see `hf auth login`"
        raise InputError(
            f"there is no folder {name}, and the Hugging Face hub {reason} ({type(error).__name__})."
        ) from error
    if not place.is_dir():
        raise InputError(f"{name} on the Hugging Face hub holds no model and no run.")
    return place


def cached_id(path: Path) -> tuple[str, ...]:
    """Organisation and name of the id whose cached files a path is, or is in; empty elsewhere."""
    cached = (part.split("--")[1:] for part in path.parts if part.startswith("models--"))
    return tuple(next(cached, ()))


def hub_run(path: Path) -> Path | None:
    """The cached folder of the run whose id a path is; None: no id, or one of another model."""
    if path.is_dir() or not is_model(path):
        return None
    place = hub_folder(str(path))
    return place if (place / "fit.yaml").is_file() else None


def fetch_run(path: Path, root: Path) -> Path:
    """The path itself or, if it is the id of a run, that run's folder `<root>/<org>/<name>`.

    A folder that is there already stays as it is.

    Raises:
        InputError: The run names a class that is not trusted, or the folder cannot be written.
    """
    if path.is_dir() or not is_model(path):
        return path
    run = root / path
    if not (run / "fit.yaml").is_file():
        cached = None
        with suppress(InputError):  # which the reader of models says again
            cached = hub_run(path)
        if cached is None:
            return path
        require_trusted(cached / "fit.yaml", read_yaml(cached / "fit.yaml"), sys.modules)
        temporary = run.with_name(f".{run.name}.{os.getpid()}")
        with named_errors(run):
            try:
                shutil.copytree(cached, temporary)  # files, where the cache has links
                temporary.rename(run)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return run

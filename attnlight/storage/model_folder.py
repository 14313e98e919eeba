"""Models that were trained elsewhere, named by their folder or by a run that tested them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from attnlight.storage.files import read_yaml
from attnlight.storage.shipped import find_config

# Any of these is in the folder of a model, or of what is taken for one and refused by its name.
_MODEL_FILES = ("config.json", "adapter_config.json", "checkpoint-*/config.json")
_VERBS = ("test", "validate", "predict")


def is_model_folder(path: Path) -> bool:
    """Whether a folder is that of a model of transformers."""
    return any(any(path.glob(name)) for name in _MODEL_FILES)


def tested_config(run: Path) -> Path | None:
    """The configuration of a run that tested a model from elsewhere; None: the run was trained here."""
    written = [run / f"{verb}.yaml" for verb in _VERBS if (run / f"{verb}.yaml").is_file()]
    return None if (run / "fit.yaml").is_file() or not written else written[0]


def command_options(path: Path) -> list[str] | None:
    """The options that name a model's folder, or model, corpus and folder of a run that tested one.

    None if the path is neither.
    """
    if is_model_folder(path):
        return [f"--model={find_config('huggingface_last', 'models')}", f"--model.net.path={path}"]
    file = tested_config(path)
    if file is None:
        return None
    config, place = read_yaml(file), Path(os.path.abspath(path))
    names = {"root": os.path.relpath(place.parent.parent), "experiment": place.parent.name}
    sections = (name for name in ("seed_everything", "model", "data") if name in config)
    options = [f"--{name}={json.dumps(config[name])}" for name in sections]
    return options + [f"--{name}={value}" for name, value in (names | {"run": place.name}).items()]

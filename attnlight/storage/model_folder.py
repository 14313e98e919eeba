"""Models that were trained elsewhere, named by their folder or by a run that tested them."""

import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnlight.errors import InputError, did_you_mean
from attnlight.storage.files import read_json, read_yaml, suggest_file
from attnlight.storage.foreign_classes import require_trusted
from attnlight.storage.shipped import CONFIGS, find_config

# Any of these is in the folder of a model, or of what is taken for one and refused by its name.
_MODEL_FILES = ("config.json", "adapter_config.json", "checkpoint-*/config.json")
TAGGER = "ForTokenClassification"  # the end of the name of its class in transformers
_VERBS = ("test", "validate", "predict")
HUB_ID = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+")  # `org/name`


def is_model(path: Path) -> bool:
    """Whether a path is the folder of a model of transformers, or an id on the hub, `org/name`.

    What lies in a folder here, or names a shipped file, is no id.
    """
    if any(any(path.glob(name)) for name in _MODEL_FILES):
        return True
    known = (path.parent, CONFIGS / path.parent)
    is_id = HUB_ID.fullmatch(str(path)) and not str(path).endswith((".ckpt", ".yaml"))
    return bool(is_id) and not any(folder.is_dir() for folder in known)


def tags_tokens(path: Path) -> bool:
    """Whether a model's folder is of one that tags tokens; of an id on the hub that is not known here."""
    names = None
    with suppress(InputError):  # a damaged file is refused where the model is read
        names = read_json(path / "config.json").get("architectures")
    return isinstance(names, list) and any(str(name).endswith(TAGGER) for name in names)


def require_run(run: Path) -> None:
    """Check that a folder is of a run that was trained here."""
    if (run / "fit.yaml").is_file():
        return
    parts = ("fit.yaml", "records")
    if runs := sorted(path.parent for part in parts for path in run.glob(f"*/{part}")):
        raise InputError(f"{run} is the folder of an experiment: name its run, such as {runs[0]}.")
    lacks = "it has no fit.yaml, nor the config.json of a model of transformers"
    if not run.is_dir():
        lacks = "it is a file" if run.is_file() else "there is no such folder"
    elif not any(run.iterdir()):
        lacks = "the folder is empty"
    elif is_model(run):
        lacks = f"it is a model, which `attnlight test {run} --data FILE` tests"
    hint = did_you_mean(run.name, (path.parent.name for path in run.parent.glob("*/fit.yaml")))
    hint = hint or ("" if run.exists() else suggest_file(run))
    raise InputError(f"there is no trained run {run}: {lacks}{hint}.")


def require_run_or_tested(run: Path) -> None:
    """Check that a folder is a run, or that tests of a model from elsewhere or of Python wrote it."""
    if not (run / "records").is_dir() and tested_config(run) is None:
        require_run(run)


def tested_config(run: Path) -> Path | None:
    """The configuration of a run that tested a model from elsewhere; None: the run was trained here."""
    written = [run / f"{verb}.yaml" for verb in _VERBS if (run / f"{verb}.yaml").is_file()]
    return None if (run / "fit.yaml").is_file() or not written else written[0]


def read_tested(run: Path) -> dict[str, Any]:
    """Sections of the configuration of a run that tested a model from elsewhere; empty for other runs."""
    if (file := tested_config(run)) is None:
        return {}
    content = read_yaml(file)
    names = ("seed_everything", "model", "data")
    config: dict[str, Any] = {name: content[name] for name in names if name in content}
    require_trusted(file, config, sys.modules)
    return config


def command_options(path: Path) -> list[str] | None:
    """The options that name a model's folder or id, or model, corpus and folder of a run that tested one.

    None if the path is neither.
    """
    if is_model(path):
        named = os.path.abspath(path) if path.is_dir() else path
        kind = "huggingface_tagger" if tags_tokens(path) else "huggingface_last"
        model = find_config(kind, "models")
        return [f"--model={model}", f"--model.net.path={named}"]
    config, place = read_tested(path), Path(os.path.abspath(path))
    if not config:
        return None
    names = {"root": os.path.relpath(place.parent.parent), "experiment": place.parent.name}
    options = [f"--{name}={json.dumps(section)}" for name, section in config.items()]
    return options + [f"--{name}={value}" for name, value in (names | {"run": place.name}).items()]

"""The folder of a model: its files are read here, and transformers is given their content alone.

Whoever wrote a folder is not trusted. transformers would run its code (`auto_map`), load what it points
to (adapters, kernels, other files) and unpickle `.bin` files; none of this happens to content that was
read as JSON and safetensors.
"""

import hashlib
import re
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from attnlight.data.pieces import rewriting_command
from attnlight.errors import InputError, one_line
from attnlight.storage.files import read_json, refuse_pointer, suggest_file
from attnlight.storage.hub import hub_folder

CONFIG = "config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_HUB_ID = re.compile(r"(?!\.)[\w.-]+(/(?!\.)[\w.-]+)?")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_OTHER_WEIGHTS = ("*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.safetensors")
SAVED = "expected a folder that `save_pretrained` wrote"


def model_folder(path: str, *, offline: bool = False) -> Path:
    """The folder of a model: `path`, or the cached files of the model of that id on the hub.

    With `offline`, for a model that only a checkpoint names, the hub is not asked.

    Raises:
        InputError: There is no such folder and no such model, or the folder holds no model.
    """
    place = Path(path)
    if not place.is_dir():
        if place.exists():
            raise InputError(f"{path} is a file; {SAVED}.")
        if not _HUB_ID.fullmatch(path):
            raise InputError(f"there is no folder {path}{suggest_file(place)}.")
        place = hub_folder(path, offline)
    if (place / "adapter_config.json").is_file():
        raise InputError(
            f"{path} is an adapter, a part of a model: merge it (`merge_and_unload` of peft), and save the "
            "whole model."
        )
    if (place / CONFIG).is_file():
        return place
    if not any(place.iterdir()):
        raise InputError(f"{path} is empty; {SAVED}.")
    within = sorted(place.glob(f"checkpoint-*/{CONFIG}"), key=lambda file: file.stat().st_mtime)
    if within:
        raise InputError(
            f"{path} is the output folder of a Trainer: give one of its checkpoints, such as "
            f"{within[-1].parent}, or the folder that `trainer.save_model` wrote."
        )
    if (place / "fit.yaml").is_file():
        run = f"give it without --model, `attnlight test {path}`"
        raise InputError(f"{path} is a run of attnlight: {run}.")
    raise InputError(f"there is no {CONFIG} in {path}; {SAVED}.")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, one or several.

    Raises:
        InputError: There are none, or one that the index lists is missing.
    """
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if (folder / _INDEX).is_file():
        listed = read_json(folder / _INDEX).get("weight_map")
        names = sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
        for name in names:
            if Path(name).name != name or not (folder / name).is_file():
                raise InputError(f"there is no file {name} in {folder}, which {_INDEX} lists.")
        if names:
            return [folder / name for name in names]
        raise InputError(f"{folder / _INDEX} lists no files (`weight_map`).")
    pickled = sorted(file.name for pattern in _PICKLED for file in folder.glob(pattern))
    if any(name.startswith("pytorch_model") for name in pickled):
        named = read_json(folder / CONFIG).get("architectures")
        name = str(named[0]) if isinstance(named, list) and named else ""
        name = name if name.isidentifier() else "AutoModel"  # the class that wrote the folder
        raise InputError(
            f"the weights in {folder} are pickled ({pickled[0]}), which may run code, and are not read: "
            f"convert them by {rewriting_command(str(folder), name)}."
        )
    others = [file.name for pattern in _OTHER_WEIGHTS for file in folder.glob(pattern)]
    found = f"; {min([*pickled, *others])} is not read" if pickled or others else ""
    raise InputError(f"there are no weights in {folder}{found}; expected {_WEIGHTS}.")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a model by name, in memory of their own."""
    state: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            with file.open("rb") as stream:
                refuse_pointer(file, stream.read(64))
            # Copies: the file is mapped, and would change the model when it is written again.
            state |= {name: values.clone() for name, values in load_file(file).items()}
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{file} is truncated or damaged: {one_line(error)}.") from error
    return state


def fingerprint_of(folder: Path) -> str:
    """A digest of the files of a model's weights, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for file in weight_files(folder):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]

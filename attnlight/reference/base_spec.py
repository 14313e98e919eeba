"""The base model that a variant is compared with, read from its checkpoint."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnlight.batch import AttentionModel
from attnlight.data.digests import text_digest
from attnlight.errors import InputError
from attnlight.models.build import CUSTOM, build_model, model_options
from attnlight.storage.checkpoint_file import CHECKPOINT_KEY, read_checkpoint
from attnlight.storage.files import read_yaml
from attnlight.storage.foreign_classes import require_trusted, require_trusted_classes

_MODEL = "model."


@dataclass(frozen=True)
class BaseSpec:
    """The description of a base that a variant keeps, in case the base's checkpoint is gone."""

    fingerprint: str  # hash of architecture, weights and vocabulary, which determine its outputs
    corpus: str  # fingerprint of the corpus that it was trained on
    vocabulary: str  # hash of its tokenizer
    # The hyperparameters of its task: `problem`, `spec`, `net`, `optimizer`, `loss`, `vectors` and,
    # for a variant, its additional ones except `inherited`.
    options: dict[str, Any]
    # Fingerprint of the base's own base if it is a variant itself, else None.
    base: str | None = None


@dataclass(frozen=True)
class BaseModel:
    """A network in evaluation mode, without gradients, its description, and its `RawText`'s fields."""

    identity: BaseSpec
    model: AttentionModel
    raw: Mapping[str, Any]


def read_base(path: str | Path) -> BaseModel:
    """Read a model from a checkpoint of attnlight, or from a run's folder.

    From a folder, `best.ckpt` is read, and classes named in its `fit.yaml` may be imported if they
    are trusted or were imported before.

    Raises:
        InputError: The file is missing or damaged, its model has no attention or is guided by
            another model's, or it names a class from outside attnlight without a `fit.yaml`, or one
            that is not trusted.
    """
    file, trusted = Path(path), None
    if file.is_dir():
        trusted = read_yaml(file / "fit.yaml").get("model")
        require_trusted(file / "fit.yaml", {"model": trusted}, sys.modules)
        file = file / "best.ckpt"
    checkpoint = read_checkpoint(file)
    metadata = checkpoint[CHECKPOINT_KEY]
    options = json.loads(json.dumps(checkpoint["hyper_parameters"]))  # lists for tuples, as in YAML
    base_of_base = (options.pop("inherited", None) or {}).get("base", {})
    require_trusted_classes(file, options, trusted)
    net = options["net"]
    named = CUSTOM in net or options["problem"] == "tagging"  # without an option `attention`
    if not named and net.get("attention") in (None, "none"):
        raise InputError(f"{path} is a model without attention; a base model must have attention.")
    guide = options.get("guide", "learned")
    if guide not in ("learned", "uniform"):
        raise InputError(
            f"{path} is guided by another model's attention (guide {guide}); give that model as "
            "the base instead."
        )
    state = {
        name.removeprefix(_MODEL): values
        for name, values in checkpoint["state_dict"].items()
        if name.startswith(_MODEL)
    }
    architecture = options["problem"], net, options["spec"]
    with torch.random.fork_rng(devices=[]):  # these initial weights are overwritten
        model = build_model(*architecture)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"the weights in {path} do not match its hyperparameters.") from error
    model.eval().requires_grad_(False)
    vocabulary = text_digest(metadata["tokenizer"])
    described = json.dumps([model_options(*architecture), vocabulary], sort_keys=True)
    digest = hashlib.sha256(described.encode())
    for name in sorted(state):
        values = state[name].contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    identity = BaseSpec(
        fingerprint=digest.hexdigest()[:16],
        corpus=str(metadata["corpus"]),
        vocabulary=vocabulary,
        options=options,
        base=base_of_base.get("fingerprint"),
    )
    return BaseModel(identity, model, metadata)  # type: ignore[arg-type]

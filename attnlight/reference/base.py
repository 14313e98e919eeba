"""The model that a variant is compared with, read from its checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from attnlight.batch import AttentionModel
from attnlight.checkpoints import CHECKPOINT_KEY, read_checkpoint
from attnlight.compatibility import hyperparameters
from attnlight.errors import InputError
from attnlight.files import read_yaml
from attnlight.foreign import require_known
from attnlight.models.build import CUSTOM, attends, build_model, model_options

_MODEL = "model."


@dataclass(frozen=True)
class Identity:
    """What is kept of a base where its checkpoint may be gone; plain values.

    Attributes:
        fingerprint: Hash of what decides its outputs: architecture, weights and vocabulary.
        corpus: Fingerprint of the corpus that it was trained on.
        vocabulary: Hash of its tokenizer.
        options: The hyperparameters of its task, but for what a variant keeps of its own base:
            `problem`, `spec`, `net`, `optimizer`, `loss`, `vectors` and a variant's own.
        base: Fingerprint of that base; None for a model that is no variant.
    """

    fingerprint: str
    corpus: str
    vocabulary: str
    options: dict[str, Any]
    base: str | None = None

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Self:
        """From its fields as a dictionary, with options of this version or of the first format."""
        return cls(**{**held, "options": hyperparameters(held["options"])})


@dataclass(frozen=True)
class BaseModel:
    """A frozen model.

    Attributes:
        identity: What it is.
        model: In evaluation mode, without gradients.
    """

    identity: Identity
    model: AttentionModel


def read_base(path: str | Path) -> BaseModel:
    """Read a model from a checkpoint of attnlight, or from a run's folder.

    A folder gives its best epoch and its `fit.yaml`, in which classes of the user's own may stand.

    Raises:
        InputError: The file is missing or damaged, holds no model with attention of its own, or
            names a class that is not attnlight's and no `fit.yaml` names.
    """
    file, known = Path(path), None
    if file.is_dir():
        known = read_yaml(file / "fit.yaml")["model"]
        file = file / "best.ckpt"
    checkpoint = read_checkpoint(file)
    held = checkpoint[CHECKPOINT_KEY]
    options = json.loads(json.dumps(checkpoint["hyper_parameters"]))  # lists for tuples, as in YAML
    own_base = (options.pop("inherited", None) or {}).get("base", {})
    require_known(file, options, known)
    if not attends(options["problem"], options["net"]):
        raise InputError(f"{path} is a model without attention: a base needs one to compare with.")
    given = options.get("guide", "learned")
    if given not in ("learned", "uniform"):
        raise InputError(
            f"{path} is guided by another model's attention (guide {given}): name that model, "
            "which has attention of its own."
        )
    state = {
        name.removeprefix(_MODEL): values
        for name, values in checkpoint["state_dict"].items()
        if name.startswith(_MODEL)
    }
    made_of = options["problem"], options["net"], options["spec"]
    with torch.random.fork_rng(devices=[]):  # its start is overwritten, and must cost no draws
        model = build_model(*made_of)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"the weights in {path} do not fit its hyperparameters.") from error
    model.eval().requires_grad_(False)
    vocabulary = text_digest(held["tokenizer"])
    hashed = model_options(*made_of)
    if CUSTOM not in options["net"] and "freeze" in options["vectors"]:
        # Once an option of the network: fingerprints, by which outputs are kept, are of it too.
        hashed["freeze_embeddings"] = options["vectors"]["freeze"]
    fingerprint = _fingerprint(hashed, vocabulary, state)
    identity = Identity(
        fingerprint, str(held["corpus"]), vocabulary, options, own_base.get("fingerprint")
    )
    return BaseModel(identity, model)  # type: ignore[arg-type]


def text_digest(text: str | None) -> str:
    """Hash of a text, 16 hexadecimal digits."""
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]


def _fingerprint(options: Mapping[str, Any], vocabulary: str, state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps([options, vocabulary], sort_keys=True).encode())
    for name in sorted(state):
        values = state[name].contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]

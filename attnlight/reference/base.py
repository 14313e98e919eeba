"""The model that a variant is compared with, read from its checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from attnlight.checkpoints import CHECKPOINT_KEY, read_checkpoint
from attnlight.errors import InputError
from attnlight.models import AffineClassifier, SelfAttentionTagger
from attnlight.models.build import build_model, is_tagger, model_options

_MODEL = "model."


@dataclass(frozen=True)
class Identity:
    """What is kept of a base where its checkpoint may be gone; plain values.

    Attributes:
        fingerprint: Hash of what decides its outputs: architecture, weights and vocabulary.
        corpus: Fingerprint of the corpus that it was trained on.
        vocabulary: Hash of its tokenizer.
        options: The hyperparameters of its task, but for what a variant keeps of its own base.
        base: Fingerprint of that base; None for a model that is no variant.
    """

    fingerprint: str
    corpus: str
    vocabulary: str
    options: dict[str, Any]
    base: str | None = None

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Self:
        """From what `held` made."""
        return cls(**held)

    def held(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class BaseModel:
    """A frozen model.

    Attributes:
        identity: What it is.
        model: In evaluation mode, without gradients.
    """

    identity: Identity
    model: AffineClassifier | SelfAttentionTagger


def read_base(path: str | Path) -> BaseModel:
    """Read a classifier or a tagger from a checkpoint of attnlight.

    Raises:
        InputError: The file is missing or damaged, or holds no model with attention of its own.
    """
    checkpoint = read_checkpoint(path)
    held, options = checkpoint[CHECKPOINT_KEY], _plain(checkpoint["hyper_parameters"])
    own_base = (options.pop("inherited", None) or {}).get("base", {})
    _require_attention(path, options)
    state = {
        name.removeprefix(_MODEL): values
        for name, values in checkpoint["state_dict"].items()
        if name.startswith(_MODEL)
    }
    with torch.random.fork_rng(devices=[]):  # its start is overwritten, and must cost no draws
        model = build_model(options)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"the weights in {path} do not fit its hyperparameters.") from error
    model.eval().requires_grad_(False)
    vocabulary = text_digest(held["tokenizer"])
    fingerprint = _fingerprint(model_options(options), vocabulary, state)
    identity = Identity(
        fingerprint, str(held["corpus"]), vocabulary, options, own_base.get("fingerprint")
    )
    return BaseModel(identity, model)


def text_digest(text: str | None) -> str:
    """Hash of a text, 16 hexadecimal digits."""
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as YAML holds them: a list for a tuple."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}


def _require_attention(path: str | Path, options: Mapping[str, Any]) -> None:
    if not is_tagger(options) and options.get("attention", "none") in (None, "none"):
        raise InputError(f"{path} is a model without attention: a base needs one to compare with.")
    given = options.get("guide", "learned")
    if given not in ("learned", "uniform"):
        raise InputError(
            f"{path} is guided by another model's attention (guide {given}): name that model, "
            "which has attention of its own."
        )


def _fingerprint(options: Mapping[str, Any], vocabulary: str, state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps([options, vocabulary], sort_keys=True).encode())
    for name in sorted(state):
        values = state[name].contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]

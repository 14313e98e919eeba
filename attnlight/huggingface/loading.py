"""Read a transformers model with the numbers of its tokens, from a folder, the hub or a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from attnlight.data.pieces import read_tokenizer
from attnlight.errors import InputError, one_line
from attnlight.huggingface.head import LinearForSequenceClassification

_WEIGHTS = ("*.safetensors", "*.bin")
_HEAD = "ForSequenceClassification"


@dataclass(frozen=True)
class Source:
    """A model that has been read.

    Attributes:
        model: The model, a classifier of single texts in evaluation mode.
        numbers: The model's own number of each token id of a batch, (V,) long.
        new: Names of the parameters that were drawn at random: the head of a model that was not
            trained to classify.
        missing: Why its weights are not those that were asked for; None: they are.
    """

    model: PreTrainedModel
    numbers: Tensor
    new: tuple[str, ...] = ()
    missing: str | None = None


def fingerprint_of(path: str) -> str:
    """A digest of the weights in a folder, or the commit of a model on the hub.

    Raises:
        InputError: There are no weights.
    """
    place = Path(path)
    if not place.is_dir():
        return str(getattr(configuration(path), "_commit_hash", None) or path)
    files = sorted(file for pattern in _WEIGHTS for file in place.glob(pattern))
    if not files:
        raise InputError(f"there are no weights in {path}; expected {' or '.join(_WEIGHTS)}.")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def stored_options(path: str) -> dict[str, Any]:
    """What a checkpoint stores of a model, so that it can be built without its folder.

    Raises:
        InputError: There is no such model, or it has no weights.
    """
    config = configuration(path).to_dict()
    config.pop("_name_or_path", None)
    return {"config": config, "fingerprint": fingerprint_of(path)}


def open_model(
    path: str | PreTrainedModel,
    num_classes: int | None = None,
    vocab_size: int | None = None,
    config: Mapping[str, Any] | None = None,
    fingerprint: str | None = None,
) -> Source:
    """Read a model, in single precision.

    Args:
        path: Folder or hub id, or a model of transformers, which is used itself.
        num_classes: Number of classes; None: the model's.
        vocab_size: Number of token ids of the corpus, for a model whose folder is gone.
        config: Its configuration as a checkpoint stores it; None: that of `path`.
        fingerprint: Fingerprint of the weights as a checkpoint stores it; None: any.

    Raises:
        InputError: There is no such model, or it computes attention by a kernel that has no weights.
    """
    if isinstance(path, PreTrainedModel):
        kernel = str(path.config._attn_implementation)
        if "flash" in kernel or "flex" in kernel:
            raise InputError(
                f"the model computes attention by {kernel}, which has no weights: load it with "
                "attn_implementation='sdpa'."
            )
        source = Source(path.eval(), torch.arange(path.config.get_text_config().vocab_size))
    else:
        source = _read(path, num_classes, vocab_size, config, fingerprint)
    if source.model.config.is_encoder_decoder:
        raise InputError(
            f"{type(source.model).__name__} is an encoder with a decoder: expected one of the two, which "
            "a text goes through once."
        )
    settings = source.model.config.get_text_config()
    if settings.pad_token_id is None:
        settings.pad_token_id = 0  # not used: padding is masked
    settings.use_cache = False
    return source


def require_head(model: PreTrainedModel, num_classes: int | None) -> None:
    """Check that a model decides by one token of a text, and among as many classes as the corpus has.

    Raises:
        InputError: It gives no classes, another number of them, or it reads several tokens.
    """
    labels = model.config.num_labels
    if _HEAD not in type(model).__name__:
        raise InputError(
            f"{type(model).__name__} gives no classes: load it by AutoModelForSequenceClassification."
        )
    if num_classes is not None and max(2, labels) != num_classes:
        raise InputError(
            f"the model was trained to give {labels} classes, but the corpus in `data` has "
            f"{num_classes}."
        )
    pooling = getattr(model.config, "classifier_pooling", "cls")  # ModernBERT's
    if pooling != "cls":
        raise InputError(
            f"the model's head reads the {pooling} of all states (classifier_pooling), not one token: no "
            "row of its last layer is what it decides by."
        )


def class_names(config: PretrainedConfig, classes: Sequence[str] = ()) -> list[str]:
    """Names of a model's classes, as a corpus spells them, in the order of its logits.

    The corpus's names are taken in their order if the model names none, and matched without regard to
    case otherwise.

    Args:
        config: The model's configuration.
        classes: The corpus's classes; empty: there is no corpus.

    Raises:
        InputError: The model's classes have other names than the corpus's.
    """
    names = [str(name) for _, name in sorted((int(n), name) for n, name in config.id2label.items())]
    if not classes:
        return names
    if names == [f"LABEL_{number}" for number in range(len(classes))]:
        return list(classes)
    spelt = {name.casefold(): name for name in classes}
    if sorted(spelt) != sorted(name.casefold() for name in names):
        raise InputError(
            f"the corpus in `data` has the classes {', '.join(classes)}, the model {', '.join(names)}: "
            "rename them with `classes` of `data`."
        )
    return [spelt[name.casefold()] for name in names]


def configuration(path: str) -> PretrainedConfig:
    """The configuration of a model in a folder or on the hub.

    Raises:
        InputError: There is no such model.
    """
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(f"there is no model in {path!r}: {one_line(error)}.") from error
    return config


def _read(
    path: str,
    num_classes: int | None,
    vocab_size: int | None,
    stored: Mapping[str, Any] | None,
    fingerprint: str | None,
) -> Source:
    """A model of a folder or of the hub; of a checkpoint alone where they have it no longer."""
    try:
        if fingerprint is not None and fingerprint_of(path) != fingerprint:
            raise InputError(f"the weights in {path} are not those that training started from.")
        config = configuration(path)
        own = torch.tensor(read_tokenizer(path)[1])
    except InputError as error:
        if stored is None or vocab_size is None:
            raise
        options = dict(stored)
        config = AutoConfig.for_model(options.pop("model_type"), **options)
        if num_classes is not None and config.num_labels != num_classes:
            config.num_labels = num_classes
        known = type(config) in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
        if known:
            model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
        else:
            model = LinearForSequenceClassification(config).float()
        return Source(model.eval(), torch.zeros(vocab_size, dtype=torch.long), (), str(error))
    trained = any(_HEAD in name for name in config.architectures or ())
    if num_classes is not None and not trained:
        config.num_labels = num_classes
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # of a new head
    logging.disable_progress_bar()
    known = type(config) in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    kind: Any = AutoModelForSequenceClassification if known else AutoModel
    try:
        model, found = kind.from_pretrained(
            path,
            config=config,
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} has no model that classifies texts: {one_line(error)}."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
    new = set(found["missing_keys"])
    if not known:
        model = LinearForSequenceClassification(config, model)
        new = {f"model.{name}" for name in new} | {"score.weight", "score.bias"}
    return Source(model.eval(), own, tuple(sorted(new)))

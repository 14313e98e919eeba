"""Read a transformers model with the numbers of its tokens, from a folder, the hub or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from attnlight.data.pieces import read_tokenizer
from attnlight.errors import InputError, one_line
from attnlight.huggingface.configuration import (
    HEAD,
    build_configuration,
    configuration,
    has_head,
    require_single_label,
)
from attnlight.huggingface.folder import fingerprint_of, model_folder, read_weights
from attnlight.huggingface.head import LinearForSequenceClassification

_PRETRAINING = (
    MODEL_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
)


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
        InputError: There is no such model, it is damaged, or it computes attention by a kernel that has
            no weights.
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
    name, labels = type(model).__name__, model.config.num_labels
    require_single_label(model.config, [name], name)
    if not has_head([name]):
        raise InputError(f"{name} gives no classes: load it by AutoModelForSequenceClassification.")
    if num_classes is not None and labels != num_classes:
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
        config = build_configuration(stored, "the checkpoint")
        with _quiet(path):
            if num_classes is not None and config.num_labels != num_classes:
                config.num_labels = num_classes
            if _is_known(config):
                model = AutoModelForSequenceClassification.from_config(
                    config, dtype=torch.float32, trust_remote_code=False
                )
            else:
                model = LinearForSequenceClassification(config).float()
        return Source(model.eval(), torch.zeros(vocab_size, dtype=torch.long), (), str(error))
    names = [str(name) for name in config.architectures or ()]
    require_single_label(config, names, path)
    if not has_head(names):
        config.problem_type = None
        if num_classes is not None:
            config.num_labels = num_classes
    model, new = _load(path, config)
    embedded = model.get_input_embeddings().num_embeddings
    if int(own.max()) >= embedded:
        raise InputError(
            f"the tokenizer.json in {path} is of another model: it has {int(own.max()) + 1} tokens, the model "
            f"embeddings of {embedded}."
        )
    return Source(model.eval(), own, tuple(sorted(new)))


def _load(path: str, config: PretrainedConfig) -> tuple[PreTrainedModel, set[str]]:
    """The model in a folder, and the names of the parameters of its head that are new."""
    state = read_weights(model_folder(path))
    known = _is_known(config)
    mapping: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING if known else MODEL_MAPPING
    with _quiet(path):
        (kind, *_) = _listed(mapping[type(config)])
        text = config.get_text_config()
        model, found = kind.from_pretrained(
            None,
            config=text if kind.config_class is type(text) else config,
            state_dict=state,
            dtype=torch.float32,
            attn_implementation="sdpa",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            local_files_only=True,
        )
        for name, given, expected in sorted(found["mismatched_keys"])[:1]:
            raise InputError(
                f"{path} has weights of other sizes than its configuration: {name} is {tuple(given)}, "
                f"expected {tuple(expected)}."
            )
        left_out = _unknown(model, found["unexpected_keys"])
    if left_out:
        raise InputError(
            f"{path} has weights that are no part of {kind.__name__} with its configuration, "
            f"{_some(left_out)}: without them another model would be tested."
        )
    base = f"{model.base_model_prefix}." if known else ""
    new = set(found["missing_keys"])
    lacking = [name for name in new if name.startswith(base) and "pooler." not in name]
    if lacking:
        raise InputError(f"{path} lacks weights of its model, {_some(lacking)}.")
    if not known:
        model = LinearForSequenceClassification(config, model)
        new = {f"model.{name}" for name in new} | {"score.weight", "score.bias"}
    return model, new


def _is_known(config: PretrainedConfig) -> bool:
    """Whether transformers has a classifier of texts of this architecture."""
    return type(config) in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING


def _unknown(model: PreTrainedModel, unexpected: set[str]) -> list[str]:
    """Names of weights that no model of pretraining has which a classifier may start from."""
    config, base = model.config, f"{model.base_model_prefix}."
    known: set[str] = set()
    for mapping in _PRETRAINING if unexpected else ():
        for kind in _listed(mapping.get(type(config), ())):
            with torch.device("meta"):
                known |= {name.removeprefix(base) for name in kind(config).state_dict()}
    return [name for name in unexpected if name.removeprefix(base) not in known]


def _listed(kinds: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The classes of an entry of a mapping of transformers, which may be one."""
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _some(names: list[str]) -> str:
    return min(names) + (f" and {len(names) - 1} more" if names[1:] else "")


@contextmanager
def _quiet(path: str) -> Iterator[None]:
    """Keep transformers silent about new heads, and say in one sentence what it refuses."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} has no model that classifies texts ({HEAD}): {one_line(error)[:300]}."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
